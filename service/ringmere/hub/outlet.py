"""The writing end of one reader: its sink, its first block, and the backlog of a sink that is full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ringmere.core import frames
from ringmere.core.backlog import Backlog, Frame
from ringmere.hub.lagging import Taken, take_turn
from ringmere.hub.notices import slow_client_warning
from ringmere.hub.sink import Sink

if TYPE_CHECKING:
    from ringmere.hub.hub import Hub

DRAIN_BYTES = 256 * 1024
"""What a resumed transport is handed at once from a backlog."""


class Followed(Protocol):
    """What an outlet asks of whose events it writes: a channel, or a stream of many sessions."""

    @property
    def hub(self) -> Hub:
        """The hub, for its sums and its observer."""

    @property
    def session(self) -> str:
        """What is followed, for the observer."""

    def id_of(self, seq: int) -> int | str:
        """Return the public form of a sequence that stands in the backlog."""


class Outlet:
    """What goes to one sink, in order. The first block of a stream carries ``retry:`` (contract 3.7).

    What its backlog holds counts in the instance's sum until :meth:`uncount`.
    """

    __slots__ = ("_behind", "_channel", "_counted", "_retry_ms", "backlog", "framed", "sink", "stream_id", "write")

    def __init__(self, channel: Followed, stream_id: str, sink: Sink, retry_ms: int, backlog: Backlog) -> None:
        self._channel = channel
        self.stream_id = stream_id
        self._counted = True
        self._behind = 0
        self.sink = sink
        self.framed = sink.framed
        self.write: Callable[[bytes], None] = sink.write
        """Write bytes that are framed as the sink expects; only for a :attr:`flowing` outlet."""
        self._retry_ms: int | None = retry_ms
        self.backlog = backlog

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
        self._put(raw)

    def _put(self, raw: bytes) -> None:
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

    def verdict(self, raw: bytes, before: int, last_id: int, position: int) -> None:
        """Send a verdict behind what is queued; the stream then goes on at ``position``. See :meth:`fill`."""
        if self.writable:
            self.send(raw)
        else:
            self._queue_behind(before, last_id)
            self.backlog.push_verdict(raw, position)

    def _queue_behind(self, before: int, last_id: int) -> None:
        if self.backlog.idle:
            self.backlog.begin(before)
            self._behind = last_id

    @property
    def handed_id(self) -> int:
        """The id of the last event that reader was given and that is not queued any more."""
        found = self._channel.id_of(self.backlog.handed_event)
        return found if isinstance(found, int) and found else self._behind

    def fill(self, turn: Sequence[Frame], before: int, last_id: int) -> Taken:
        """Queue a turn that the transport does not take now, as far as there is room (contract 6.3, 6.4).

        ``before`` and ``last_id`` are the newest sequence that the reader has, and its last event, if nothing
        is queued.
        """
        backlog, hub = self.backlog, self._channel.hub
        self._queue_behind(before, last_id)
        taken = take_turn(backlog, turn, self._warn)
        hub.backlog_bytes += taken.size
        if taken.merged:
            hub.observer.coalesced(self._channel.session, taken.merged)
        return taken

    def _warn(self) -> None:
        backlog, channel = self.backlog, self._channel
        threshold = backlog.threshold() or "frames"
        backlog.push_control(slow_client_warning(backlog, channel.id_of(backlog.last_seq), threshold))
        channel.hub.observer.warned(channel.session, self.stream_id, threshold)

    def drain(self) -> None:
        """Write from the backlog while the sink takes it."""
        backlog, hub = self.backlog, self._channel.hub
        frames_before, bytes_before = backlog.frames, backlog.bytes
        while backlog.queue and not self.sink.paused:
            self._put(backlog.take(DRAIN_BYTES))
        events, size = frames_before - backlog.frames, bytes_before - backlog.bytes
        if events:
            if self._counted:
                hub.backlog_bytes -= size
            hub.observer.delivered(self.sink.transport, events, size, None)

    def forget(self) -> int:
        """Drop the queued events, to be read again from the log; return how many."""
        self._channel.hub.backlog_bytes -= self.backlog.bytes
        return self.backlog.drop_events()

    def uncount(self) -> None:
        """Take the backlog out of the instance's sum: it only shrinks from here on, and is gone after the grace."""
        if self._counted:
            self._counted = False
            self._channel.hub.backlog_bytes -= self.backlog.bytes
