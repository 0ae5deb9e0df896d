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
import enum
import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ringmere.core import frames
from ringmere.core.backlog import Backlog, Frame, Overflow
from ringmere.core.reasons import CloseReason
from ringmere.hub.catchup import CatchUp, Plan
from ringmere.hub.lagging import Overtakes
from ringmere.hub.notices import client_evicted, internal_fault
from ringmere.hub.options import SubscribeOptions as SubscribeOptions
from ringmere.hub.outlet import Outlet
from ringmere.hub.sink import Sink
from ringmere.hub.wheel import Timer

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel


class State(enum.Enum):
    """Where a reader stands; see the drawing above."""

    ADMITTED = "admitted"
    CATCHING_UP = "catching_up"
    LIVE = "live"
    WINDING_DOWN = "winding_down"
    ENDED = "ended"


def _not_flowing(_: bytes) -> None:
    raise AssertionError("only a flowing reader is written to directly")


class Subscriber:
    """A reader's stream. It holds a slot of its session from creation until it has ended."""

    __slots__ = (
        "_age",
        "_catch_up",
        "_count_at_join",
        "_deadline",
        "_delivered",
        "_done",
        "_heartbeat",
        "_opened_at",
        "_options",
        "_outlet",
        "_overtakes",
        "_position",
        "_reason",
        "_task",
        "channel",
        "client",
        "flowing",
        "framed",
        "start_id",
        "state",
        "stream_id",
        "write",
    )

    def __init__(self, channel: Channel, options: SubscribeOptions, plan: Plan) -> None:
        self.channel = channel
        self.client = options.client
        self.stream_id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        self.state = State.ADMITTED
        live_only = options.cursor is None and not options.from_start
        self.start_id = channel.start_id if live_only else None
        """The id of the point a stream without a cursor starts at (``X-Start-Event-Id``)."""
        self.flowing = False
        """Whether the channel may write shared blobs directly; :attr:`write` and :attr:`framed` are for it alone."""
        self.framed = True
        self.write: Callable[[bytes], None] = _not_flowing
        self._options = options
        self._catch_up: CatchUp | None = CatchUp(channel, plan)
        self._outlet: Outlet | None = None
        self._overtakes: Overtakes | None = None
        self._position = plan.position
        self._reason: CloseReason | None = None
        self._delivered = 0
        self._count_at_join = 0
        self._opened_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._deadline: Timer | None = None
        self._heartbeat: Timer | None = None
        self._age: Timer | None = None
        self._done: asyncio.Future[CloseReason] = asyncio.get_running_loop().create_future()

    @property
    def session(self) -> str:
        """The session it follows."""
        return self.channel.session

    @property
    def ended(self) -> bool:
        """Whether it is over; right after admission this means 204: the cursor is at the terminal event."""
        return self.state is State.ENDED

    @property
    def epoch_token(self) -> str:
        """The value of ``X-Event-Epoch``."""
        return self.channel.table.token

    @property
    def transport(self) -> str | None:
        """The label of its transport, None before it is attached and after it has ended."""
        return self._outlet.sink.transport if self._outlet is not None else None

    @property
    def backlog(self) -> Backlog | None:
        """Its backlog, None before a sink is attached and after the end."""
        return self._outlet.backlog if self._outlet is not None else None

    @property
    def age(self) -> float:
        """Seconds since it was admitted."""
        return time.monotonic() - self._opened_at

    @property
    def reached(self) -> int:
        """The last sequence that was accepted for it: what it has, or what its backlog holds."""
        if self._catch_up is not None:
            return self._catch_up.position
        if self.state is not State.LIVE:
            return self._position
        backlog = self.backlog
        if backlog is not None and backlog.frames:
            return max(self._position, backlog.last_seq)
        return max(self._position, self.channel.flushed)

    # -- what the door calls ---------------------------------------------------------------------------

    def attach(self, sink: Sink) -> None:
        """Begin to write: the response headers are on the transport."""
        if self.state is not State.ADMITTED:
            sink.finish()
            return
        hub = self.channel.hub
        limits = hub.limits
        retry_ms = round(limits.retry_ms * random.uniform(0.8, 1.2))
        max_frames = self._options.max_queued or limits.max_queued
        rules = hub.coalesce if self._options.coalesce else None
        backlog = Backlog(max_frames, limits.max_queued_bytes, self._options.overflow, rules)
        outlet = self._outlet = Outlet(self.channel, self.stream_id, sink, retry_ms, backlog)
        self.write, self.framed = sink.write, sink.framed
        hub.readers[sink.transport] += 1
        hub.observer.stream_opened(sink.transport, self.session, self.stream_id, self._options.cursor, self.client)
        self.state = State.CATCHING_UP
        if self._options.anchor and self.start_id is not None:
            outlet.send(frames.anchor_frame(self.start_id))
        if limits.max_stream_age:
            self._age = hub.wheel.call_later(limits.max_stream_age * random.uniform(0.9, 1.1), self._too_old)
        self._heartbeat = hub.wheel.call_later(limits.heartbeat, self._beat)
        if sink.paused:
            self.pause()
        if not self.ended:
            self._go()
        if not outlet.begun and outlet.writable and not self.ended:
            outlet.comment(frames.OPENING_COMMENT)

    def pause(self) -> None:
        """Take the transport's word that it is full: nothing is written until :meth:`resume`."""
        self.flowing = False
        if self.state in (State.ADMITTED, State.WINDING_DOWN, State.ENDED):
            return
        hub = self.channel.hub
        hub.paused.add(self)
        if self._deadline is None:
            self._deadline = hub.wheel.call_later(hub.limits.write_timeout, self._write_timed_out)

    def resume(self) -> None:
        """Take the transport's word that it has room: the backlog goes out first, in joined writes."""
        outlet = self._outlet
        if outlet is None:
            return
        if self.state is not State.WINDING_DOWN and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._drain(outlet)

    def lost(self) -> None:
        """The connection is gone: free everything at once. It is never a cancel (contract 6.10)."""
        self._end(self._reason or CloseReason.CLIENT_GONE)

    def cancel(self) -> None:
        """Give up before :meth:`attach`; harmless later."""
        if self._outlet is None:
            self._end(CloseReason.CLIENT_GONE)

    async def wait(self) -> CloseReason:
        """Return the reason once the stream has ended."""
        return await asyncio.shield(self._done)

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
        taken = outlet.fill(turn, max(before, self._position))
        self._delivered -= taken.merged
        if taken.reason is None:
            return False
        if outlet.backlog.overflow is Overflow.EVICT:
            self.evict(taken.reason, taken.event_bytes)
        else:
            self._delivered -= taken.left
            self._fall_back(self.reached, taken.reason)
        return False

    def rewind(self, plan: Plan) -> None:
        """Begin again from another plan: the log behind the reader has changed."""
        if self.state in (State.WINDING_DOWN, State.ENDED):
            return
        self._leave()
        if self._catch_up is None:
            self._catch_up = CatchUp(self.channel, plan)
        else:
            self._catch_up.replan(plan)
        if self.state is not State.ADMITTED:
            self._stop_task()
            self._go()

    def finish(self, reason: CloseReason, last_frame: bytes | None = None) -> None:
        """End the stream cleanly, after what is already accepted for it and a last frame."""
        outlet = self._outlet
        if self.state in (State.WINDING_DOWN, State.ENDED):
            return
        if outlet is None:
            self._end(reason)
            return
        if last_frame is not None:
            outlet.control(last_frame)
        self._wind_down(reason)

    def evict(self, reason: CloseReason, event_bytes: int | None = None) -> None:
        """Put the reader out: what was accepted, then ``client_evicted``, then the end, within the grace (6.5)."""
        outlet = self._outlet
        if outlet is None or self.state in (State.WINDING_DOWN, State.ENDED):
            return
        accepted = self.channel.id_of(self.reached) or self.start_id or 0
        outlet.control(client_evicted(outlet.backlog, reason, accepted, event_bytes))
        self.channel.evictions += 1
        self.channel.hub.observer.evicted(self.session, self.stream_id, reason)
        self._wind_down(reason)

    def relieve(self) -> None:
        """Give the backlog's memory back: a reader that may read it again from the log does so, others are evicted."""
        outlet = self._outlet
        if outlet is None or not outlet.backlog.frames or self.state is State.WINDING_DOWN:
            return
        position = outlet.backlog.handed if outlet.backlog.overflow is Overflow.CATCHUP else 0
        live = self._catch_up is None
        if not position or not (self._catch_up is None or self._catch_up.step_back(position)):
            self.evict(CloseReason.QUEUE_BYTES_OVERFLOW)
            return
        self._delivered -= outlet.forget()
        if live:
            self._fall_back(position, CloseReason.MEMORY)

    def give_up(self) -> None:
        """End the stream because of a fault of this program; the client comes back and reads on (contract 3.10)."""
        self.finish(CloseReason.INTERNAL, internal_fault())

    def drop(self, reason: CloseReason) -> None:
        """End the stream now, whatever is still queued."""
        if self._outlet is not None:
            self._outlet.sink.abort()
        self._end(self._reason or reason)

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
        self._position = catch_up.position
        self._delivered += catch_up.replayed
        self._catch_up = None
        self.state = State.LIVE
        self._count_at_join = channel.events
        channel.enter(self)
        self.flowing = self._outlet is not None and self._outlet.flowing
        if channel.closed:
            self.finish(CloseReason.SESSION_CLOSED)

    def _fall_back(self, position: int, reason: CloseReason) -> None:
        """Read on from the log behind ``position``, at the reader's own pace; what is queued goes out first."""
        self._leave()
        self._overtakes = self._overtakes or Overtakes()
        self._catch_up = CatchUp(self.channel, Plan(position), self._overtakes)
        self.channel.hub.observer.fell_back(self.session, self.stream_id, reason)
        self._go()

    def _leave(self) -> None:
        """Leave the channel's tuple, remembering how far the reader came."""
        self.flowing = False
        if self.state is State.LIVE:
            self._position = self.reached
            self._delivered += self.channel.events - self._count_at_join
            self.channel.leave(self)
            self.state = State.CATCHING_UP

    def _drain(self, outlet: Outlet) -> None:
        hub = self.channel.hub
        outlet.drain()
        if not outlet.writable or self.ended:
            return
        hub.paused.discard(self)
        if self.state is State.WINDING_DOWN:
            outlet.sink.finish()
            self._end(self._reason or CloseReason.INTERNAL)
            return
        self.flowing = self.state is State.LIVE and outlet.flowing
        if self._catch_up is not None:
            self._catch_up.resumed()

    def _wind_down(self, reason: CloseReason) -> None:
        """Write what is queued, then end; give up after the grace."""
        outlet = self._outlet
        assert outlet is not None
        self._leave()
        if self._catch_up is not None:
            self._position = self._catch_up.position
            self._delivered += self._catch_up.replayed
            self._catch_up = None
        self._stop_task()
        outlet.uncount()
        self.state = State.WINDING_DOWN
        self._reason = reason
        if self._deadline is not None:
            self._deadline.cancel()
        hub = self.channel.hub
        self._deadline = hub.wheel.call_later(hub.limits.evict_grace, self._grace_over)
        self._drain(outlet)

    def _stop_task(self) -> None:
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _beat(self) -> None:
        hub = self.channel.hub
        self._heartbeat = hub.wheel.call_later(hub.limits.heartbeat, self._beat)
        if self._outlet is not None and self._outlet.writable:
            self._outlet.comment(frames.HEARTBEAT)

    def _write_timed_out(self) -> None:
        self._deadline = None
        self.evict(CloseReason.WRITE_TIMEOUT)

    def _too_old(self) -> None:
        self.finish(CloseReason.MAX_AGE)

    def _grace_over(self) -> None:
        self._deadline = None
        self.drop(CloseReason.INTERNAL)

    def _end(self, reason: CloseReason) -> None:
        """Free everything; idempotent."""
        if self.state is State.ENDED:
            return
        self._leave()
        if self._catch_up is not None:
            self._delivered += self._catch_up.replayed
            self._catch_up = None
        if self._outlet is not None:
            self._outlet.uncount()
        self.state = State.ENDED
        self._stop_task()
        for timer in (self._deadline, self._heartbeat, self._age):
            if timer is not None:
                timer.cancel()
        self._deadline = self._heartbeat = self._age = None
        hub = self.channel.hub
        hub.paused.discard(self)
        outlet, self._outlet = self._outlet, None
        self.write = _not_flowing
        hub.release(self)
        if outlet is not None:
            outlet.backlog.clear()
            hub.readers[outlet.sink.transport] -= 1
            hub.observer.stream_closed(
                outlet.sink.transport, self.session, self.stream_id, reason, self.age, self._delivered
            )
        if not self._done.done():
            self._done.set_result(reason)
