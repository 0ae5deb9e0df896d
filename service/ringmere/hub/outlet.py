"""The writing end of one reader: its sink, its first block, and the backlog of a sink that is full."""

from __future__ import annotations

from collections.abc import Callable

from ringmere.core import frames
from ringmere.core.backlog import Backlog
from ringmere.hub.sink import Sink

DRAIN_BYTES = 256 * 1024
"""What a resumed transport is handed at once from a backlog."""


class Outlet:
    """What goes to one sink, in order. The first block of a stream carries ``retry:`` (contract 3.7)."""

    __slots__ = ("_retry_ms", "backlog", "framed", "sink", "write")

    def __init__(self, sink: Sink, retry_ms: int, max_frames: int, max_bytes: int) -> None:
        self.sink = sink
        self.framed = sink.framed
        self.write: Callable[[bytes], None] = sink.write
        """Write bytes that are framed as the sink expects; only for a :attr:`flowing` outlet."""
        self._retry_ms: int | None = retry_ms
        self.backlog = Backlog(max_frames, max_bytes)

    @property
    def begun(self) -> bool:
        """Whether the first block has been handed over."""
        return self._retry_ms is None

    @property
    def writable(self) -> bool:
        """Whether what is sent now goes straight to the transport, in order."""
        return not self.sink.paused and not self.backlog.queue

    @property
    def flowing(self) -> bool:
        """Whether shared blobs may be written as they are: begun, nothing queued, not paused."""
        return self._retry_ms is None and self.writable

    def share(self, framed: bytes) -> None:
        """Write a chunk-framed blob that other readers get too; ``retry:`` goes ahead of its first block."""
        if self._retry_ms is not None:
            self.write(frames.chunked(b"retry: %d\n" % self._retry_ms))
            self._retry_ms = None
        self.write(framed)

    def send(self, raw: bytes) -> None:
        """Write unframed frames."""
        if self._retry_ms is not None:
            raw = frames.with_retry(self._retry_ms, raw)
            self._retry_ms = None
        self.comment(raw)

    def comment(self, raw: bytes) -> None:
        """Write unframed bytes that are no block of their own."""
        self.write(frames.chunked(raw) if self.framed else raw)

    def control(self, raw: bytes) -> None:
        """Send a control frame, behind what is queued."""
        if self.writable:
            self.send(raw)
        else:
            self.backlog.push_control(raw)

    def drain(self) -> tuple[int, int]:
        """Write from the backlog while the sink takes it; return the events and envelope bytes that left it."""
        backlog = self.backlog
        events = size = 0
        while backlog.queue and not self.sink.paused:
            frames_before, bytes_before = backlog.frames, backlog.bytes
            raw = backlog.take(DRAIN_BYTES)
            events += frames_before - backlog.frames
            size += bytes_before - backlog.bytes
            self.send(raw)
        return events, size
