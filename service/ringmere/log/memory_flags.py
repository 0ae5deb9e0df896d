"""The cancel flags of a log in memory: the rules of the real ones, without a bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringmere.core.control import CancelFlag
from ringmere.core.session import check_session_id
from ringmere.log.flags import Requested

if TYPE_CHECKING:
    from ringmere.log.memory_across import MemoryAcross


class FlagTable:
    """What is stored: flags by session and task, each for ``ttl`` seconds. ``clock`` is in nanoseconds since 1970."""

    def __init__(self, clock: Callable[[], int], ttl: float) -> None:
        self._clock = clock
        self._ttl_ns = int(ttl * 1e9)
        self._flags: dict[tuple[str, str], tuple[int, CancelFlag]] = {}

    def get(self, session: str, task: str) -> CancelFlag | None:
        """Return a task's flag, None when there is none or it has expired."""
        set_ns, flag = self._flags.get((session, task), (0, None))
        return flag if set_ns > self._clock() - self._ttl_ns else None

    def set(self, session: str, task: str, reason: str | None) -> CancelFlag:
        """Set a task's flag."""
        now = self._clock()
        flag = CancelFlag(now // 1_000_000, reason)
        self._flags[session, task] = (now, flag)
        return flag

    def known(self) -> list[tuple[str, str]]:
        """Return session and task of all flags."""
        return [key for key in self._flags if self.get(*key) is not None]


class MemoryFlags:
    """One instance's way to the flags of its store."""

    def __init__(self, log: MemoryAcross) -> None:
        self._log = log

    async def request(self, session: str, task: str, reason: str | None) -> Requested:
        """Set a task's flag, unless it is set, and tell every instance."""
        await self._log.enter("cancel", _checked(session, task))
        store = self._log.store
        found = store.flags.get(session, task)
        if found is not None:
            return Requested(found, False)
        flag = store.flags.set(session, task, reason)
        for watcher in tuple(store.watchers):
            watcher.cancel_noticed(session, task)
        return Requested(flag, True)

    async def read(self, session: str, task: str) -> CancelFlag | None:
        """Return a task's flag."""
        await self._log.enter("cancelled", _checked(session, task))
        return self._log.store.flags.get(session, task)


def _checked(session: str, task: str) -> str:
    check_session_id(task)
    return check_session_id(session)
