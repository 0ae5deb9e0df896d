"""The life of a stream, however it comes by its events: it begins, shows that it lives, and ends in one of many ways.

A clean end writes what was accepted and a last frame first, within a grace; a broken one frees everything at once.
"""

from __future__ import annotations

import asyncio
import enum
import random
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringmere.core import frames
from ringmere.core.backlog import Backlog
from ringmere.core.reasons import CloseReason
from ringmere.hub.notices import client_evicted, internal_fault
from ringmere.hub.observer import Account
from ringmere.hub.options import StreamOptions
from ringmere.hub.outlet import Followed, Outlet
from ringmere.hub.reshaped import CloudEventsOutlet
from ringmere.hub.sink import Sink
from ringmere.hub.wheel import Timer

if TYPE_CHECKING:
    from ringmere.hub.hub import Hub


class State(enum.Enum):
    """Where a reader stands; :mod:`ringmere.hub.subscriber` has a drawing."""

    ADMITTED = "admitted"
    CATCHING_UP = "catching_up"
    LIVE = "live"
    WINDING_DOWN = "winding_down"
    ENDED = "ended"


def fresh_stream_id() -> str:
    """Return the id of a new stream."""
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def not_flowing(_: bytes) -> None:
    """Stand in for the write of a reader that has no transport."""
    raise AssertionError("only a flowing reader is written to directly")


