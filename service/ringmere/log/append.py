"""Appends: acknowledged, pipelined, and safe to repeat (contract 2.2 to 2.7). Batches: see ``atomic.py``.

A replicated stream looks for a duplicate key before it checks an expected sequence, a single one after
it. So after a conflict the key is looked up by a *probe*: the same message with a rollup header that no
stream accepts. A known key is answered as a duplicate before that header is looked at, an unknown one is
refused and stores nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ringmere.core.errors import (
    EventTooLarge,
    KeyReused,
    LogUnavailable,
    PublishOverloaded,
    PublishUnconfirmed,
    RingmereError,
    WrongLastEventId,
)
from ringmere.log import acks
from ringmere.log.acks import Ack, not_stored, read_ack
from ringmere.log.connect import NoReply, Reply
from ringmere.log.epochs import Epochs
from ringmere.log.leader import Leader
from ringmere.log.numbering import Numbering
from ringmere.log.outbox import MSG_ID, Outbox, headers_of
from ringmere.log.places import Place
from ringmere.log.port import Appended, Row

ROLLUP = "Nats-Rollup"
PAUSE = 0.01
"""Seconds between two tries while the stream still decides about another publish on the subject."""


class _Flight(NamedTuple):
    position: int
    row: Row
    reply: asyncio.Future[Reply]


class Appender:
    """Stores rows and says what became of them. ``duplicate_window`` is the stream's, in seconds."""

    def __init__(self, outbox: Outbox, leader: Leader, epochs: Epochs, duplicate_window: float) -> None:
        self._outbox = outbox
        self._leader = leader
        self._epochs = epochs
        self._window = duplicate_window

    async def append(self, place: Place, row: Row, expected: int | None) -> Appended:
        """Store one row; see :meth:`ringmere.log.port.Log.append`."""
        numbering = Numbering(self._epochs, place.shard)
        headers = headers_of(place, row, expected)
        try:
            result = await self._append_once(place, row, headers)
        except NoReply as lost:
            if row.key is None or self._window <= self._outbox.timeout:
                raise PublishUnconfirmed(str(lost)) from lost
            result = await self._append_again(place, row, headers, lost)
        [sure] = await numbering.checked([result])
        if isinstance(sure, RingmereError):
            raise sure
        return sure

    async def append_many(self, place: Place, rows: Sequence[Row]) -> list[Appended | RingmereError]:
        """Store rows pipelined; a row that found no room waits for the rows before it."""
        results: list[Appended | RingmereError] = [PublishOverloaded("not sent")] * len(rows)
        flights: deque[_Flight] = deque()
        numbering = Numbering(self._epochs, place.shard)

        async def land() -> None:
            flight = flights.popleft()
            results[flight.position] = await self._landed(place, flight)

        for index, row in enumerate(rows):
            headers = headers_of(place, row, None)
            while True:
                try:
                    flights.append(_Flight(index, row, self._outbox.launch(place, row, headers)))
                except PublishOverloaded as error:
                    if flights:
                        await land()
                        continue
                    results[index] = error
                except RingmereError as error:
                    results[index] = error
                break
        while flights:
            await land()
        return await numbering.checked(results)

    async def probe(self, place: Place, row: Row) -> Appended | None:
        """Return the first answer to the row's key, None when the stream does not know it. Stores nothing.

        Raises ``KeyReused`` when the key stands for another event.
        """
        headers = {MSG_ID: f"{place.session}/{row.key}", ROLLUP: "probe"}
        connection, timeout = self._outbox.connection, self._outbox.timeout
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            reply = await connection.request(place.subject, row.payload, headers, timeout)
            ack = read_ack(reply.payload, place.stream)
            if ack.fault != acks.KEY_IN_PROCESS or loop.time() >= deadline:
                break
            await asyncio.sleep(PAUSE)
        if ack.error is None:
            await self._check_body(place, row, ack.seq)
            return Appended(ack.seq, ack.duplicate)
        if ack.fault == acks.ROLLUP_REFUSED:
            return None
        raise not_stored(ack)

    async def wrong_last(self, place: Place, ack: Ack) -> WrongLastEventId:
        """Return the error of a conflict, with the session's last id."""
        current = ack.current
        if current is None:
            last = await self._leader.last(place.stream, place.subject)
            current = last.stored.seq if last is not None else 0
        return WrongLastEventId(self._epochs.table(place.shard).id_of(current) if current else 0)

    async def _append_once(self, place: Place, row: Row, headers: Mapping[str, str]) -> Appended:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._outbox.timeout
        while True:
            reply = await self._outbox.launch(place, row, headers)
            ack = read_ack(reply.payload, place.stream)
            if ack.fault != acks.WRONG_LAST_IN_PROCESS or loop.time() >= deadline:
                return await self._settle(place, row, ack)
            await asyncio.sleep(PAUSE)

    async def _append_again(self, place: Place, row: Row, headers: Mapping[str, str], lost: NoReply) -> Appended:
        """Send once more, with its key, what may have been stored: that settles its fate."""
        try:
            await self._outbox.connected()
            return await self._append_once(place, row, headers)
        except (LogUnavailable, PublishOverloaded, TimeoutError) as error:
            raise PublishUnconfirmed(str(lost)) from error

    async def _landed(self, place: Place, flight: _Flight) -> Appended | RingmereError:
        """Return the result of a pipelined row. It is never sent twice: that could put it behind its successors."""
        row = flight.row
        try:
            return await self._settle(place, row, read_ack((await flight.reply).payload, place.stream))
        except NoReply as lost:
            unconfirmed = PublishUnconfirmed(str(lost))
            if row.key is None:
                return unconfirmed
            try:
                return await self.probe(place, row) or unconfirmed
            except KeyReused as error:
                return error
            except RingmereError:
                return unconfirmed
        except RingmereError as error:
            return error

    async def _settle(self, place: Place, row: Row, ack: Ack) -> Appended:
        """Return what an acknowledgement says, or raise what a refusal means."""
        if ack.error is None:
            if ack.duplicate:
                await self._check_body(place, row, ack.seq)
            self._epochs.seen(place.shard, ack.seq)
            return Appended(ack.seq, ack.duplicate)
        conflict = ack.fault in (acks.WRONG_LAST, acks.WRONG_LAST_IN_PROCESS)
        if row.key is not None and (conflict or ack.fault == acks.KEY_IN_PROCESS):
            known = await self.probe(place, row)
            if known is not None:
                return known
        if conflict:
            raise await self.wrong_last(place, ack)
        if ack.fault == acks.TOO_LARGE:
            raise EventTooLarge(len(row.payload), self._outbox.size_limit())
        raise not_stored(ack)

    async def _check_body(self, place: Place, row: Row, seq: int) -> None:
        """Raise ``KeyReused`` when the first message of the key says something else (contract 2.3)."""
        try:
            first = await self._leader.at(place.stream, seq)
        except LogUnavailable as error:
            raise PublishUnconfirmed(f"the key is known, but not what it stands for: {error}") from error
        if first is not None and (first.subject != place.subject or first.stored.payload != row.payload):
            raise KeyReused("the key was used for another event")
