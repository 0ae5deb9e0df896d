"""What the publisher of one session knows: what it sent, and what became of each event. No I/O, no clock.

Events of a session are numbered 1, 2, 3… in the order they are first sent. Each ends in one fate:

- *acknowledged* with an id: every reader must get it exactly once, under that id;
- *unconfirmed*: some try may have been stored; a reader may get it at most once;
- *unstored*: every try was answered "not stored"; no reader may get it;
- *refused* for good: no reader may get it, and it should not have happened.
"""

from __future__ import annotations

from array import array

from ringmere.verify.spread import Spread


class Ledger:
    """The numbered events of one session. Times are seconds of one clock, the caller's."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.sent = 0
        self.acknowledged = 0
        self.duplicates = 0
        """Acknowledged as stored by an earlier try: its answer was lost."""
        self.retries = 0
        self.newest = 0
        """Highest id acknowledged so far."""
        self.backwards = 0
        """Acknowledged with an id not above one that was acknowledged before it was sent."""
        self.unconfirmed: set[int] = set()
        self.unstored: set[int] = set()
        self.refused: dict[int, str] = {}
        self.latency = Spread()
        """From the first try to the acknowledgement."""
        self.ids = array("q")
        """Id by number - 1, 0 when not acknowledged."""
        self.acknowledged_at = array("d")
        self._first_try = array("d")
        self._last_try = array("d")
        self._floor = array("q")

    def send(self, at: float) -> int:
        """Take the next number, for an event whose first try is about to begin."""
        self.sent += 1
        self.ids.append(0)
        self.acknowledged_at.append(0.0)
        self._first_try.append(at)
        self._last_try.append(at)
        self._floor.append(self.newest)
        return self.sent

    def retry(self, number: int, at: float) -> None:
        """Note that another try begins."""
        self.retries += 1
        self._last_try[number - 1] = at

    def acknowledge(self, number: int, public_id: int, at: float, duplicate: bool = False) -> None:
        """Note the id that an event was stored under."""
        self.acknowledged += 1
        self.duplicates += duplicate
        self.backwards += public_id <= self._floor[number - 1]
        self.newest = max(self.newest, public_id)
        self.ids[number - 1] = public_id
        self.acknowledged_at[number - 1] = at
        self.latency.add(at - self._first_try[number - 1])

    def give_up(self, number: int, maybe_stored: bool) -> None:
        """Note that patience ended; ``maybe_stored`` when the fate of a try is unknown."""
        (self.unconfirmed if maybe_stored else self.unstored).add(number)

    def refuse(self, number: int, cause: str) -> None:
        """Note a final refusal."""
        self.refused[number] = cause

    def last_try(self, number: int) -> float:
        """Return when the latest try so far began."""
        return self._last_try[number - 1]
