"""The reading side of a load run: follows a session to its end, counts, and comes back where it was cut off."""

from __future__ import annotations

import asyncio
import random
import time

import aiohttp
import msgspec

from ringmere.client.backoff import Backoff, Waits
from ringmere.client.connect import Connection, NotNow, Options, Position, connect
from ringmere.client.errors import BrokenStream, ClientError
from ringmere.client.items import ENDING, Control, item_of, retry_hint
from ringmere.core.decoder import Message
from ringmere.core.errors import FrameTooLong
from ringmere.verify.load import LOAD_TYPE, Heard, LoadPlan
from ringmere.verify.plan import END_TYPE, SILENT_HEARTBEATS
from ringmere.verify.reader import ERROR


class _Data(msgspec.Struct):
    t: float


class _Envelope(msgspec.Struct):
    id: int
    data: _Data


_decode = msgspec.json.Decoder(_Envelope).decode


class Listener:
    """Follows ``heard.session`` live at the gateway ``address``; ``ready``: it has a stream, or never will."""

    def __init__(self, plan: LoadPlan, heard: Heard, address: str, http: aiohttp.ClientSession) -> None:
        self.ready = asyncio.Event()
        self.heard = heard
        self._http = http
        self._silence = SILENT_HEARTBEATS * plan.heartbeat
        url = f"{address.rstrip('/')}/session/{heard.session}/events"
        self._door = Options(url, heartbeat=plan.heartbeat, connect_timeout=plan.try_timeout)
        self._position = Position(None)
        self._waits = Waits(Backoff(), random.random)
        self._ended = False

    async def run(self) -> None:
        """Follow until the session's last event has come."""
        try:
            while not self._ended and await self._one_connection():
                if not self._ended:
                    await asyncio.sleep(self._waits.next())
        except (ClientError, FrameTooLong) as error:
            self.heard.broken = str(error)
        finally:
            self.ready.set()

    async def _one_connection(self) -> bool:
        """Open a stream and read it to its end; False when the session is closed and all of it was read."""
        try:
            connection = await connect(self._http, self._door, self._position)
        except NotNow as error:
            self._waits.ask_once(error.floor)
            return True
        if connection is None:
            return False
        self.heard.connections += 1
        try:
            await self._read(connection)
        except (aiohttp.ClientError, OSError, TimeoutError):
            # Cut off: it comes back with its cursor.
            return True
        finally:
            connection.response.close()
        return True

    async def _read(self, connection: Connection) -> None:
        while not self._ended:
            chunk = await connection.read(self._silence)
            if not chunk:
                return
            self.heard.bytes += len(chunk)
            now = time.monotonic()
            messages = connection.decoder.feed(chunk)
            if not self.ready.is_set() and not any(message.type == ERROR for message in messages):
                self._position = Position(connection.start_id, connection.epoch)
                self.ready.set()
            for message in messages:
                self._take(message, now, connection.epoch)
            if connection.decoder.retry_ms is not None:
                self._waits.set_retry(connection.decoder.retry_ms / 1000)

    def _take(self, message: Message, now: float, epoch: str | None) -> None:
        if message.type == LOAD_TYPE:
            self._count(message, now, epoch)
        elif message.type == END_TYPE:
            self._ended = True
        else:
            self._control(message)

    def _count(self, message: Message, now: float, epoch: str | None) -> None:
        try:
            event = _decode(message.data)
        except msgspec.DecodeError as error:
            raise BrokenStream(f"data of a {message.type!r} frame is none of ours: {error}") from error
        heard = self.heard
        heard.events += 1
        heard.until = now
        heard.latency.add(now - event.data.t)
        if self._position.cursor is not None and event.id <= self._position.cursor:
            heard.disordered += 1
        self._position = Position(event.id, epoch)
        self._waits.progress()

    def _control(self, message: Message) -> None:
        item = item_of(message)
        if not isinstance(item, Control):
            raise BrokenStream(f"a {item.type!r} event is none of ours: does somebody else use the session?")
        self.heard.frames[item.type] += 1
        if item.type == ERROR:
            self.heard.errors[str(item.data.get("errorKind"))] += 1
        if item.type in ENDING:
            self._waits.ask_once(retry_hint(item))
