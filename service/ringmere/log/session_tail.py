"""One session's part of a consumer tail: what came last, and so what precedes the next message.

The reasoning is in :mod:`ringmere.log.consumer_tail`.
"""

from __future__ import annotations

from collections.abc import Callable

from ringmere.log.port import LiveSink, TraceSink
from ringmere.log.traces import sampled_trace


class SessionTail:
    """A live subscription of one session; silent until it is told where it begins."""

    __slots__ = ("_breaks", "_floor", "_last", "_leave", "_live", "_sink", "_traces", "subject")

    def __init__(
        self,
        subject: bytes,
        sink: LiveSink,
        traces: TraceSink | None,
        breaks: int,
        leave: Callable[[SessionTail], None],
    ) -> None:
        self.subject = subject
        self._traces = traces
        self._sink = sink
        self._last = 0
        self._floor = 0
        self._breaks = breaks
        self._leave = leave
        self._live = False

    def begin(self, last: int) -> None:
        """Take the session's last sequence as the leader has it; only what comes behind it is delivered."""
        self._floor = last
        self._last = max(self._last, last)
        self._live = True

    def take(self, seq: int, time_ns: int, payload: bytes, block: bytes, breaks: int) -> None:
        """Take one message of the session; ``breaks`` is how often the shard's chain broke so far."""
        if seq <= self._floor:
            return
        previous = self._last if breaks == self._breaks else seq - 1
        self._last = seq
        self._breaks = breaks
        if self._live:
            self._sink(seq, previous, time_ns, payload)
            if self._traces is not None and (trace := sampled_trace(block)) is not None:
                self._traces(seq, time_ns, trace)

    def forget(self) -> None:
        """The log is another one: no sequence of before says anything."""
        self._floor = 0

    def close(self) -> None:
        """End it; the sink is not called any more after this returns."""
        self._live = False
        self._leave(self)
