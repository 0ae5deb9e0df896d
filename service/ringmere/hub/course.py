"""The course of a stream of many sessions: all of them catch up and join in one step, later ones beside the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ringmere.core.cursor import Outcome
from ringmere.core.tagged import Tagged
from ringmere.hub.gather import Gather
from ringmere.hub.lagging import Overtakes
from ringmere.hub.merge import BEHIND, Item
from ringmere.hub.notices import replay_complete
from ringmere.hub.source import Source

if TYPE_CHECKING:
    from ringmere.hub.many import Many


class Course:
    """Which of a stream's sessions are on their way to live, and the tasks that take them there."""

    __slots__ = ("_announce", "_beside", "_many", "_overtakes", "_task", "verdict", "whole")

    def __init__(self, many: Many, *, announce: bool) -> None:
        """``announce`` says that a ``replay_complete`` over all sessions is due."""
        self._many = many
        self._announce = announce
        self._overtakes: Overtakes | None = None
        self.whole: Gather | None = Gather(many, {})
        """The way of all sessions together; None once the stream is live."""
        self._beside: dict[Gather, asyncio.Task[None]] = {}
        """The ways of sessions that were added to a live stream."""
        self._task: asyncio.Task[None] | None = None
        self.verdict = Outcome.CONTIGUOUS
        """What the cursor came to, for metrics: the newest verdict that one of the sessions was told."""

    @property
    def gathers(self) -> list[Gather]:
        """All ways that are not at their end."""
        return [*self._beside, *([self.whole] if self.whole is not None else [])]

    def begin(self) -> None:
        """Join at once when memory reaches back far enough, else read the log in a task of its own."""
        whole = self.whole
        assert whole is not None
        if whole.join_at_once():
            self._joined(whole)
        else:
            self._task = asyncio.create_task(self._run(whole))

    def follow(self, source: Source, *, announce: bool) -> None:
        """Take one more session along; beside a live stream it catches up by itself.

        ``announce`` has its own ``replay_complete`` told then.
        """
        source.announce = announce
        if self.whole is not None:
            self.whole.sources[source.session] = source
            return
        gather = Gather(self._many, {source.session: source}, among_live=True)
        if gather.join_at_once():
            self._told(gather)
        else:
            self._beside[gather] = asyncio.create_task(self._run(gather))

    def leave(self, session: str) -> None:
        """Take a session no further."""
        for gather in self.gathers:
            gather.sources.pop(session, None)

    def restart(self, sources: dict[str, Source], *, slow: bool) -> None:
        """Have all sessions catch up again from where they are; ``slow`` when the reader's own pace was the reason.

        What is on its way already goes on from where it has come to.
        """
        self._cancel()
        for gather in self._beside:
            sources = {**sources, **{session: source.again() for session, source in gather.sources.items()}}
        if self.whole is not None:
            sources = {**sources, **self.whole.sources}
        self._beside.clear()
        if slow:
            self._overtakes = self._overtakes or Overtakes()
        self.whole = Gather(self._many, sources)
        self.begin()

    def replace(self, source: Source) -> None:
        """Begin a session anew that is on its way; its log has changed."""
        for gather in self.gathers:
            if source.session in gather.sources:
                source.announce = gather.sources[source.session].announce
                gather.replace(source)

    def resumed(self) -> None:
        """The outlet may have become writable."""
        for gather in self.gathers:
            gather.resumed()

    def stop(self) -> None:
        """Go no further."""
        self._cancel()
        self._beside.clear()
        self.whole = None

    def overtaken(self, source: Source) -> bool:
        """Note that the ring has overtaken a session; say whether this was once too often (contract 6.7)."""
        if self._overtakes is None:
            return False
        self._overtakes.note(asyncio.get_running_loop().time(), source.attachment.last_id)
        return self._overtakes.too_many()

    def _cancel(self) -> None:
        tasks = [*self._beside.values(), *([self._task] if self._task is not None else [])]
        self._task = None
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def _run(self, gather: Gather) -> None:
        try:
            await gather.run()
            if gather is self.whole:
                self._task = None
                self._joined(gather)
            elif self._beside.pop(gather, None) is not None:
                self._told(gather)
        except Exception as error:
            self._many.fail(error)

    def _joined(self, gather: Gather) -> None:
        """All sessions are live, in the same synchronous step as the last write."""
        many = self._many
        self.whole = None
        if self._announce:
            self._announce = False
            many.tell(replay_complete(gather.replayed, many.last_id))
            gather.observe(self.verdict.value)
        if self._overtakes is not None:
            many.hub.observer.caught_up(many.session, gather.replayed)
        self._told(gather)
        many.went_live()

    def _told(self, gather: Gather) -> None:
        """Tell of each added session that its replay is complete."""
        for source in gather.sources.values():
            self._many.joined(source.session)
            if source.announce:
                frame = Tagged(0, replay_complete(source.replayed, source.last_id, source.session), 0)
                self._many.hand_in([Item(source.attachment.joined, BEHIND, source.attachment, frame)])
