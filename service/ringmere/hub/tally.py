"""What one turn of the loop delivered, over all sessions: told to the observer once."""

from __future__ import annotations


class Tally:
    """Adds up events and bytes, and keeps the oldest of the newest events' timestamps (ns since 1970)."""

    __slots__ = ("events", "oldest_ns", "size")

    def __init__(self) -> None:
        self.events = 0
        self.size = 0
        self.oldest_ns = 0

    def add(self, events: int, size: int, time_ns: int) -> None:
        """Count one session's turn; ``time_ns`` 0 is of what the log has no time for."""
        self.events += events
        self.size += size
        if time_ns and (not self.oldest_ns or time_ns < self.oldest_ns):
            self.oldest_ns = time_ns