class Lifetime:
    """One stream from admission to its end; what it is sent is its subclass's business."""

    __slots__ = (
        "_age",
        "_deadline",
        "_done",
        "_heartbeat",
        "_opened_at",
        "_outlet",
        "_reason",
        "_wishes",
        "client",
        "hub",
        "state",
        "stream_id",
        "write",
    )

    def __init__(self, hub: Hub, options: StreamOptions) -> None:
        self.hub = hub
        self.client = options.client
        self._wishes = options
        self.stream_id = fresh_stream_id()
        self.state = State.ADMITTED
        self.write: Callable[[bytes], None] = not_flowing
        self._outlet: Outlet | None = None
        self._reason: CloseReason | None = None
        self._opened_at = time.monotonic()
        self._deadline: Timer | None = None
        self._heartbeat: Timer | None = None
        self._age: Timer | None = None
        self._done: asyncio.Future[CloseReason] = asyncio.get_running_loop().create_future()

    # -- what a subclass adds --------------------------------------------------------------------------

    @property
    def session(self) -> str:
        """What it follows."""
        raise NotImplementedError

    @property
    def epoch_token(self) -> str:
        """The value of ``X-Event-Epoch``."""
        raise NotImplementedError

    @property
    def last_id(self) -> int | str:
        """The id of the last event accepted for it: delivered, or queued and certain to be written."""
        raise NotImplementedError

    def account(self, lag: int) -> Account:
        """Return what came of it, complete once it has stopped; ``lag`` events are queued still."""
        raise NotImplementedError

    def relieve(self) -> None:
        """Give the backlog's memory back."""
        raise NotImplementedError

    @property
    def _followed(self) -> Followed:
        """Whose events it gets."""
        raise NotImplementedError

    @property
    def _origin(self) -> tuple[int | str | None, bytes | None]:
        """The cursor it came with, and without one the block of only the id that it starts at (contract 3.3)."""
        raise NotImplementedError

    def _begin(self, outlet: Outlet) -> None:
        """Begin to catch up, or go live."""
        raise NotImplementedError

    def _count_eviction(self) -> None:
        """Count one for what it follows."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Accept nothing more; what is queued stays queued."""
        raise NotImplementedError

    def _drain(self, outlet: Outlet) -> None:
        """Write what is queued, as far as the transport takes it."""
        raise NotImplementedError

    def _release(self) -> None:
        """Give back the slot and every other place where the instance holds it."""
        raise NotImplementedError

    # -- what is asked about it ------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether it is over; right after admission this means 204: the cursor is at the terminal event."""
        return self.state is State.ENDED

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

    async def wait(self) -> CloseReason:
        """Return the reason once the stream has ended."""
        return await asyncio.shield(self._done)

    # -- its transport ---------------------------------------------------------------------------------

    def attach(self, sink: Sink) -> None:
        """Begin to write: the response headers are on the transport."""
        if self.state is not State.ADMITTED:
            sink.finish(self._reason or CloseReason.INTERNAL)
            return
        hub, wishes, limits, observer = self.hub, self._wishes, self.hub.limits, self.hub.observer
        rules = hub.coalesce if wishes.coalesce and not wishes.cloudevents else None
        backlog = Backlog(wishes.max_queued or limits.max_queued, limits.max_queued_bytes, wishes.overflow, rules)
        retry_ms = round(limits.retry_ms * random.uniform(0.8, 1.2))
        outlet_of = CloudEventsOutlet if wishes.cloudevents else Outlet
        outlet = self._outlet = outlet_of(self._followed, self.stream_id, sink, retry_ms, backlog)
        hub.readers[sink.transport] += 1
        if observer.tracer is not None and wishes.trace is not None:
            observer.tracer.reading(self.stream_id, wishes.trace)
        cursor, anchor = self._origin
        observer.stream_opened(sink.transport, self.session, self.stream_id, cursor, self.client)
        self.state = State.CATCHING_UP
        if wishes.anchor and anchor is not None:
            outlet.send(anchor)
        self._start_clocks()
        if sink.paused:
            self.pause()
        if not self.ended:
            self._begin(outlet)
        if not outlet.begun and outlet.writable and not self.ended:
            outlet.comment(frames.OPENING_COMMENT)

    def pause(self) -> None:
        """Take the transport's word that it is full: nothing is written until :meth:`resume`."""
        if self.state not in (State.ADMITTED, State.WINDING_DOWN, State.ENDED):
            self.hub.paused.add(self)
            self._expect_room()

    def resume(self) -> None:
        """Take the transport's word that it has room: the backlog goes out first, in joined writes."""
        outlet = self._outlet
        if outlet is not None:
            self._has_room()
            self._drain(outlet)

    # -- its clocks ------------------------------------------------------------------------------------

    def _start_clocks(self) -> None:
        hub = self.hub
        if hub.limits.max_stream_age:
            age = hub.limits.max_stream_age * random.uniform(0.9, 1.1)
            self._age = hub.wheel.call_later(age, lambda: self.finish(CloseReason.MAX_AGE))
        self._heartbeat = hub.wheel.call_later(hub.limits.heartbeat, self._beat)

    def _beat(self) -> None:
        self._heartbeat = self.hub.wheel.call_later(self.hub.limits.heartbeat, self._beat)
        if self._outlet is not None and self._outlet.writable:
            self._outlet.sink.heartbeat()

    def _expect_room(self) -> None:
        """The transport is full: it has a while to take something (contract 6.6)."""
        if self._deadline is None:
            self._deadline = self.hub.wheel.call_later(self.hub.limits.write_timeout, self._write_timed_out)

    def _has_room(self) -> None:
        if self.state is not State.WINDING_DOWN and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _write_timed_out(self) -> None:
        self._deadline = None
        self.evict(CloseReason.WRITE_TIMEOUT)

    def _grace_over(self) -> None:
        self._deadline = None
        self.drop(CloseReason.INTERNAL)

    # -- its ends --------------------------------------------------------------------------------------

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
        self._wind_down(reason, outlet)

    def evict(self, reason: CloseReason, event_bytes: int | None = None) -> None:
        """Put the reader out: what was accepted, then ``client_evicted``, then the end, within the grace (6.5)."""
        outlet = self._outlet
        if outlet is None or self.state in (State.WINDING_DOWN, State.ENDED):
            return
        outlet.control(client_evicted(outlet.backlog, reason, self.last_id, event_bytes))
        self._count_eviction()
        self.hub.observer.evicted(self.session, self.stream_id, reason)
        self._wind_down(reason, outlet)

    def give_up(self) -> None:
        """End the stream because of a fault of this program; the client comes back and reads on (contract 3.10)."""
        self.finish(CloseReason.INTERNAL, internal_fault())

    def lost(self) -> None:
        """The connection is gone: free everything at once. It is never a cancel (contract 6.10)."""
        self._end(self._reason or CloseReason.CLIENT_GONE)

    def cancel(self) -> None:
        """Give up before a sink is attached; harmless later."""
        if self._outlet is None:
            self._end(CloseReason.CLIENT_GONE)

    def drop(self, reason: CloseReason) -> None:
        """End the stream now, whatever is still queued."""
        if self._outlet is not None:
            self._outlet.sink.abort()
        self._end(self._reason or reason)

    def _wind_down(self, reason: CloseReason, outlet: Outlet) -> None:
        """Write what is queued, then end; give up after the grace."""
        self._stop()
        outlet.uncount()
        self.state = State.WINDING_DOWN
        self._reason = reason
        if self._deadline is not None:
            self._deadline.cancel()
        hub = self.hub
        self._deadline = hub.wheel.call_later(hub.limits.evict_grace, self._grace_over)
        self._drain(outlet)

    def _wound_down(self, outlet: Outlet) -> None:
        outlet.sink.finish(self._reason or CloseReason.INTERNAL)
        self._end(self._reason or CloseReason.INTERNAL)

    def _end(self, reason: CloseReason) -> None:
        """Free everything; idempotent."""
        if self.state is State.ENDED:
            return
        self._stop()
        self.state, self._reason = State.ENDED, reason
        for timer in (self._deadline, self._heartbeat, self._age):
            if timer is not None:
                timer.cancel()
        self._deadline = self._heartbeat = self._age = None
        outlet, self._outlet, followed = self._outlet, None, self.session
        self.write = not_flowing
        if outlet is not None:
            outlet.uncount()
        self._release()
        if outlet is not None:
            transport, account = outlet.sink.transport, self.account(outlet.backlog.frames)
            outlet.backlog.clear()
            self.hub.readers[transport] -= 1
            self.hub.observer.stream_closed(transport, followed, self.stream_id, reason, self.age, account)
        if not self._done.done():
            self._done.set_result(reason)
