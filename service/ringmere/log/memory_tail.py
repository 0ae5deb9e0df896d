"""The live tail of a log in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ringmere.core.trace import TraceContext
from ringmere.log.port import LiveSink, Stored, TraceSink


class Live(NamedTuple):
    """A stored message on its way to an instance; ``previous`` is the sequence before it on the session's subject."""

    session: str
    previous: int
    message: Stored
    trace: TraceContext | None


class MemoryTail:
    """A live subscription of a :class:`~ringmere.log.memory.MemoryLog`; ``leave`` is called when it is closed."""

    def __init__(self, sink: LiveSink, traces: TraceSink | None, leave: Callable[[MemoryTail], None]) -> None:
        self._sink = sink
        self._traces = traces
        self._leave = leave
        self._open = True

    def close(self) -> None:
        """End it; what is already on its way is not delivered."""
        self._open = False
        self._leave(self)

    def deliver(self, live: Live) -> None:
        """Hand one message to the sink, unless closed meanwhile."""
        if not self._open:
            return
        message, trace = live.message, live.trace
        self._sink(message.seq, live.previous, message.time_ns, message.payload)
        if self._traces is not None and trace is not None and trace.sampled:
            self._traces(message.seq, message.time_ns, trace)
