"""Encoded events in a row, joined once and shared by every reader that is sent them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ringmere.core.backlog import Frame
from ringmere.core.frames import chunked, envelope_size


class Segment:
    """The frames of all events with ``start < sequence ≤ last``, as one chunk-framed blob.

    ``last`` may lie beyond the last frame: messages that are no events take a sequence and have no frame.
    Only the chunk-framed form is kept; the unframed one is cut out of it.
    """

    __slots__ = ("_blob", "_ends", "_head", "last", "oldest_ns", "seqs", "size", "start")

    def __init__(self, start: int, last: int, frames: Sequence[Frame], oldest_ns: int) -> None:
        self.oldest_ns = oldest_ns
        """The log's timestamp of the oldest of its messages: none is served when the log has expired it."""
        self.start = start
        self.last = last
        self.seqs = array("Q", [frame.seq for frame in frames])
        self._ends = array("Q")
        end = 0
        for frame in frames:
            end += len(frame.sse)
            self._ends.append(end)
        self.size = end
        self._blob = chunked(b"".join([frame.sse for frame in frames])) if frames else b""
        self._head = len(b"%x\r\n" % end)

    def __len__(self) -> int:
        return len(self.seqs)

    def until(self, last: int) -> Segment:
        """Return the part of it up to ``last``, as a segment of its own."""
        index = bisect_right(self.seqs, last)
        part = Segment(self.start, last, (), self.oldest_ns)
        part.seqs, part._ends = self.seqs[:index], self._ends[:index]
        part.size = part._ends[-1] if index else 0
        part._blob = chunked(self._blob[self._head : self._head + part.size]) if index else b""
        part._head = len(b"%x\r\n" % part.size)
        return part

    def first_after(self, position: int) -> int:
        """Return the first event's sequence above ``position``, 0 when there is none."""
        index = bisect_right(self.seqs, position)
        return self.seqs[index] if index < len(self.seqs) else 0

    def due(self, position: int) -> int:
        """Return how many events have a sequence above ``position``."""
        return len(self.seqs) - bisect_right(self.seqs, position)

    def after(self, position: int, framed: bool) -> tuple[bytes, int]:
        """Return what a reader at ``position`` is due, ready to write, and how many events it is."""
        index = bisect_right(self.seqs, position)
        due = len(self.seqs) - index
        if due == 0:
            return b"", 0
        if index == 0 and framed:
            return self._blob, due
        begin = self._head + (self._ends[index - 1] if index else 0)
        raw = self._blob[begin : self._head + self.size]
        return (chunked(raw) if framed else raw), due

    def frames_after(self, position: int) -> Iterator[Frame]:
        """Cut out the events behind ``position`` again, one by one."""
        for index in range(bisect_right(self.seqs, position), len(self.seqs)):
            begin = self._ends[index - 1] if index else 0
            sse = self._blob[self._head + begin : self._head + self._ends[index]]
            yield Frame(self.seqs[index], sse, envelope_size(sse))
