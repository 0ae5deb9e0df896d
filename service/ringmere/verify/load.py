"""What a load run is, and the sums that it keeps. Pure.

Where a trial remembers each event, breaks things and judges, a load run only counts and measures, so that it is
light enough for high rates.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ringmere.core.errors import InvalidParameter
from ringmere.core.limits import MAX_BATCH
from ringmere.verify.spread import Spread

LOAD_TYPE = "bench"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """One run. Times in seconds, ``rate`` in events per second over all sessions (0: as many as go)."""

    sessions: int = 1
    readers: int = 10
    rate: float = 100.0
    duration: float = 10.0
    size: int = 200
    """Bytes of an event's data, about."""
    batch: int = 1
    """Events of one request."""
    in_flight: int = 16
    """Requests under way at once."""
    prefix: str = "bench"
    heartbeat: float = 15.0
    try_timeout: float = 10.0
    settle: float = 30.0
    """How long readers have, after the last event, to get everything."""

    def __post_init__(self) -> None:
        """Refuse what cannot be published. Raises ``InvalidParameter``."""
        if not 1 <= self.batch <= MAX_BATCH:
            raise InvalidParameter("invalid_batch", f"a batch has 1 to {MAX_BATCH} events")

    def session(self, index: int) -> str:
        """Return the id of the session at ``index`` from 0."""
        return f"{self.prefix}-{index}"

    def padding(self) -> str:
        """Return the text that fills each event up to about ``size`` bytes of data."""
        return ("ringmere " * (self.size // 9 + 1))[: self.size]


@dataclass
class Sent:
    """What publishing came to; times are monotonic."""

    acknowledged: Counter[str] = field(default_factory=Counter)
    """Events by session."""
    errors: Counter[str] = field(default_factory=Counter)
    """Events that were not acknowledged, by code."""
    latency: Spread = field(default_factory=Spread)
    """Of requests."""
    behind: float = 0.0
    """The longest time that an event left later than its rate asked for."""
    until: float = 0.0
    """When the last acknowledgement came."""


@dataclass
class Heard:
    """What one reader of a session got."""

    session: str
    events: int = 0
    bytes: int = 0
    """Of the stream, frames and heartbeats included."""
    latency: Spread = field(default_factory=Spread)
    """From the publisher's request to the event's arrival here."""
    disordered: int = 0
    """Events whose id was not above the one before: twice, or out of order."""
    frames: Counter[str] = field(default_factory=Counter)
    """Control frames by type."""
    errors: Counter[str] = field(default_factory=Counter)
    """Kinds of stream errors."""
    connections: int = 0
    until: float = 0.0
    """When the last event came."""
    broken: str = ""
    """Why the reader gave up."""
