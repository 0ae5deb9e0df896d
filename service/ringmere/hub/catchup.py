"""Catching up: from where a stream begins to the one synchronous step in which it joins live.

Exists only until the join: a live reader needs none of it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from ringmere.core.errors import LogUnavailable
from ringmere.core.frames import anchor_frame, control_frame
from ringmere.hub.due import Due, Plan
from ringmere.hub.lagging import Overtakes
from ringmere.hub.observer import Replay
from ringmere.hub.options import Resync
from ringmere.hub.outlet import Outlet
from ringmere.hub.segment import Segment

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel

RETRY_PAUSE = 0.05
"""Seconds between looks at a log that is away, or at a replica that is behind."""
MAX_OVERTAKEN = 3
"""Pages that retention may overtake in a row, before a reader goes to the window at once."""


class CatchUp:
    """The way of one reader from its plan to live."""

    __slots__ = (
        "_announce",
        "_began",
        "_due",
        "_outlet",
        "_over",
        "_overtaken",
        "_overtakes",
        "_point",
        "_ready",
        "_source",
        "_verdict",
        "_whole_ring",
        "channel",
        "last_id",
        "position",
        "replayed",
        "size",
    )

    def __init__(
        self,
        channel: Channel,
        plan: Plan,
        last_id: int,
        overtakes: Overtakes | None = None,
        resync: Resync = Resync.REPLAY,
    ) -> None:
        """``last_id`` is the last event that was accepted for the reader, or where it begins.

        ``overtakes`` is for one that was live and has fallen back: it may come too late once too often.
        """
        self.channel = channel
        self._overtakes = overtakes
        self.position = plan.position
        """Everything up to this sequence has been handed to the outlet."""
        self.last_id = last_id
        """The id of the last event that was, or what the reader came with."""
        self.replayed = 0
        """Events handed to the outlet so far, and with :attr:`size` their bytes on the wire."""
        self.size = 0
        self._point = plan.point
        self._due = Due(channel, plan, overtakes, resync)
        self._over = plan.over
        self._whole_ring = plan.whole_ring
        self._announce = plan.announce
        self._verdict = plan.verdict or ""
        self._source = "window"
        self._began = time.monotonic()
        self._outlet: Outlet | None = None
        self._overtaken = 0
        self._ready = asyncio.Event()

    def replan(self, plan: Plan) -> None:
        """Begin anew from another plan (the log behind the reader changed); what is announced stays due.

        So does a verdict that has not been told: the reader has nothing yet of what it stands before.
        """
        self.position = plan.position
        self._point = plan.point
        self._whole_ring = plan.whole_ring or self._whole_ring or self._due.verdict
        self._over = False
        self._due.replan(plan, whole_ring=self._whole_ring)

    @property
    def over(self) -> bool:
        """Whether the stream ends where it has come to, though no event says so (contract 3.9)."""
        return self._over and not self.replayed

    def step_back(self, position: int, last_id: int) -> bool:
        """Begin again behind an earlier ``position`` and event; say whether that one is still to be read on from."""
        if self._whole_ring or not self._due.nothing:
            return False
        self.position = position
        self.last_id = last_id
        return True

    def join_at_once(self, outlet: Outlet) -> bool:
        """Join without touching the log, if the window reaches back far enough; say whether it did."""
        self._outlet = outlet
        if self._whole_ring or self._due.unsettled or not outlet.writable or not self.channel.joinable(self.position):
            return False
        self._join(0)
        return True

    def resumed(self) -> None:
        """The outlet may have become writable."""
        self._ready.set()

    async def run(self, outlet: Outlet) -> bool:
        """Write page after page, then join; say whether it came to that, or the ring has turned too fast (6.7).

        Waits while the log is away.
        """
        self._outlet = outlet
        self._source = "log"
        self.position = self.position or self._point
        earliest = 0
        while True:
            try:
                await self._wait_writable(outlet)
                await self._settle()
                earliest = await self._restart() if self._whole_ring else earliest
                if self.position > self.channel.last:
                    # Ahead of this instance's tail. Once it has read all that the leader has, nothing at or
                    # below the position is still to come.
                    await self.channel.catch_up()
                if self.channel.joinable(self.position) or self.position > self.channel.last:
                    if outlet.writable:
                        self._join(earliest)
                        return True
                    continue
                earliest = await self._step(outlet) or earliest
                if self._overtakes is not None and self._overtakes.too_many():
                    return False
            except LogUnavailable:
                await asyncio.sleep(RETRY_PAUSE)

    async def _settle(self) -> bool:
        """Have the remedy of a verdict that is due looked up; say whether the stream goes on elsewhere for it."""
        remedy = await self._due.settle(self.last_id)
        if remedy is None:
            return False
        self.position = remedy.position or remedy.point
        self._whole_ring = False
        return True

    async def _restart(self) -> int:
        batch = await self.channel.replay.restart()
        self._whole_ring = False
        self.position = 0
        self._go_to(batch.start)
        return batch.earliest

    def _go_to(self, position: int) -> None:
        """Go on behind ``position``, below which the log has nothing any more.

        The last word of a closed session outlives the log: it is taken from memory (contract 3.9).
        """
        last_word = self.channel.last_word
        if self.position < last_word <= position:
            position = last_word - 1
        self.position = max(self.position, position)

    async def _step(self, outlet: Outlet) -> int:
        """Write one page; return the lower bound of the next sequence that is due."""
        step = await self.channel.replay.after(self.position)
        self._overtaken = self._overtaken + 1 if step.gap else 0
        if step.gap:
            self._due.lost()
            if await self._settle():
                return 0
        segment = step.segment
        if segment is None:
            if step.position <= self.position:
                await asyncio.sleep(RETRY_PAUSE)  # a replica behind the leader: look again shortly
            self._go_to(step.position)
        else:
            # Before anything is waited for: readers that come meanwhile are served from the window then.
            self._remember(segment, step.generation)
            await self.channel.hub.pace.turn()
            await self._wait_writable(outlet)
            self._write(outlet, segment)
        if self._overtaken > MAX_OVERTAKEN and self.position < self.channel.window.floor:
            # The ring turns faster than it can be read.
            self._due.lost()
            self.position = self.channel.window.floor
        return step.earliest

    def _remember(self, segment: Segment, generation: int) -> None:
        """Let the window reach further back, unless the log behind the page has changed since it was read."""
        if generation == self.channel.replay.generation:
            self.channel.window.extend_back(segment)
            self.channel.hub.check_windows()

    def _write(self, outlet: Outlet, segment: Segment) -> None:
        first = segment.first_after(self.position)
        if first:
            self._tell(first)
            framed = outlet.writable and outlet.framed
            data, events = segment.after(self.position, framed)
            if framed:
                outlet.share(data)
            else:
                outlet.send(data)
            self.replayed += events
            self.size += len(data)
            self.last_id = self.channel.id_of(segment.seqs[-1])
        self.position = max(self.position, segment.last)

    def _join(self, earliest: int) -> None:
        """Write the rest of the window, whose turn :meth:`Channel.joinable` has ended.

        The caller enters the channel's tuple in the same step, so there is no seam.
        """
        channel, outlet = self.channel, self._outlet
        assert outlet is not None
        self._tell(channel.window.first_after(self.position) or max(earliest, self.position + 1))
        framed = outlet.writable and outlet.framed
        blobs, events = channel.window.since(self.position, framed)
        for blob in blobs:
            if framed:
                outlet.share(blob)
            else:
                outlet.send(blob)
        if events:
            self.replayed += events
            self.size += sum(map(len, blobs))
            self.last_id = channel.id_of(channel.window.last_event)
        self.position = max(self.position, channel.last)
        if self._announce:
            self._complete(outlet)
        if self.last_id == self._due.state_id and (self.over or channel.closed):
            # The end follows, and no event has said to a client where it is, should it come back.
            outlet.send(anchor_frame(self.last_id))
        if self._overtakes is not None:
            channel.hub.observer.caught_up(channel.session, self.replayed)

    def _tell(self, earliest: int) -> None:
        """Write what is due before the next event (contract 4.7)."""
        if self._outlet is not None:
            self.last_id = self._due.tell(self._outlet, earliest, self.last_id)

    def _complete(self, outlet: Outlet) -> None:
        self._announce = False
        data: dict[str, Any] = {"replayedCount": self.replayed}
        if self.replayed:
            data["lastReplayedEventId"] = self.last_id
        outlet.send(control_frame("replay_complete", data, time.time_ns() // 1_000_000))
        seconds = time.monotonic() - self._began
        replay = Replay(self._verdict, self._source, self.replayed, self.size, seconds)
        self.channel.hub.observer.replayed(self.channel.session, outlet.stream_id, replay)

    async def _wait_writable(self, outlet: Outlet) -> None:
        while not outlet.writable:
            self._ready.clear()
            await self._ready.wait()
