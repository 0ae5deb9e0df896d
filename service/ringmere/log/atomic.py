"""Atomic batches: all rows or none (contract 2.2).

The server checks the keys of a batch before its expectation, on single and replicated streams alike, and
refuses a batch with any known key as a whole, without naming it. Which keys are known is found out by
probes. What the server does not offer is a batch of which some rows are duplicates and the others new:
that is refused as a reused key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ringmere.core.errors import EventTooLarge, KeyReused, LogUnavailable, PublishUnconfirmed, RingmereError
from ringmere.log import acks
from ringmere.log.acks import Ack, not_stored, read_ack
from ringmere.log.append import Appender
from ringmere.log.connect import NoReply, Reply
from ringmere.log.epochs import Epochs
from ringmere.log.numbering import Numbering
from ringmere.log.outbox import Outbox
from ringmere.log.places import Place
from ringmere.log.port import Appended, Row

PROBES = 64
"""Probes of one batch under way at once."""


class AtomicAppender:
    """Stores batches of two rows and more; a single row is an ordinary append."""

    def __init__(self, outbox: Outbox, single: Appender, epochs: Epochs) -> None:
        self._outbox = outbox
        self._single = single
        self._epochs = epochs

    async def append(self, place: Place, rows: Sequence[Row], expected: int | None) -> list[Appended]:
        """Store all rows or none.

        When every row's key is known already, the batch was stored before and its rows are duplicates. When
        only some are, or a row with a known key has fellows without one, nothing is stored: ``KeyReused``.
        """
        if len(rows) == 1:
            return [await self._single.append(place, rows[0], expected)]
        numbering = Numbering(self._epochs, place.shard)
        sure: list[Appended] = []
        for result in await numbering.checked(await self._append(place, rows, expected)):
            if isinstance(result, RingmereError):
                raise result
            sure.append(result)
        return sure

    async def _append(self, place: Place, rows: Sequence[Row], expected: int | None) -> list[Appended]:
        first, last = self._outbox.launch_batch(place, rows, expected)
        answers = await asyncio.gather(first, last, return_exceptions=True)
        # The first row's answer is empty when the row was taken.
        said = [answer.payload for answer in answers if isinstance(answer, Reply) and answer.payload]
        acknowledged = [read_ack(payload, place.stream) for payload in said]
        refusal = next((ack for ack in acknowledged if ack.error is not None), None)
        if refusal is not None:
            return await self._refused(place, rows, refusal)
        commit = answers[1]
        if isinstance(commit, NoReply):
            return await self._unconfirmed(place, rows, commit)
        if isinstance(commit, BaseException):
            raise commit
        if not acknowledged or acknowledged[-1].count != len(rows):
            raise PublishUnconfirmed(f"a batch of {len(rows)} was acknowledged as something else")
        seq = acknowledged[-1].seq
        self._epochs.seen(place.shard, seq)
        return [Appended(seq - len(rows) + 1 + index) for index in range(len(rows))]

    async def _refused(self, place: Place, rows: Sequence[Row], ack: Ack) -> list[Appended]:
        if ack.fault in (acks.BATCH_HOLDS_DUPLICATE, acks.KEY_IN_PROCESS):
            return await self._known(place, rows)
        if ack.fault in (acks.WRONG_LAST, acks.WRONG_LAST_IN_PROCESS):
            raise await self._single.wrong_last(place, ack)
        if ack.fault == acks.TOO_LARGE:
            raise EventTooLarge(max(len(row.payload) for row in rows), self._outbox.size_limit())
        raise not_stored(ack)

    async def _unconfirmed(self, place: Place, rows: Sequence[Row], lost: NoReply) -> list[Appended]:
        """Settle the fate of a batch by the keys of its rows, if they have any."""
        if any(row.key is None for row in rows):
            raise PublishUnconfirmed(str(lost)) from lost
        try:
            await self._outbox.connected()
            return await self._known(place, rows)
        except (LogUnavailable, KeyReused, TimeoutError) as error:
            raise PublishUnconfirmed(str(lost)) from error

    async def _known(self, place: Place, rows: Sequence[Row]) -> list[Appended]:
        """Return the rows' first answers when the stream knows the keys of all of them."""
        room = asyncio.Semaphore(PROBES)

        async def probe(row: Row) -> Appended | None:
            async with room:
                return await self._single.probe(place, row) if row.key is not None else None

        known = await asyncio.gather(*(probe(row) for row in rows))
        found = [answer for answer in known if answer is not None]
        if len(found) != len(rows) or len({answer.seq for answer in found}) != len(rows):
            raise KeyReused("a key of this batch was used before, for another request")
        return found
