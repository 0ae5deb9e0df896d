"""What a log promises about cancels, as ``port.py`` does about events (contract 10.3)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ringmere.core.control import CancelFlag


class Requested(NamedTuple):
    """The flag of a task that was asked for. ``fresh``: there was none before."""

    flag: CancelFlag
    fresh: bool


class Flags(Protocol):
    """The cancel flags of all tasks. One write sets a flag and tells every instance's listener.

    A flag is kept for ``cancel_ttl`` after its first request. Listeners hear ``cancel_noticed`` of each one, here or
    elsewhere, at least once; what the network lost is told late. Whoever looks first and listens from before that
    misses none.
    """

    async def request(self, session: str, task: str, reason: str | None) -> Requested:
        """Set a task's flag, unless it is set: the first time and reason stay. After ``LogUnavailable`` it may be set.

        Raises ``InvalidSessionId`` and ``LogUnavailable``; the same again is safe.
        """

    async def read(self, session: str, task: str) -> CancelFlag | None:
        """Leader read of a task's flag; None when there is none, also of a task that nobody knows."""
