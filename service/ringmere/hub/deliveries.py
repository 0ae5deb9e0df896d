"""Events whose messages carry a sampled trace, from their arrival to their fan-out: once per event, not per reader.

Only a hub with a tracer has this. The fan-out does not know of it: its turn is scheduled before the look that
follows the same message, so that what was handed out shows in how far the channel has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ringmere.core.limits import MAX_TRACED
from ringmere.core.trace import TraceContext
from ringmere.hub.tracer import Tracer
from ringmere.log.port import TraceSink

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel

LOOK_AGAIN = 0.05
"""Seconds between looks at events that are parked until a hole is filled, or the turn is over."""


class _Traced(NamedTuple):
    channel: Channel
    seq: int
    time_ns: int
    trace: TraceContext


class Deliveries:
    """Tells ``tracer`` of traced events when they have been handed out. ``clock`` gives nanoseconds since 1970."""

    def __init__(self, tracer: Tracer, clock: Callable[[], int]) -> None:
        self._tracer = tracer
        self._clock = clock
        self._waiting: list[_Traced] = []
        self._looking = False

    def sink(self, channel: Channel) -> TraceSink:
        """Return what takes the trace contexts of a channel's live messages."""

        def take(seq: int, time_ns: int, trace: TraceContext) -> None:
            if len(self._waiting) < MAX_TRACED:
                self._waiting.append(_Traced(channel, seq, time_ns, trace))
                self._look_soon()

        return take

    def _look_soon(self) -> None:
        if not self._looking and self._waiting:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        waiting, self._waiting = self._waiting, []
        now = self._clock()
        for traced in waiting:
            channel = traced.channel
            readers = len(channel.readers) + len(channel.attached.live)
            if channel.ended or not readers:
                continue
            if traced.seq > channel.flushed:
                self._waiting.append(traced)
                continue
            event_id, seconds = channel.id_of(traced.seq), (now - traced.time_ns) / 1e9
            self._tracer.handed_out(channel.session, event_id, traced.trace, readers, seconds)
        if self._waiting:
            asyncio.get_running_loop().call_later(LOOK_AGAIN, self._look_soon)
