"""Cancels: set a task's flag, look at it, and wait for it (contract 10.3).

Who waits is told by the log's notices: one watch an instance, whatever the number of waiters, and a leader read
only for a task that somebody waits for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ringmere.core.control import CancelFlag
from ringmere.core.errors import Draining, LogUnavailable, RingmereError
from ringmere.hub.admission import Admission

if TYPE_CHECKING:
    from ringmere.hub.hub import Hub

READ_AGAIN = 0.25
"""Seconds between two tries to read a flag that is known to be set."""

_Task = tuple[str, str]
_Answer = asyncio.Future[CancelFlag | None]


class Cancels:
    """The cancels of one instance. Who waits takes a slot of the instance, as a reader does."""

    def __init__(self, hub: Hub, admission: Admission) -> None:
        self._hub = hub
        self._admission = admission
        self._waiting: dict[_Task, set[_Answer]] = {}
        self._waiters = 0
        self._reads: set[asyncio.Task[None]] = set()

    @property
    def waiters(self) -> int:
        """Who waits, for all tasks together."""
        return self._waiters

    async def request(self, session: str, task: str, reason: str | None) -> CancelFlag:
        """Set a task's flag, whether anybody knows the task or not, and return it: the first request's.

        Raises ``LogUnavailable``; it may be set all the same, and the same again is safe.
        """
        observer = self._hub.observer
        try:
            done = await self._hub.log.cancels.request(session, task, reason)
        except RingmereError:
            observer.cancel("failed", session, task)
            raise
        observer.cancel("requested" if done.fresh else "repeated", session, task)
        return done.flag

    async def look(self, session: str, task: str) -> CancelFlag | None:
        """Return a task's flag, None when there is none. Raises ``LogUnavailable``."""
        return await self._hub.log.cancels.read(session, task)

    async def wait(self, session: str, task: str, seconds: float) -> CancelFlag | None:
        """Return a task's flag as soon as it is set, None when it is not within ``seconds`` or a drain begins.

        Raises ``LogUnavailable``, ``Draining`` and ``SubscriberLimitExceeded``.
        """
        if self._hub.draining:
            raise Draining("the instance is going away")
        self._admission.take_connection()
        answer: _Answer = asyncio.get_running_loop().create_future()
        # Listening begins before the look, so nothing falls between.
        answers = self._waiting.setdefault((session, task), set())
        answers.add(answer)
        self._waiters += 1
        try:
            flag = await self.look(session, task)
            if flag is None:
                async with asyncio.timeout(seconds):
                    flag = await answer
        except TimeoutError:
            return None
        finally:
            self._admission.slots -= 1
            self._waiters -= 1
            answers.discard(answer)
            if not answers:
                self._waiting.pop((session, task), None)
        if flag is not None:
            self._hub.observer.cancel("delivered", session, task)
        return flag

    def noticed(self, session: str, task: str) -> None:
        """A flag was set, here or on another instance: read it for those who wait."""
        if (session, task) in self._waiting:
            read = asyncio.get_running_loop().create_task(self._tell(session, task))
            self._reads.add(read)
            read.add_done_callback(self._reads.discard)

    def release(self) -> None:
        """Answer all who wait: they ask another instance."""
        for answers in self._waiting.values():
            _settle(answers, None)

    async def stop(self) -> None:
        """Answer all who wait and end every task."""
        self.release()
        for read in tuple(self._reads):
            read.cancel()
        await asyncio.gather(*self._reads, return_exceptions=True)

    async def _tell(self, session: str, task: str) -> None:
        while (session, task) in self._waiting:
            try:
                flag = await self.look(session, task)
            except LogUnavailable:
                await asyncio.sleep(READ_AGAIN)
                continue
            if flag is not None:
                _settle(self._waiting.get((session, task), set()), flag)
            return


def _settle(answers: set[_Answer], flag: CancelFlag | None) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_result(flag)
