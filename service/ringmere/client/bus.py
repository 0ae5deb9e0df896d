"""Everything a worker needs of a gateway in one object: publish, run tasks, cancel them."""

from __future__ import annotations

from typing import Any

from ringmere.client import control
from ringmere.client.control import Cancellation
from ringmere.client.publish import Published, Publisher
from ringmere.client.worker import Task


class Bus(Publisher):
    """A publisher that also runs and cancels tasks; made as one.

    ::

        async with Bus(["http://gateway-1:8080", "http://gateway-2:8080"]) as bus:
            await bus.publish("demo", {"type": "note", "data": "hello"})
    """

    def task(self, session: str, task: str, *, interrupt: bool = True) -> Task:
        """Return a run of a task, for ``async with``.

        Without ``interrupt`` a cancel only sets ``task.cancelled`` and calls what ``on_cancel`` was given: the body
        ends by itself. Raises ``InvalidSessionId``.
        """
        return Task(self._caller, self._publish_keyed, session, task, self._patience, interrupt=interrupt)

    async def cancel(self, session: str, task: str, reason: str | None = None) -> Cancellation:
        """Cancel a task, wherever it runs or is to run; returns what holds now, this cancel or one before it.

        Raises ``InvalidSessionId``, ``InvalidCancel``, :class:`~ringmere.client.errors.Refused` and ``Unreachable``.
        The same again is safe.
        """
        return await control.cancel(self._caller, session, task, reason, self._deadline())

    async def cancelled(self, session: str, task: str) -> Cancellation | None:
        """Return the cancel of a task, None when there is none; raises as :meth:`cancel` does."""
        return await control.look(self._caller, session, task, self._deadline())

    async def _publish_keyed(self, session: str, event: dict[str, Any], key: str) -> Published:
        return await self.publish(session, event, key=key)
