"""Whether an acknowledged sequence still means what it did when its message was sent (contract 1.1, 1.2).

An acknowledgement names a sequence, not an epoch. A stream that is made anew under running publishers counts
from 1 again before any instance has added its row: with the table of before, two events would get one id.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringmere.core.errors import PublishUnconfirmed, RingmereError
from ringmere.log.epochs import Epochs
from ringmere.log.port import Appended


class Numbering:
    """Make one when a publish is sent; it knows the table and the highest sequence of that moment."""

    def __init__(self, epochs: Epochs, shard: int) -> None:
        self._epochs = epochs
        self._shard = shard
        self._table = epochs.table(shard)
        self._floor = epochs.newest_seen(shard)

    async def checked(self, results: Sequence[Appended | RingmereError]) -> list[Appended | RingmereError]:
        """Return the results with ``PublishUnconfirmed`` in place of those whose id cannot be told.

        The leader is asked only when a sequence is not above all that were seen before. Behind it a new
        message is surely of the log that the table tells of now; of any other whose id has changed nobody
        knows whether it was stored before or after the log began again. Its key settles that.
        """
        low = any(isinstance(result, Appended) and result.seq <= self._floor for result in results)
        trouble: RingmereError | None = None
        if low:
            try:
                await self._epochs.check(self._shard)
            except RingmereError as error:
                trouble = error
        return [self._sure(result, trouble) for result in results]

    def _sure(self, result: Appended | RingmereError, trouble: RingmereError | None) -> Appended | RingmereError:
        if isinstance(result, RingmereError):
            return result
        low = result.seq <= self._floor
        if low and trouble is not None:
            return PublishUnconfirmed(f"stored, but not known under which id: {trouble}")
        now = self._epochs.table(self._shard)
        new = low and not result.duplicate
        if not new and now.id_of(result.seq) != self._table.id_of(result.seq):
            return PublishUnconfirmed("the log began again while the event was on its way")
        return result
