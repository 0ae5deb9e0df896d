"""Appends: acknowledged, pipelined, bounded, and safe to repeat (contract 2.2 to 2.7).

Three facts about JetStream shape this module. A replicated stream looks for a duplicate key before it
checks an expected sequence, a single one after it; so after a conflict the key is looked up by a
*probe*. A probe is the same message with a rollup header that no stream accepts: a known key is
answered as a duplicate before the header is looked at, an unknown one is refused and stores nothing.
An atomic batch with a duplicate is refused as a whole without naming it; probes find it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
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
from ringmere.core.limits import Limits
from ringmere.log import acks
from ringmere.log.acks import Ack, not_stored, read_ack
from ringmere.log.connect import Connection, NoReply, Reply
from ringmere.log.epochs import Epochs
from ringmere.log.leader import Leader
from ringmere.log.places import Place
from ringmere.log.port import Appended, Row

MSG_ID = "Nats-Msg-Id"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
ROLLUP = "Nats-Rollup"
BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"

PAUSE = 0.01
"""Seconds between two tries while the stream still decides about another publish on the subject."""
PROBES = 64
"""Probes of one batch under way at once."""


class _Flight(NamedTuple):
    position: int
    row: Row
    reply: asyncio.Future[Reply]


class Appender:
    """Stores rows. ``timeout`` is how long one acknowledgement is waited for, in seconds."""

    def __init__(
        self,
        connection: Connection,
        leader: Leader,
        epochs: Epochs,
        size_limit: Callable[[], int],
        *,
        limits: Limits,
        duplicate_window: float,
        timeout: float = 2.0,
    ) -> None:
        self._connection = connection
        self._leader = leader
        self._epochs = epochs
        self._size_limit = size_limit
        self._limits = limits
        self._window = duplicate_window
        self._timeout = timeout
        self._up = asyncio.Event()
        self._up.set()
        self.inflight = 0
        self.inflight_bytes = 0
        connection.on_state(lambda up: self._up.set() if up else self._up.clear())

    async def append(self, place: Place, row: Row, expected: int | None) -> Appended:
        """Store one row; see :meth:`ringmere.log.port.Log.append`."""
        headers = _headers(place, row, expected)
        try:
            return await self._append_once(place, row, headers)
        except NoReply as lost:
            if row.key is None or self._window <= self._timeout:
                raise PublishUnconfirmed(str(lost)) from lost
            return await self._append_again(place, row, headers, lost)

    async def append_many(self, place: Place, rows: Sequence[Row]) -> list[Appended | RingmereError]:
        """Store rows pipelined; a row that found no room waits for the rows before it."""
        results: list[Appended | RingmereError] = [PublishOverloaded("not sent")] * len(rows)
        flights: deque[_Flight] = deque()

        async def land() -> None:
            flight = flights.popleft()
            results[flight.position] = await self._landed(place, flight)

        for index, row in enumerate(rows):
            headers = _headers(place, row, None)
            while True:
                try:
                    flights.append(_Flight(index, row, self._launch(place, row, headers)))
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
        return results

    async def append_atomic(self, place: Place, rows: Sequence[Row], expected: int | None) -> list[Appended]:
        """Store all rows or none, by one atomic batch.

        When every row's key is known already, the batch was stored before and its rows are duplicates. When
        only some are, or a row with a known key has no fellow keys, nothing is stored: ``KeyReused``.
        """
        if len(rows) == 1:
            return [await self.append(place, rows[0], expected)]
        for row in rows:
            self._check_size(row, _headers(place, row, expected))
        first, last = self._launch_batch(place, rows, expected)
        answers = await asyncio.gather(first, last, return_exceptions=True)
        faults = [answer for answer in answers if isinstance(answer, Exception)]
        # The first row's answer is empty when the row was taken.
        said = [answer.payload for answer in answers if isinstance(answer, Reply) and answer.payload]
        read = [read_ack(payload, place.stream) for payload in said]
        refusal = next((ack for ack in read if ack.error is not None), None)
        if refusal is not None:
            return await self._batch_refused(place, rows, refusal)
        if isinstance(answers[1], NoReply):
            return await self._batch_unconfirmed(place, rows, answers[1])
        if faults:
            raise faults[-1]
        ack = read[-1]
        if ack.count != len(rows):
            raise PublishUnconfirmed(f"a batch of {len(rows)} was acknowledged as one of {ack.count}")
        self._epochs.seen(place.shard, ack.seq)
        return [Appended(ack.seq - len(rows) + 1 + index) for index in range(len(rows))]

    # One message on its way.

    def _launch(self, place: Place, row: Row, headers: Mapping[str, str]) -> asyncio.Future[Reply]:
        size = self._check_size(row, headers)
        self._admit(1, size)
        reply = self._connection.start_request(place.subject, row.payload, headers, self._timeout)
        self._count(reply, 1, size)
        return reply

    def _launch_batch(
        self, place: Place, rows: Sequence[Row], expected: int | None
    ) -> tuple[asyncio.Future[Reply], asyncio.Future[Reply]]:
        """Send a whole batch in one turn; the futures are the first row's answer and the commit's."""
        batch = secrets.token_hex(12)
        blocks = []
        for index, row in enumerate(rows):
            headers = _headers(place, row, expected if index == 0 else None)
            headers[BATCH_ID] = batch
            headers[BATCH_SEQUENCE] = str(index + 1)
            blocks.append(headers)
        blocks[-1][BATCH_COMMIT] = "1"
        size = sum(len(row.payload) for row in rows)
        self._admit(len(rows), size)
        request, send = self._connection.start_request, self._connection.send
        first = request(place.subject, rows[0].payload, blocks[0], self._timeout)
        for row, headers in zip(rows[1:-1], blocks[1:-1], strict=True):
            send(place.subject, row.payload, "", headers)
        last = request(place.subject, rows[-1].payload, blocks[-1], self._timeout)
        self._count(last, len(rows), size)
        return first, last

    def _check_size(self, row: Row, headers: Mapping[str, str]) -> int:
        """Return the bytes that a message takes; NATS would end the connection over one that is too large."""
        size = len(row.payload) + 12 + sum(len(name) + len(value) + 4 for name, value in headers.items())
        limit = self._size_limit()
        if len(row.payload) > limit or size > self._connection.max_payload:
            raise EventTooLarge(len(row.payload), limit)
        return size

    def _admit(self, count: int, size: int) -> None:
        limits = self._limits
        if self.inflight + count > limits.publish_inflight or (
            self.inflight and self.inflight_bytes + size > limits.publish_inflight_bytes
        ):
            raise PublishOverloaded(f"{self.inflight} publishes are waiting for the log already")

    def _count(self, reply: asyncio.Future[Reply], count: int, size: int) -> None:
        """Hold room until the answer is there, or nobody waits for it any more."""
        self.inflight += count
        self.inflight_bytes += size

        def release(done: asyncio.Future[Reply]) -> None:
            self.inflight -= count
            self.inflight_bytes -= size
            if not done.cancelled():
                done.exception()

        reply.add_done_callback(release)

    # What an answer means.

    async def _append_once(self, place: Place, row: Row, headers: Mapping[str, str]) -> Appended:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while True:
            ack = read_ack((await self._launch(place, row, headers)).payload, place.stream)
            if ack.fault != acks.WRONG_LAST_IN_PROCESS or loop.time() >= deadline:
                return await self._settle(place, row, ack)
            await asyncio.sleep(PAUSE)

    async def _append_again(self, place: Place, row: Row, headers: Mapping[str, str], lost: NoReply) -> Appended:
        """Send once more, with its key, what may have been stored: that settles its fate."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._up.wait()
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
                return await self._probe(place, row) or unconfirmed
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
            known = await self._probe(place, row)
            if known is not None:
                return known
        if conflict:
            raise await self._wrong_last(place, ack)
        if ack.fault == acks.TOO_LARGE:
            raise EventTooLarge(len(row.payload), self._size_limit())
        raise not_stored(ack)

    async def _wrong_last(self, place: Place, ack: Ack) -> WrongLastEventId:
        current = ack.current
        if current is None:
            last = await self._leader.last(place.stream, place.subject)
            current = last.stored.seq if last is not None else 0
        return WrongLastEventId(self._epochs.table(place.shard).id_of(current) if current else 0)

    async def _check_body(self, place: Place, row: Row, seq: int) -> None:
        """Raise ``KeyReused`` when the first message of the key says something else (contract 2.3)."""
        try:
            first = await self._leader.at(place.stream, seq)
        except LogUnavailable as error:
            raise PublishUnconfirmed(f"the key is known, but not what it stands for: {error}") from error
        if first is not None and (first.subject != place.subject or first.stored.payload != row.payload):
            raise KeyReused("the key was used for another event")

    async def _probe(self, place: Place, row: Row) -> Appended | None:
        """Return the first answer to the row's key, None when the stream does not know it. Stores nothing."""
        headers = {MSG_ID: f"{place.session}/{row.key}", ROLLUP: "probe"}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while True:
            reply = await self._connection.request(place.subject, row.payload, headers, self._timeout)
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

    # What an answer means for a batch.

    async def _batch_refused(self, place: Place, rows: Sequence[Row], ack: Ack) -> list[Appended]:
        if ack.fault in (acks.BATCH_HOLDS_DUPLICATE, acks.KEY_IN_PROCESS):
            return await self._batch_known(place, rows)
        if ack.fault in (acks.WRONG_LAST, acks.WRONG_LAST_IN_PROCESS):
            raise await self._wrong_last(place, ack)
        if ack.fault == acks.TOO_LARGE:
            raise EventTooLarge(max(len(row.payload) for row in rows), self._size_limit())
        raise not_stored(ack)

    async def _batch_unconfirmed(self, place: Place, rows: Sequence[Row], lost: NoReply) -> list[Appended]:
        if any(row.key is None for row in rows):
            raise PublishUnconfirmed(str(lost)) from lost
        try:
            async with asyncio.timeout(self._timeout):
                await self._up.wait()
            return await self._batch_known(place, rows)
        except (LogUnavailable, KeyReused, TimeoutError) as error:
            raise PublishUnconfirmed(str(lost)) from error

    async def _batch_known(self, place: Place, rows: Sequence[Row]) -> list[Appended]:
        """Return the rows' first answers when the stream knows the keys of all of them."""
        room = asyncio.Semaphore(PROBES)

        async def probe(row: Row) -> Appended | None:
            async with room:
                return await self._probe(place, row) if row.key is not None else None

        known = await asyncio.gather(*(probe(row) for row in rows))
        found = [answer for answer in known if answer is not None]
        if len(found) != len(rows) or len({answer.seq for answer in found}) != len(rows):
            raise KeyReused("a key of this batch was used before, for another request")
        return found


def _headers(place: Place, row: Row, expected: int | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    if row.key is not None:
        headers[MSG_ID] = f"{place.session}/{row.key}"
    if expected is not None:
        headers[EXPECTED] = str(expected)
    return headers
