"""The bounded queue of one reader, as a literal table (contract 6.1 to 6.8).

What is in it was accepted for a reader whose transport cannot take it now. It never waits and never
drops silently: an offer is accepted, accepted with a warning due, or refused with the reason. For most
readers that is the end; one that asked for it reads on from the log instead.
"""

from __future__ import annotations

import enum
from collections import deque

import msgspec

from ringmere.core.coalesce import Parts, Rules, Run
from ringmere.core.reasons import CloseReason


class Overflow(enum.Enum):
    """What a reader asked for when its backlog is full: to be evicted, or to read on from the log (contract 6.7)."""

    EVICT = "evict"
    CATCHUP = "catchup"


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One encoded frame: its event's ``seq``, SSE bytes, and envelope size in bytes.

    A control frame has neither ``seq`` nor ``size``; an event that was not stored has no ``seq`` (contract 8.2).
    A verdict in a backlog has no ``size``; its ``seq`` is the position behind which the stream goes on.

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
    :meth:`push_control`: they keep their place in the order and count for neither cap. With ``rules`` an event
    is made one with the newest in the queue where they allow it, before the caps are asked (contract 6.8).
    """

    THRESHOLDS = ("frames", "bytes", "frames_and_bytes")
    """What :meth:`threshold` can name."""

    __slots__ = (
        "_rules",
        "_run",
        "bytes",
        "evicted",
        "frames",
        "handed",
        "handed_event",
        "last_seq",
        "max_bytes",
        "max_frames",
        "merged",
        "overflow",
        "queue",
        "state",
    )

    def __init__(
        self, max_frames: int, max_bytes: int, overflow: Overflow = Overflow.EVICT, rules: Rules | None = None
    ) -> None:
        self.max_frames = max_frames
        self.max_bytes = max_bytes
        self.overflow = overflow
        self.queue: deque[Frame] = deque()
        """Its newest event may still be without what was merged into it; :meth:`take` has it whole."""
        self.frames = 0
        self.bytes = 0
        self.last_seq = 0
        """How far all that was accepted leads: to its newest event, or to where a verdict behind that one goes on."""
        self.handed = 0
        """How far what was taken out leads, or what :meth:`begin` said."""
        self.handed_event = 0
        """The newest event that was taken out since :meth:`begin`, 0 before the first."""
        self.merged = 0
        """Events that have become part of the one before them."""
        self.state = State.OK
        self.evicted: CloseReason | None = None
        self._rules = rules or None
        self._run: Run | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is queued that moves the reader on: no event, no verdict."""
        return not self.frames and not any(frame.seq for frame in self.queue)

    def begin(self, seq: int) -> None:
        """Start to queue behind ``seq``, the newest event that went another way; only while it is :attr:`idle`."""
        self.last_seq = self.handed = seq
        self.handed_event = 0

    def offer(self, frame: Frame) -> CloseReason | bool:
        """Offer one event. Return why there is no room for it, or whether a warning is due right behind it.

        The order of the questions is contract 6.3's. A reader that is evicted for it gets nothing any more:
        every later offer has the same answer.
        """
        if self.evicted is not None:
            return self.evicted
        parts = self._rules.take_apart(frame.sse, frame.size) if self._rules is not None and frame.seq else None
        if parts is None or not self._merge(parts):
            if self.frames >= self.max_frames:
                return self._refuse(CloseReason.QUEUE_OVERFLOW)
            if self.frames and self.bytes + frame.size > self.max_bytes:
                return self._refuse(CloseReason.QUEUE_BYTES_OVERFLOW)
            self._close_run()
            self.queue.append(frame)
            self._run = Run(parts, frame.size) if parts is not None else None
            self.frames += 1
            self.bytes += frame.size
        self.last_seq = frame.seq or self.last_seq
        self.state, warn = TRANSITIONS[self.state, self.level()]
        return warn

    def _refuse(self, reason: CloseReason) -> CloseReason:
        if self.overflow is Overflow.EVICT:
            self.state = State.EVICTED
            self.evicted = reason
        return reason

    def _merge(self, parts: Parts) -> bool:
        """Make an event part of the queue's newest one, unless they differ or the byte cap would not hold it."""
        run = self._run
        if run is None or not run.takes(parts):
            return False
        more = run.size_with(parts) - run.size
        if self.bytes + more > self.max_bytes:
            return False
        run.add(parts)
        self.bytes += more
        self.merged += 1
        return True

    def _close_run(self) -> None:
        """Put the newest event into the queue as what has become of it; nothing is merged into it any more."""
        run, self._run = self._run, None
        if run is not None and run.events > 1:
            self.queue[-1] = Frame(self.last_seq, run.sse(), run.size)

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
        self._close_run()
        self.queue.append(Frame(0, sse, 0))

    def push_verdict(self, sse: bytes, position: int) -> None:
        """Queue a verdict behind which the stream goes on at ``position``.

        A verdict behind which no event was accepted is taken back for it: the newer one says all of it.
        """
        self.drop_trailing_verdict()
        self._close_run()
        self.queue.append(Frame(position, sse, 0))
        self.last_seq = position

    def take(self, limit: int) -> bytes:
        """Remove frames from the front until about ``limit`` bytes are joined, at least one; return them joined."""
        parts: list[bytes] = []
        taken = 0
        while self.queue and taken < limit:
            if len(self.queue) == 1:
                self._close_run()
            frame = self.queue.popleft()
            parts.append(frame.sse)
            taken += len(frame.sse)
            if frame.size:
                self.frames -= 1
                self.bytes -= frame.size
                self.handed_event = frame.seq or self.handed_event
            self.handed = frame.seq or self.handed
        return b"".join(parts)

    def drop_events(self) -> int:
        """Forget the events, to be read again behind :attr:`handed`; return how many. Control frames stay.

        Verdicts go too: whoever reads again meets their gaps again. What was not stored is lost.
        """
        dropped = self.frames
        self._run = None
        self.queue = deque([frame for frame in self.queue if not frame.size and not frame.seq])
        self.frames = self.bytes = 0
        self.last_seq = self.handed
        return dropped

    def drop_trailing_verdict(self) -> None:
        """Forget a verdict behind which no event was accepted: whoever reads on from the log meets its gap."""
        for index in range(len(self.queue) - 1, -1, -1):
            frame = self.queue[index]
            if frame.size:
                return
            if frame.seq:
                del self.queue[index]
                self.last_seq = next((other.seq for other in reversed(self.queue) if other.seq), self.handed)
                return

    def clear(self) -> None:
        """Forget all frames (the reader is gone)."""
        self._run = None
        self.queue.clear()
        self.frames = self.bytes = 0
