"""The breaker between publishers and a log that does not store, as a literal table (contract 8.2).

::

             TRIPPED                     DUE
    CLOSED ───────────► OPEN ◄──────────────────► PROBING
      │  ▲                ▲      PROBE_FAILED         │
      │  └────────────────│───────────────────────────┘ PROBE_STORED
      │ WARNED            │ PROBE_FAILED, TRIPPED
      └──► SUSPECTED ─────┘
             (PROBE_STORED leads back to CLOSED)

Publishes pass while it is CLOSED or SUSPECTED. There is one for each shard and instance; it counts what
this instance has seen. The word of another instance is a reason to look, never a proof.
"""

from __future__ import annotations

import enum
import math

WARNING_REST = 5.0
"""Seconds for which an own proof that the log stores answers the warnings of other instances."""


class State(enum.Enum):
    """What publishers meet; the value is a metric label."""

    CLOSED = "closed"
    SUSPECTED = "suspected"
    """Another instance could not store: publishes still pass, a probe is under way."""
    OPEN = "open"
    PROBING = "probing"
    """Open, with a probe under way."""


class Signal(enum.Enum):
    """What a breaker is told, or finds out by counting."""

    STORED = enum.auto()
    """A publish was stored and acknowledged."""
    FAILED = enum.auto()
    """A publish failed by the log's fault; there were not enough of them yet."""
    TRIPPED = enum.auto()
    """A publish failed by the log's fault, and it was the last one of the row that opens."""
    WARNED = enum.auto()
    """Another instance says that it cannot store."""
    DUE = enum.auto()
    """The pause after opening, or after a failed probe, is over."""
    PROBE_STORED = enum.auto()
    PROBE_FAILED = enum.auto()


TRANSITIONS: dict[tuple[State, Signal], State] = {
    (State.CLOSED, Signal.STORED): State.CLOSED,
    (State.CLOSED, Signal.FAILED): State.CLOSED,
    (State.CLOSED, Signal.TRIPPED): State.OPEN,
    (State.CLOSED, Signal.WARNED): State.SUSPECTED,
    (State.CLOSED, Signal.DUE): State.CLOSED,
    (State.CLOSED, Signal.PROBE_STORED): State.CLOSED,
    (State.CLOSED, Signal.PROBE_FAILED): State.CLOSED,
    (State.SUSPECTED, Signal.STORED): State.SUSPECTED,
    (State.SUSPECTED, Signal.FAILED): State.SUSPECTED,
    (State.SUSPECTED, Signal.TRIPPED): State.OPEN,
    (State.SUSPECTED, Signal.WARNED): State.SUSPECTED,
    (State.SUSPECTED, Signal.DUE): State.SUSPECTED,
    (State.SUSPECTED, Signal.PROBE_STORED): State.CLOSED,
    (State.SUSPECTED, Signal.PROBE_FAILED): State.OPEN,
    (State.OPEN, Signal.STORED): State.OPEN,
    (State.OPEN, Signal.FAILED): State.OPEN,
    (State.OPEN, Signal.TRIPPED): State.OPEN,
    (State.OPEN, Signal.WARNED): State.OPEN,
    (State.OPEN, Signal.DUE): State.PROBING,
    (State.OPEN, Signal.PROBE_STORED): State.CLOSED,
    (State.OPEN, Signal.PROBE_FAILED): State.OPEN,
    (State.PROBING, Signal.STORED): State.PROBING,
    (State.PROBING, Signal.FAILED): State.PROBING,
    (State.PROBING, Signal.TRIPPED): State.PROBING,
    (State.PROBING, Signal.WARNED): State.PROBING,
    (State.PROBING, Signal.DUE): State.PROBING,
    (State.PROBING, Signal.PROBE_STORED): State.CLOSED,
    (State.PROBING, Signal.PROBE_FAILED): State.OPEN,
}
"""Complete: what comes late (a publish that was under way when it opened) changes nothing."""


class Breaker:
    """Counts failures in a row and knows whether publishes pass. Times are seconds of any steady clock.

    ``failures`` in a row open it; a failure more than ``window`` after the one before begins a new row.
    """

    __slots__ = ("_failed_at", "_failures", "_proved_at", "_window", "row", "state")

    def __init__(self, failures: int, window: float) -> None:
        self.state = State.CLOSED
        self.row = 0
        """Failures in a row so far."""
        self._failures = failures
        self._window = window
        self._failed_at = -math.inf
        self._proved_at = -math.inf

    @property
    def open(self) -> bool:
        """Whether publishes are refused."""
        return self.state in (State.OPEN, State.PROBING)

    def stored(self, now: float) -> None:
        """Take note of a publish that was stored: the row of failures ends."""
        self._proved_at = now
        self.row = 0
        self._take(Signal.STORED)

    def failed(self, now: float) -> bool:
        """Take note of a publish that the log did not store or confirm; return whether this opened the breaker."""
        self.row = 1 if now - self._failed_at > self._window else self.row + 1
        self._failed_at = now
        return self._take(Signal.TRIPPED if self.row >= self._failures else Signal.FAILED)

    def warned(self, now: float) -> bool:
        """Take the word of another instance; return whether a probe is due because of it."""
        if self.state is not State.CLOSED or now - self._proved_at < WARNING_REST:
            return False
        self._take(Signal.WARNED)
        return True

    def due(self) -> bool:
        """Say that the pause is over; return whether a probe is to be made now."""
        self._take(Signal.DUE)
        return self.state is State.PROBING

    def probed(self, stored: bool, now: float) -> bool:
        """Take the result of a probe; return whether it opened or closed the breaker."""
        if stored:
            self._proved_at = now
            self.row = 0
        return self._take(Signal.PROBE_STORED if stored else Signal.PROBE_FAILED)

    def _take(self, signal: Signal) -> bool:
        was_open = self.open
        self.state = TRANSITIONS[self.state, signal]
        return self.open is not was_open
