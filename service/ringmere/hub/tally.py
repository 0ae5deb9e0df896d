"""What one turn of the loop delivered, over all sessions: told to the observer once for each transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ringmere.hub.observer import Observer


class Sum:
    """Events and bytes, and the oldest of the newest events' timestamps (ns since 1970)."""

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


class Tally:
    """Adds up what is delivered until the turn of the loop is over; ``clock`` is in ns since 1970."""

    __slots__ = ("_clock", "_observer", "_sums")

    def __init__(self, observer: Observer, clock: Callable[[], int]) -> None:
        self._observer = observer
        self._clock = clock
        self._sums: dict[str, Sum] = {}

    def add(self, transport: str, events: int, size: int, newest_ns: int) -> None:
        """Count what a session's turn has written to the readers of one transport."""
        if not self._sums:
            asyncio.get_running_loop().call_soon(self._tell)
        total = self._sums.get(transport)
        if total is None:
            total = self._sums[transport] = Sum()
        total.add(events, size, newest_ns)

    def _tell(self) -> None:
        sums, self._sums = self._sums, {}
        for transport, total in sums.items():
            lag = (self._clock() - total.oldest_ns) / 1e9 if total.oldest_ns else None
            self._observer.delivered(transport, total.events, total.size, lag)
