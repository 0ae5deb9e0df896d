"""What one round of verify does: how many, how fast, how long, and what is too much."""

from __future__ import annotations

from dataclasses import dataclass

from ringmere.core.errors import InvalidParameter
from ringmere.core.limits import MIB

EVENT_TYPE = "verify"
END_TYPE = "session_closed"
"""The last event of each session: it closes the session, so its readers end and nothing stays open behind."""
MAX_SIZE = 8 * MIB
SILENT_HEARTBEATS = 3
"""Heartbeat intervals without a byte after which a reader takes its connection for dead."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One round. Times in seconds, ``rate`` in events per second over all sessions, ``size`` in bytes."""

    sessions: int = 10
    readers: int = 40
    rate: float = 200.0
    duration: float = 60.0
    size: int = 200
    drop_every: float = 5.0
    """Mean time after which a reader drops its connection by itself; 0 is never."""
    max_silence: float = 10.0
    """Longest time without a byte that a reader may see."""
    heartbeat: float = 15.0
    """The gateways' interval of heartbeats."""
    seed: int = 0
    prefix: str = "verify"
    """What all session ids begin with."""
    allow_resync: bool = False
    """Whether a loss that readers were told of is acceptable."""
    try_timeout: float = 5.0
    """Deadline of one publish and of one connect."""
    patience: float = 30.0
    """How long one event is tried; far below the log's duplicate window."""
    settle: float = 30.0
    """How long readers have, after the last event, to get everything."""

    def __post_init__(self) -> None:
        """Refuse a round that could not tell anything. Raises ``InvalidParameter``."""
        if self.readers < self.sessions:
            raise InvalidParameter("too_few_readers", f"{self.sessions} sessions need as many readers at least")
        if self.quiet >= self.max_silence:
            raise InvalidParameter(
                "max_silence",
                f"streams may be quiet for {self.quiet:g} s in good order (an event every "
                f"{self.sessions / self.rate:g} s, a heartbeat every {self.heartbeat:g} s): "
                "raise --max-silence or --rate, or lower --sessions",
            )

    @property
    def session_rate(self) -> float:
        """Events per second of one session."""
        return self.rate / self.sessions

    @property
    def quiet(self) -> float:
        """The longest silence of a stream that is in order."""
        return min(self.heartbeat, 1 / self.session_rate)

    def session(self, index: int) -> str:
        """Return the id of the session at ``index`` from 0."""
        return f"{self.prefix}-{index}"

    def padding(self) -> str:
        """Return the text that fills each event up to about ``size`` bytes of data."""
        return ("ringmere " * (self.size // 9 + 1))[: self.size]
