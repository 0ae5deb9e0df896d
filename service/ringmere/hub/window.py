"""The newest events of a live session in memory, so that most resumes never touch the log."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator

from ringmere.core.backlog import Frame
from ringmere.core.frames import chunked
from ringmere.hub.segment import Segment

SEAL_EVENTS = 64
SEAL_BYTES = 64 * 1024


class Budget:
    """What all windows of an instance hold together, in frame bytes."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class Window:
    """All events of one session with a sequence above :attr:`floor`, bounded in bytes, in events and in age.

    Frames are collected open and sealed to a joined :class:`Segment` by the dozen; they are never kept in
    both forms. ``max_events`` is the ring size: what the log has evicted is not served from memory either.
    """

    __slots__ = (
        "_budget",
        "_floor",
        "_open",
        "_open_bytes",
        "_open_ns",
        "_open_start",
        "_segments",
        "events",
        "max_bytes",
        "max_events",
        "size",
    )

    def __init__(self, floor: int, max_bytes: int, max_events: int, budget: Budget | None = None) -> None:
        self.max_bytes = max_bytes
        self.max_events = max_events
        self._budget = budget or Budget()
        self._segments: deque[Segment] = deque()
        self.size = 0
        self.reset(floor)

    def reset(self, floor: int) -> None:
        """Forget everything; hold what comes after ``floor``."""
        self._budget.used -= self.size
        self._floor = floor
        self._segments.clear()
        self._open: list[Frame] = []
        self._open_bytes = 0
        self._open_start = floor
        self._open_ns = 0
        self.size = 0
        self.events = 0

    def add(self, frames: Iterable[Frame], time_ns: int) -> None:
        """Take the next events, the first of which has the log's timestamp ``time_ns``; the oldest go past a bound."""
        if not self._open:
            self._open_ns = time_ns
        added = 0
        for frame in frames:
            self._open.append(frame)
            added += len(frame.sse)
            self.events += 1
        self._open_bytes += added
        self.size += added
        self._budget.used += added
        if len(self._open) >= SEAL_EVENTS or self._open_bytes >= SEAL_BYTES:
            self._seal()
        if self.size > self.max_bytes:
            self.shrink(self.max_bytes)
        while self._segments and self.events - len(self._segments[0]) >= self.max_events:
            self._drop_oldest()

    def extend_back(self, segment: Segment) -> None:
        """Put a segment read from the log in front, if it joins on and the bounds allow it."""
        if not segment.start < self._floor <= segment.last:
            return
        if segment.last > self._floor:
            # A new window begins with the session's last event, which the page has too.
            segment = segment.until(self._floor)
        if self.size + segment.size <= self.max_bytes and self.events + len(segment) <= self.max_events:
            self._segments.appendleft(segment)
            self._floor = segment.start
            self.size += segment.size
            self._budget.used += segment.size
            self.events += len(segment)

    def shrink(self, max_bytes: int) -> None:
        """Drop the oldest events until at most ``max_bytes`` remain, or only the newest event."""
        if self._open_bytes > max_bytes:
            self._seal()
        while self.size > max_bytes and (len(self._segments) > 1 or (self._segments and self._open)):
            self._drop_oldest()
        if self.size > max_bytes:
            self.keep_newest()

    def expire(self, before_ns: int) -> None:
        """Drop the events that the log has expired: whatever is not younger than ``before_ns``."""
        while self._segments and self._segments[0].oldest_ns <= before_ns:
            self._drop_oldest()
        if self._open and not self._segments and self._open_ns <= before_ns:
            self._seal()
            self._drop_oldest()

    def keep_newest(self) -> None:
        """Drop all but the newest event: the last word of a closed session stays, whatever the bounds say."""
        if self.events <= 1:
            return
        last = self.last_event
        time_ns = self._open_ns if self._open else self._segments[-1].oldest_ns
        raw = b"".join(self.since(last - 1, False)[0])
        self.reset(last - 1)
        self.add([Frame(last, raw, 0)], time_ns)

    @property
    def floor(self) -> int:
        """Readers at or above this sequence can be served from here, gapless."""
        surplus = self.events - self.max_events
        if surplus <= 0:
            return self._floor
        if self._segments:
            return self._segments[0].seqs[surplus - 1]
        return self._open[surplus - 1].seq

    def holds(self, seq: int) -> bool:
        """Say whether an event with exactly this sequence is in the window."""
        if seq <= self.floor:
            return False
        if self._open and seq >= self._open[0].seq:
            return any(frame.seq == seq for frame in self._open)
        for segment in self._segments:
            if segment.start < seq <= segment.last:
                index = bisect_left(segment.seqs, seq)
                return index < len(segment.seqs) and segment.seqs[index] == seq
        return False

    def first_after(self, position: int) -> int:
        """Return the first event's sequence above ``position``, 0 when there is none."""
        for segment in self._segments:
            if found := segment.first_after(position):
                return found
        return next((frame.seq for frame in self._open if frame.seq > position), 0)

    def due(self, position: int) -> tuple[int, int]:
        """Return how many events above ``position`` are here, and a timestamp (ns) that none of them is older than.

        It is that of the oldest of up to 64 events that were sealed together; 0 when nothing is due.
        """
        count = oldest_ns = 0
        for segment in self._segments:
            if segment.last > position and (events := segment.due(position)):
                oldest_ns = oldest_ns or segment.oldest_ns
                count += events
        rest = sum(1 for frame in self._open if frame.seq > position)
        return count + rest, oldest_ns or (self._open_ns if rest else 0)

    @property
    def last_event(self) -> int:
        """The newest event's sequence, 0 when the window is empty."""
        if self._open:
            return self._open[-1].seq
        return self._segments[-1].seqs[-1] if self._segments and len(self._segments[-1]) else 0

    def since(self, position: int, framed: bool) -> tuple[list[bytes], int]:
        """Return blobs with everything after ``position`` (≥ :attr:`floor`) and the number of events in them."""
        blobs: list[bytes] = []
        count = 0
        for segment in self._segments:
            if segment.last > position:
                blob, due = segment.after(position, framed)
                if due:
                    blobs.append(blob)
                    count += due
        rest = [frame.sse for frame in self._open if frame.seq > position]
        if rest:
            raw = b"".join(rest)
            blobs.append(chunked(raw) if framed else raw)
        return blobs, count + len(rest)

    def frames_after(self, position: int) -> Iterator[Frame]:
        """Return the events behind ``position`` (≥ :attr:`floor`) one by one, for readers that cannot share blobs."""
        for segment in self._segments:
            if segment.last > position:
                yield from segment.frames_after(position)
        yield from (frame for frame in self._open if frame.seq > position)

    def _seal(self) -> None:
        last = self._open[-1].seq
        self._segments.append(Segment(self._open_start, last, self._open, self._open_ns))
        self._open = []
        self._open_bytes = 0
        self._open_start = last

    def _drop_oldest(self) -> None:
        segment = self._segments.popleft()
        self._floor = segment.last
        self.size -= segment.size
        self._budget.used -= segment.size
        self.events -= len(segment)
