"""The bounded queue of one reader, as a literal table (contract 6.1 to 6.6).

What is in it was accepted for a reader whose transport cannot take it now. It never waits and never
drops silently: an offer is accepted, accepted with a warning due, or refused with the reason of the
eviction.
"""

from __future__ import annotations

import enum
from collections import deque

import msgspec

from ringmere.core.reasons import CloseReason


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One encoded frame: its event's ``seq``, SSE bytes, and envelope size in bytes.

    A control frame has neither ``seq`` nor ``size``; an event that was not stored has no ``seq`` (contract 8.2).

    Windows hold many of these for long; the garbage collector need not look at what cannot form a cycle.
    """

    seq: int
    sse: bytes
    size: int


class State(enum.Enum):
    """Where a reader stands: OK, warned once in this episode, or out."""

    OK = "ok"
    WARNED = "warned"
    EVICTED = "evicted"


class Level(enum.Enum):
    """What an accepted offer did to the fill level."""

    LOW = "low"
    """at or below 0.375 of both caps"""
    MIDDLE = "middle"
    HIGH = "high"
    """at or above 0.75 of a cap"""


TRANSITIONS: dict[tuple[State, Level], tuple[State, bool]] = {
    # (state, level after the accept) -> (next state, warn now)
    (State.OK, Level.LOW): (State.OK, False),
    (State.OK, Level.MIDDLE): (State.OK, False),
    (State.OK, Level.HIGH): (State.WARNED, True),
    (State.WARNED, Level.LOW): (State.OK, False),
    (State.WARNED, Level.MIDDLE): (State.WARNED, False),
    (State.WARNED, Level.HIGH): (State.WARNED, False),
}
"""The re-arm comes before the warning, so LOW never warns: with both caps ≥ 16 no level is LOW and HIGH at once."""


class Backlog:
    """The frames accepted for one reader and not yet handed to its transport.

    ``max_frames`` and ``max_bytes`` are the caps of contract 6.2. Control frames pass through
    :meth:`push_control`: they keep their place in the order and count for neither cap.
    """

    THRESHOLDS = ("frames", "bytes", "frames_and_bytes")
    """What :meth:`threshold` can name."""

    __slots__ = ("bytes", "evicted", "frames", "last_seq", "max_bytes", "max_frames", "queue", "state")

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        self.max_frames = max_frames
        self.max_bytes = max_bytes
        self.queue: deque[Frame] = deque()
        self.frames = 0
        self.bytes = 0
        self.last_seq = 0
        self.state = State.OK
        self.evicted: CloseReason | None = None

    def offer(self, frame: Frame) -> CloseReason | bool:
        """Offer one event. Return the reason of an eviction, or whether a warning is due right behind it.

        The order of the questions is contract 6.3's. After an eviction nothing is accepted any more: every
        later offer gets the same reason.
        """
        if self.evicted is not None:
            return self.evicted
        if self.frames >= self.max_frames:
            return self._evict(CloseReason.QUEUE_OVERFLOW)
        if self.frames and self.bytes + frame.size > self.max_bytes:
            return self._evict(CloseReason.QUEUE_BYTES_OVERFLOW)
        self.queue.append(frame)
        self.frames += 1
        self.bytes += frame.size
        self.last_seq = frame.seq or self.last_seq
        self.state, warn = TRANSITIONS[self.state, self.level()]
        return warn

    def _evict(self, reason: CloseReason) -> CloseReason:
        self.state = State.EVICTED
        self.evicted = reason
        return reason

    def level(self) -> Level:
        """Return the fill level. Compared as 8·n against 3·cap and 6·cap, so there is no rounding."""
        if 8 * self.frames <= 3 * self.max_frames and 8 * self.bytes <= 3 * self.max_bytes:
            return Level.LOW
        return Level.HIGH if self.threshold() else Level.MIDDLE

    def threshold(self) -> str | None:
        """Name the cap whose 75 % is reached: ``frames``, ``bytes``, ``frames_and_bytes``, or None."""
        frames = 4 * self.frames >= 3 * self.max_frames
        size = 4 * self.bytes >= 3 * self.max_bytes
        if frames and size:
            return "frames_and_bytes"
        return "frames" if frames else "bytes" if size else None

    def push_control(self, sse: bytes) -> None:
        """Queue a control frame at this place of the order; it counts for neither cap."""
        self.queue.append(Frame(0, sse, 0))

    def take(self, limit: int) -> bytes:
        """Remove frames from the front until about ``limit`` bytes are joined, at least one; return them joined."""
        parts: list[bytes] = []
        taken = 0
        while self.queue and taken < limit:
            frame = self.queue.popleft()
            parts.append(frame.sse)
            taken += len(frame.sse)
            if frame.size:
                self.frames -= 1
                self.bytes -= frame.size
        return b"".join(parts)

    def clear(self) -> None:
        """Forget all frames (the reader is gone)."""
        self.queue.clear()
        self.frames = self.bytes = 0
