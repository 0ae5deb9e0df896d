"""One reader: follows a session over several gateways, drops now and then, resumes where it was.

It keeps the rules of resumption that any good client keeps (cursor, epoch token, ``retry:`` and hints as
floors, jitter), but hands nothing over and decodes only what the judge wants to know, so that hundreds fit
in one process.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

import aiohttp
import msgspec

from ringmere.client.backoff import Backoff, Waits
from ringmere.client.connect import Connection, NotNow, Options, Position, connect
from ringmere.client.errors import BrokenStream, ClientError
from ringmere.client.items import ENDING, RESYNC, Control, item_of, resync_of, retry_hint
from ringmere.core.decoder import Message
from ringmere.core.errors import FrameTooLong
from ringmere.verify.plan import END_TYPE, EVENT_TYPE, SILENT_HEARTBEATS, Plan
from ringmere.verify.witness import Witness

ERROR = "stream_error"
LINGER = 1.0
"""Seconds that a reader stays after the session's last event, for what should not come any more."""
BACKOFF = Backoff(widest=2.0)
"""The waits do not grow as other clients' do: a long silence must be the gateways', not the reader's own patience."""


class _Data(msgspec.Struct):
    n: int
    pad: str


class _Envelope(msgspec.Struct):
    id: int
    data: _Data


_decode = msgspec.json.Decoder(_Envelope).decode


class Reader:
    """Follows the witness's session at ``addresses`` in turn, beginning with the one at ``first``.

    ``ready`` is set when the first stream has begun, or when there will be none: from then on nothing may be
    missed. ``calm`` ends the drops. About half of all readers begin live, the others with the whole ring.
    """

    def __init__(
        self,
        plan: Plan,
        witness: Witness,
        addresses: Sequence[str],
        first: int,
        http: aiohttp.ClientSession,
        roll: random.Random,
        calm: asyncio.Event,
    ) -> None:
        self.ready = asyncio.Event()
        self._plan = plan
        self._witness = witness
        self._http = http
        self._roll = roll
        self._calm = calm
        self._turn = first
        self._doors = [
            Options(
                f"{address.rstrip('/')}/session/{witness.ledger.session}/events",
                heartbeat=plan.heartbeat,
                connect_timeout=plan.try_timeout,
            )
            for address in addresses
        ]
        self._position = Position(None, from_start=roll.random() < 0.5)
        self._padding = plan.padding()
        self._waits = Waits(BACKOFF, roll.random)
        self._ended_at: float | None = None
        self._heard_at = 0.0
        self._drop_at = 0.0

    async def run(self) -> None:
        """Follow until the session's last event has come. What makes going on useless is told to the witness."""
        try:
            while await self._one_connection():
                continue
        except (ClientError, FrameTooLong) as error:
            self._witness.broken = str(error)
        finally:
            self.ready.set()

    async def _one_connection(self) -> bool:
        """Open a stream, read it to its end, wait as long as one should; return whether to go on."""
        connection = await self._open()
        if connection is None:
            return False
        self._witness.connections += 1
        self._heard(connection.opened_at)
        self._drop_at = self._next_drop()
        try:
            dropped = await self._read(connection)
        finally:
            connection.response.close()
        self._keep_place(connection)
        if self._ended_at is not None:
            return False
        if dropped:
            self._witness.drops += 1
        else:
            await asyncio.sleep(self._waits.next())
        return True

    async def _open(self) -> Connection | None:
        """Try the gateways in turn until one opens the stream; None when the session is closed (204).

        A gateway that is not there does not keep anybody from asking the next one at once; only a whole
        round without success, or a gateway that asks for it, makes the reader wait.
        """
        tried = 0
        while True:
            door = self._doors[self._turn % len(self._doors)]
            self._turn += 1
            try:
                connection = await connect(self._http, door, self._position)
            except NotNow as error:
                tried += 1
                self._waits.ask_once(error.floor)
                if error.floor or tried % len(self._doors) == 0:
                    await asyncio.sleep(self._waits.next())
            else:
                return connection

    def _keep_place(self, connection: Connection) -> None:
        """Set where to resume. Who has seen nothing of the whole ring resumes at 0, so that a loss is told."""
        cursor = self._position.cursor
        if cursor is None and self._position.from_start and self.ready.is_set():
            cursor = 0
        self._position = Position(cursor, connection.epoch, cursor is None and self._position.from_start)

    def _next_drop(self) -> float:
        if not self._plan.drop_every:
            return float("inf")
        return time.monotonic() + self._plan.drop_every * self._roll.uniform(0.2, 1.8)

    async def _read(self, connection: Connection) -> bool:
        """Read until the stream ends, falls silent, or the reader drops it (True)."""
        while True:
            now = time.monotonic()
            if self._ended_at is not None and now >= self._ended_at + LINGER:
                return False
            if now >= self._drop_at and not self._calm.is_set():
                return True
            try:
                chunk = await connection.read(self._patience(now))
            except TimeoutError:
                if time.monotonic() - self._heard_at >= SILENT_HEARTBEATS * self._plan.heartbeat:
                    return False
                continue
            except (aiohttp.ClientError, OSError):
                return False
            if not chunk:
                return False
            self._take(connection, chunk)

    def _patience(self, now: float) -> float:
        """Return how long to wait for bytes before there is something else to look at."""
        until = self._heard_at + SILENT_HEARTBEATS * self._plan.heartbeat
        if not self._calm.is_set():
            until = min(until, self._drop_at)
        if self._ended_at is not None:
            until = min(until, self._ended_at + LINGER)
        return max(0.001, until - now)

    def _heard(self, at: float) -> None:
        self._heard_at = at
        self._witness.heard(at)

    def _take(self, connection: Connection, chunk: bytes) -> None:
        now = time.monotonic()
        self._heard(now)
        messages = connection.decoder.feed(chunk)
        if not self.ready.is_set() and not any(message.type == ERROR for message in messages):
            self._begin(connection)
        for message in messages:
            if message.type in _NUMBERED:
                self._event(message, now)
            else:
                self._control(message, now)
        if connection.decoder.retry_ms is not None:
            self._waits.set_retry(connection.decoder.retry_ms / 1000)

    def _begin(self, connection: Connection) -> None:
        """The first stream that is one: from here on everything must come."""
        self.ready.set()
        if not self._position.from_start:
            self._position = Position(connection.start_id, connection.epoch)

    def _event(self, message: Message, now: float) -> None:
        try:
            event = _decode(message.data)
        except msgspec.DecodeError as error:
            raise BrokenStream(f"data of a {message.type!r} frame is none of ours: {error}") from error
        if event.data.pad != self._padding or message.last_id != str(event.id):
            self._witness.alter(event.id)
        self._witness.deliver(event.data.n, event.id, now)
        self._position = Position(event.id)
        self._waits.progress()
        if message.type == END_TYPE:
            self._ended_at = now

    def _control(self, message: Message, now: float) -> None:
        item = item_of(message)
        if not isinstance(item, Control):
            raise BrokenStream(f"a {item.type!r} event is none of ours: does somebody else use the session?")
        self._witness.frames[item.type] += 1
        if item.type == ERROR:
            self._witness.errors[str(item.data.get("errorKind"))] += 1
        if item.type == RESYNC:
            verdict = resync_of(item)
            self._witness.resync(verdict.reason, verdict.earliest_available_id, now)
        elif item.type in ENDING:
            self._waits.ask_once(retry_hint(item))


_NUMBERED = frozenset({EVENT_TYPE, END_TYPE})
