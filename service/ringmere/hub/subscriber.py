"""One reader: it catches up from the log, joins live in one synchronous step, and is evicted when it lags.

::

    ADMITTED ──attach──► CATCHING_UP ──join──► LIVE ──────────┐
                             ▲                   │ rewind,    │ overflow, write timeout, goodbye
                             └───────────────────┘ fall back  ▼
                                  any ──lost, finish──► ENDED ◄── WINDING_DOWN

Only catching up has a task of its own; a live reader is a row in its channel's tuple.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringmere.core import frames
from ringmere.core.backlog import Frame, Overflow
from ringmere.core.cursor import Outcome
from ringmere.core.reasons import CloseReason
from ringmere.hub.catchup import CatchUp
from ringmere.hub.due import Gap, Plan
from ringmere.hub.lagging import Overtakes
from ringmere.hub.lifetime import Lifetime
from ringmere.hub.lifetime import State as State
from ringmere.hub.notices import resync_required
from ringmere.hub.observer import Account
from ringmere.hub.options import Resync
from ringmere.hub.options import SubscribeOptions as SubscribeOptions
from ringmere.hub.outlet import Outlet
from ringmere.hub.progress import Progress
from ringmere.hub.remedy import offer

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel


class Subscriber(Lifetime):
    """A reader's stream. It holds a slot of its session from creation until it has ended."""

    __slots__ = (
        "_catch_up",
        "_options",
        "_overtakes",
        "_progress",
        "_resync",
        "_task",
        "channel",
        "flowing",
        "framed",
        "start_id",
    )

    def __init__(self, channel: Channel, options: SubscribeOptions, plan: Plan) -> None:
        super().__init__(channel.hub, options)
        self.channel = channel
        live_only = options.cursor is None and not options.from_start and plan.found is None
        self.start_id = channel.start_id if live_only else None
        """The id of the point a stream without a cursor starts at (``X-Start-Event-Id``)."""
        self.flowing = False
        """Whether the channel may write shared blobs directly; :attr:`write` and :attr:`framed` are for it alone."""
        self.framed = True
        last_id = options.cursor or self.start_id or (plan.found.id if plan.found is not None else 0)
        self._options = options
        wish = options.resync
        self._resync = Resync.SNAPSHOT if options.snapshot and wish is Resync.REPLAY else wish
        self._progress = Progress(channel, plan.position, last_id)
        self._catch_up: CatchUp | None = CatchUp(channel, plan, last_id, resync=self._resync)
        self._overtakes: Overtakes | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def session(self) -> str:
        """The session it follows."""
        return self.channel.session

    @property
    def epoch_token(self) -> str:
        """The value of ``X-Event-Epoch``."""
        return self.channel.table.token

    @property
    def reached(self) -> int:
        """The last sequence that was accepted for it: what it has, or what its backlog holds."""
        return self._catch_up.position if self._catch_up is not None else self._progress.reached(self.backlog)

    @property
    def last_id(self) -> int:
        """The id of the last event accepted for it: delivered, or queued and certain to be written."""
        return self._catch_up.last_id if self._catch_up is not None else self._progress.last_id

    def account(self, lag: int) -> Account:
        """Return what came of it."""
        progress = self._progress
        return Account(progress.delivered, lag, progress.replayed, progress.size)

    # -- what a life needs -----------------------------------------------------------------------------

    @property
    def _followed(self) -> Channel:
        return self.channel

    @property
    def _origin(self) -> tuple[int | None, bytes | None]:
        return self._options.cursor, frames.anchor_frame(self.start_id) if self.start_id is not None else None

    def _begin(self, outlet: Outlet) -> None:
        self.write, self.framed = outlet.sink.write, outlet.sink.framed
        self._go()

    def pause(self) -> None:
        """Take the transport's word that it is full: nothing is written until :meth:`resume`."""
        self.flowing = False
        super().pause()

    # -- what the channel and the hub call -------------------------------------------------------------

    def offer(self, turn: Sequence[Frame], raw: bytes, before: int) -> bool:
        """Take a turn's frames when the fast path of the channel did not: first block, or a full transport.

        ``before`` is the sequence up to which the channel had delivered; ``raw`` all frames joined. Return
        whether they went to the transport at once.
        """
        outlet = self._outlet
        if outlet is None or self.state is not State.LIVE:
            return False
        if outlet.writable:
            outlet.send(raw)
            self.flowing = outlet.flowing and self.state is State.LIVE
            return True
        progress = self._progress
        taken = outlet.fill(turn, max(before, progress.position), progress.last_id)
        progress.delivered -= taken.merged
        if taken.reason is None:
            return False
        progress.settle(taken.last)
        if outlet.backlog.overflow is Overflow.EVICT:
            self.evict(taken.reason, taken.event_bytes)
        else:
            progress.delivered -= taken.left
            self._fall_back(self.reached, taken.reason)
        return False

    def overtaken(self, earliest_id: int, position: int) -> None:
        """Tell that the session's own tail was overtaken: the stream goes on behind ``position``.

        To a reader that would rather read on than be evicted it counts like being overtaken itself (contract 6.7).
        """
        outlet = self._outlet
        if outlet is None or self.state is not State.LIVE:
            return
        if outlet.backlog.overflow is Overflow.CATCHUP:
            self._overtakes = self._overtakes or Overtakes()
        if self._resync is Resync.SNAPSHOT:
            self._catch_up_from(Plan(position, Gap(Outcome.RING_EVICTED, None)))
            return
        detail, url = offer(self.session, self.hub.snapshots.seen(self.session), self.last_id)
        verdict = resync_required(Outcome.RING_EVICTED.value, detail, self.last_id, earliest_id, url)
        outlet.verdict(verdict, self.reached, self.last_id, position)
        self.hub.observer.resync_mode(self.session, Resync.REPLAY.value)
        self.flowing = outlet.flowing
        if self._overtakes is not None and outlet.backlog.overflow is Overflow.CATCHUP:
            self._overtakes.note(asyncio.get_running_loop().time(), self.last_id)
            if self._overtakes.too_many():
                self.evict(CloseReason.TOO_SLOW)

    def settle(self) -> None:
        """Fix :attr:`last_id`: the channel is about to count under another epoch table."""
        self._progress.settle()

    def rewind(self, plan: Plan) -> None:
        """Begin again from another plan: the log behind the reader has changed."""
        if self.state in (State.WINDING_DOWN, State.ENDED):
            return
        self._leave()
        if self._catch_up is None:
            self._catch_up = CatchUp(self.channel, plan, self._progress.last_id, resync=self._resync)
        else:
            self._catch_up.replan(plan)
        if self.state is not State.ADMITTED:
            self._stop_task()
            self._go()

    def relieve(self) -> None:
        """Give the backlog's memory back: a reader that may read it again from the log does so, others are evicted."""
        outlet = self._outlet
        if outlet is None or not outlet.backlog.frames or self.state is State.WINDING_DOWN:
            return
        position = outlet.backlog.handed if outlet.backlog.overflow is Overflow.CATCHUP else 0
        live = self._catch_up is None
        if not position or not (self._catch_up is None or self._catch_up.step_back(position, outlet.handed_id)):
            self.evict(CloseReason.QUEUE_BYTES_OVERFLOW)
            return
        last_id = outlet.handed_id
        self._progress.delivered -= outlet.forget()
        if live:
            self._fall_back(position, CloseReason.MEMORY, last_id)

    # -- inside ----------------------------------------------------------------------------------------

    def _go(self) -> None:
        """Join at once when memory reaches back far enough, else read the log in a task of its own."""
        catch_up, outlet = self._catch_up, self._outlet
        assert catch_up is not None
        assert outlet is not None
        self.state = State.CATCHING_UP
        if catch_up.join_at_once(outlet):
            self._joined(catch_up)
        else:
            self._task = asyncio.create_task(self._read_log(catch_up, outlet))

    async def _read_log(self, catch_up: CatchUp, outlet: Outlet) -> None:
        try:
            joined = await catch_up.run(outlet)
            self._task = None
            if self._catch_up is not catch_up:
                return
            if joined:
                self._joined(catch_up)
            if self._overtakes is not None and self._overtakes.too_many():
                self.evict(CloseReason.TOO_SLOW)
        except Exception as error:
            self._task = None
            context = {"message": f"stream {self.stream_id} could not be caught up", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            self.give_up()

    def _joined(self, catch_up: CatchUp) -> None:
        """Go live, in the same synchronous step as the last write of the catch-up."""
        channel = self.channel
        self._progress.join(catch_up.position, catch_up.last_id, catch_up.replayed, catch_up.size)
        self._catch_up = None
        self.state = State.LIVE
        channel.enter(self)
        self.flowing = self._outlet is not None and self._outlet.flowing
        if channel.closed or catch_up.over:
            self.finish(CloseReason.SESSION_CLOSED)

    def _catch_up_from(self, plan: Plan) -> None:
        """Leave the live readers until something has been looked up in the log."""
        self._leave()
        self._catch_up = CatchUp(self.channel, plan, self._progress.last_id, self._overtakes, self._resync)
        self._go()

    def _fall_back(self, position: int, reason: CloseReason, last_id: int | None = None) -> None:
        """Read on from the log behind ``position``, at the reader's own pace; what is queued goes out first.

        ``last_id`` is given when less than was accepted stays so.
        """
        self._leave()
        self._overtakes = self._overtakes or Overtakes()
        last_id = self._progress.last_id if last_id is None else last_id
        self._catch_up = CatchUp(self.channel, Plan(position), last_id, self._overtakes, self._resync)
        self.hub.observer.fell_back(self.session, self.stream_id, reason)
        self._go()

    def _leave(self) -> None:
        """Leave the channel's tuple, remembering how far the reader came."""
        self.flowing = False
        if self.state is State.LIVE:
            self._progress.leave(self.backlog)
            self.channel.leave(self)
            self.state = State.CATCHING_UP

    def _drain(self, outlet: Outlet) -> None:
        hub = self.hub
        outlet.drain()
        if not outlet.writable or self.ended:
            return
        hub.paused.discard(self)
        if self.state is State.WINDING_DOWN:
            self._wound_down(outlet)
            return
        self.flowing = self.state is State.LIVE and outlet.flowing
        if self._catch_up is not None:
            self._catch_up.resumed()

    def _count_eviction(self) -> None:
        self.channel.evictions += 1

    def _stop(self) -> None:
        self._leave()
        catch_up, self._catch_up = self._catch_up, None
        if catch_up is not None:
            self._progress.stop(catch_up.position, catch_up.last_id, catch_up.replayed, catch_up.size)
        self._stop_task()

    def _stop_task(self) -> None:
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _release(self) -> None:
        hub = self.hub
        hub.paused.discard(self)
        hub.release(self)
