"""Run a task that can be cancelled from anywhere, and publish what became of it (contract 10.3).

::

    async with Bus("http://127.0.0.1:8080") as bus:
        async with bus.task("demo", "task-1") as task:
            task.result = await work()

A task that was cancelled before it starts never runs. While it runs, its body is interrupted with asyncio's own
cancellation, wherever it awaits. Either way the block raises ``TaskCancelled``, and one event tells the session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from ringmere.client import control
from ringmere.client.caller import Caller
from ringmere.client.control import Cancellation
from ringmere.client.errors import ClientError, Refused, TaskCancelled
from ringmere.client.publish import Published
from ringmere.core.session import check_session_id

COMPLETED, FAILED, CANCELLED = "task_completed", "task_failed", "task_cancelled"
"""The types of the events that tell what became of a task; none of them ends the session."""
WAIT = 10
"""Seconds that one question waits for a cancel: after about so long a gateway that hangs is left for the next."""
SHORTEST = 1.0
"""An answer that came sooner, without a cancel, is of a gateway that goes away: wait a moment, then ask again."""
TROUBLE_PAUSE = 5.0
"""Seconds after a refusal before the next question."""


class Task:
    """One run of one task; made by :meth:`ringmere.client.bus.Bus.task`. Enter it once.

    ``result`` is what the event of a completed task holds; set it to any JSON value. ``trouble`` is the refusal that
    keeps this worker from hearing of a cancel now, None while it would hear of one.
    """

    def __init__(
        self,
        caller: Caller,
        publish: Callable[[str, dict[str, Any], str], Awaitable[Published]],
        session: str,
        task: str,
        patience: float,
        *,
        interrupt: bool,
    ) -> None:
        self.session = check_session_id(session)
        self.id = check_session_id(task)
        self.result: Any = None
        self.trouble: ClientError | None = None
        self._caller = caller
        self._publish = publish
        self._patience = patience
        self._interrupt = interrupt
        self._cancellation: Cancellation | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._body: asyncio.Task[Any] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._cancelled_before = 0
        self._interrupted = False

    @property
    def cancelled(self) -> bool:
        """Whether somebody has cancelled the task, as far as this worker has heard."""
        return self._cancellation is not None

    @property
    def cancellation(self) -> Cancellation | None:
        """Since when and why the task is cancelled, None as long as it is not."""
        return self._cancellation

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when the task is cancelled, at once if it is; before its body is interrupted."""
        if self.cancelled:
            callback()
        else:
            self._callbacks.append(callback)

    async def __aenter__(self) -> Self:
        """Look whether the task is cancelled, and begin to watch.

        Raises :class:`TaskCancelled`, and what :meth:`~ringmere.client.caller.Caller.call` raises: a task whose cancel
        cannot be looked for does not start.
        """
        self._cancellation = await control.look(self._caller, self.session, self.id, time.monotonic() + self._patience)
        if self._cancellation is not None:
            await self._tell_cancelled()
            raise TaskCancelled(self.session, self.id, self._cancellation.reason)
        self._body = asyncio.current_task()
        assert self._body is not None
        self._cancelled_before = self._body.cancelling()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Publish what became of the task; raises :class:`TaskCancelled` in place of the interruption."""
        assert self._watching is not None
        assert self._body is not None
        # Before anything is awaited: what comes from now on comes after the end.
        self._watching.cancel()
        stopped = isinstance(error, asyncio.CancelledError)
        if self._interrupted:
            self._body.uncancel()
        from_outside = stopped and self._body.cancelling() > self._cancelled_before
        if self._cancellation is not None:
            interrupted = stopped and not from_outside
            await self._beside(None if interrupted else error, self._tell_cancelled())
            if error is None or interrupted:
                raise TaskCancelled(self.session, self.id, self._cancellation.reason) from None
        elif error is None:
            await self._tell(COMPLETED, {} if self.result is None else {"result": self.result})
        elif not from_outside and (stopped or isinstance(error, Exception)):
            # Only the kind: the text of an error may hold what readers must not see.
            await self._beside(error, self._tell(FAILED, {"error": type(error).__name__}))
        # A worker that is stopped has not been told what becomes of its task: it says nothing.

    async def _beside(self, error: BaseException | None, telling: Awaitable[object]) -> None:
        """Publish; a failure to must not take the place of the body's own."""
        if error is None:
            await telling
            return
        try:
            await telling
        except ClientError as failure:
            error.add_note(f"and the end of task {self.id} could not be published: {failure}")

    async def _tell_cancelled(self) -> None:
        flag = self._cancellation
        assert flag is not None
        await self._tell(
            CANCELLED, {"requestedAt": flag.requested_at} | ({"reason": flag.reason} if flag.reason else {})
        )

    async def _tell(self, kind: str, data: dict[str, Any]) -> Published | None:
        """Publish the outcome under the task's key; None when another one is stored already, by whoever was faster."""
        event = {"type": kind, "data": {"taskId": self.id, **data}}
        try:
            return await self._publish(self.session, event, f"task/{self.id}")
        except Refused as error:
            if error.code == "key_reused":
                return None
            raise

    async def _watch(self) -> None:
        while self._cancellation is None:
            asked = time.monotonic()
            try:
                self._cancellation = await control.wait(self._caller, self.session, self.id, WAIT)
                self.trouble = None
            except ClientError as error:
                self.trouble = error
                await asyncio.sleep(TROUBLE_PAUSE)
                continue
            if self._cancellation is None and time.monotonic() - asked < SHORTEST:
                await asyncio.sleep(SHORTEST)
        try:
            for callback in self._callbacks:
                callback()
        finally:
            if self._interrupt and self._body is not None:
                self._interrupted = True
                self._body.cancel()
