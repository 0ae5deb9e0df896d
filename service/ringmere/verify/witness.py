"""What one reader has seen: events, frames, silences. It judges order by itself; no I/O, no clock.

A verdict (``state_resync_required``) tells a loss: what is missing in the range it names is *told*, not lost.
After ``epoch_reset`` the whole ring is replayed, so what came before may come *again*, in order.
"""

from __future__ import annotations

from array import array
from collections import Counter

from ringmere.verify.ledger import Ledger
from ringmere.verify.spread import Spread

EPOCH_RESET = "epoch_reset"


class Witness:
    """The reader ``name`` of the ledger's session. Times are seconds of the ledger's clock."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger = ledger
        self.name = name
        self.delivered = 0
        """Events that came for the first time."""
        self.duplicated = 0
        self.again = 0
        """Events that came once more in a replay after ``epoch_reset``: allowed."""
        self.out_of_order = 0
        self.unknown = 0
        """Events with a number that was never sent."""
        self.altered = 0
        """Events whose content, or one of whose two ids, is not what was sent."""
        self.frames: Counter[str] = Counter()
        """Control frames by type."""
        self.errors: Counter[str] = Counter()
        """``stream_error`` frames by kind."""
        self.resyncs: Counter[str] = Counter()
        """Verdicts by reason."""
        self.connections = 0
        self.drops = 0
        """Connections that the reader ended by itself."""
        self.broken = ""
        """Why the reader had to stop before its end."""
        self.silence = 0.0
        """Longest time without a byte, across connections."""
        self.delay = Spread()
        """From the latest try to publish an event to its arrival here."""
        self.newest = 0
        self.exhibits: list[str] = []
        self.ids = array("q")
        """Id by number - 1, 0 when it has not come."""
        self._heard_at: float | None = None
        self._gaps: list[tuple[int, int]] = []
        self._gap_from: int | None = None
        self._reset_at: float | None = None
        self._again_until = 0

    def heard(self, at: float) -> None:
        """Note that bytes came, of any kind."""
        if self._heard_at is not None:
            self.silence = max(self.silence, at - self._heard_at)
        self._heard_at = at

    def deliver(self, number: int, public_id: int, at: float) -> None:
        """Note an event."""
        if not 0 < number <= self.ledger.sent:
            self.unknown += 1
            self._exhibit(f"got event {number} (id {public_id}), which was never sent")
            return
        if self._gap_from is not None:
            self._gaps.append((self._gap_from, public_id))
            self._gap_from = None
        self.ids.extend([0] * (self.ledger.sent - len(self.ids)))
        if self.ids[number - 1]:
            self._repeated(number, public_id)
        else:
            self.delivered += 1
            self.ids[number - 1] = public_id
            self.delay.add(at - self.ledger.last_try(number))
            if public_id <= self.newest:
                self.out_of_order += 1
                self._exhibit(f"got event {number} (id {public_id}) after id {self.newest}")
        self.newest = max(self.newest, public_id)

    def _repeated(self, number: int, public_id: int) -> None:
        if self.newest < public_id <= self._again_until:
            self.again += 1
            return
        self.duplicated += 1
        self._exhibit(f"got event {number} twice (ids {self.ids[number - 1]} and {public_id})")

    def alter(self, public_id: int) -> None:
        """Note an event whose content is not what was sent."""
        self.altered += 1
        self._exhibit(f"got an altered event (id {public_id})")

    def resync(self, reason: str, earliest: int | None, at: float) -> None:
        """Note a verdict. ``earliest`` is the id it says is the first that is left."""
        self.resyncs[reason] += 1
        if reason == EPOCH_RESET:
            self._reset_at = at
            self._again_until = max(self._again_until, self.newest)
            self.newest = 0
        elif earliest is None:
            self._gap_from = self.newest
        else:
            self._gaps.append((self.newest, earliest))

    def was_told(self, number: int) -> bool:
        """Say whether a verdict covers the loss of an acknowledged event."""
        public_id = self.ledger.ids[number - 1]
        if self._reset_at is not None and self.ledger.acknowledged_at[number - 1] <= self._reset_at:
            return True
        if self._gap_from is not None and public_id > self._gap_from:
            return True
        return any(low < public_id < high for low, high in self._gaps)

    def _exhibit(self, text: str) -> None:
        if len(self.exhibits) < EXHIBITS:
            self.exhibits.append(f"{self.name} {text}")


EXHIBITS = 5
"""What one reader remembers of its complaints."""
