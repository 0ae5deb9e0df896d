"""Follow one session: an async iterator that resumes by itself until the session is closed.

::

    async with follow("http://127.0.0.1:8080", "demo", from_="start") as stream:
        async for item in stream:
            match item:
                case Event() if item.in_sync:
                    apply(item)
                case Control(type="state_resync_required"):
                    stream.reloaded(at=await load_state())

It reads when it is asked for the next item and never in the background, so a user that stops reading is
what the gateway sees as a slow reader.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Literal, Self

import aiohttp

from ringmere.client.backoff import Backoff, Waits
from ringmere.client.connect import Connection, NotNow, Options, Position, connect
from ringmere.client.items import (
    ENDING,
    RESYNC,
    Connected,
    Control,
    Event,
    Resync,
    Snapshot,
    Waiting,
    item_of,
    resync_of,
    retry_hint,
)
from ringmere.core.cursor import MAX_ID, parse_cursor
from ringmere.core.decoder import Message
from ringmere.core.errors import InvalidParameter
from ringmere.core.limits import MAX_DECODED_BYTES
from ringmere.core.session import check_session_id

__all__ = ["Connected", "Control", "Event", "Resync", "Snapshot", "Stream", "Waiting", "follow"]

SILENT_HEARTBEATS = 3
"""Heartbeat intervals without a byte after which a connection counts as dead."""


def follow(
    url: str,
    session: str,
    from_: int | Literal["live", "start"] = "live",
    *,
    http: aiohttp.ClientSession | None = None,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
    resync: Literal["replay", "snapshot", "live"] = "replay",
    snapshot: bool = False,
    heartbeat: float = 15.0,
    connect_timeout: float = 10.0,
    backoff: Backoff | None = None,
    max_event_bytes: int = MAX_DECODED_BYTES,
    on_state: Callable[[Connected | Waiting], None] | None = None,
    roll: Callable[[], float] = random.random,
) -> Stream:
    """Return a stream of ``session`` at the gateway ``url``; nothing is sent before the first item is asked for.

    ``from_`` is where to begin: ``"live"`` (what comes from now on), ``"start"`` (the whole ring first), or
    the id of the last event that was processed (0: everything). ``heartbeat`` is the gateway's interval in
    seconds; a connection that is silent for three of them is taken for dead. ``params`` are further query
    parameters (``maxQueued`` …). ``resync`` is what follows a verdict (contract 10.2); with ``snapshot`` a live stream
    begins with the stored state, if there is one. Such a state is an item whose ``snapshot`` is set, and the stream
    resumes behind it from then on; events stay out of sync if the verdict was ``stale``. ``on_state`` hears
    of each connection and each wait; it must not block. ``http`` stays the caller's: it is not closed, and its total
    timeout does not count here.

    Raises :class:`~ringmere.core.errors.InvalidSessionId` and ``InvalidParameter``. The stream's iteration
    raises :class:`~ringmere.client.errors.Refused` for a final status, and
    :class:`~ringmere.client.errors.BrokenStream` or :class:`~ringmere.core.errors.FrameTooLong` for an answer
    that is not this protocol; anything else leads to another try, with the newest cursor.
    """
    check_session_id(session)
    if isinstance(from_, int) and not 0 <= from_ <= MAX_ID:
        raise InvalidParameter("invalid_cursor", f"a cursor is 0 to {MAX_ID}")
    wishes: dict[str, str] = {"resync": resync} if resync != "replay" else {}
    if snapshot:
        wishes["snapshot"] = "1"
    options = Options(
        f"{url.rstrip('/')}/session/{session}/events",
        dict(headers or {}),
        {**wishes, **(params or {})},
        heartbeat,
        connect_timeout,
        backoff or Backoff(),
        max_event_bytes,
    )
    cursor = from_ if isinstance(from_, int) else None
    return Stream(options, Position(cursor, from_start=from_ == "start"), http, on_state, roll)


class Stream:
    """The items of one session, in order, each event once; made by :func:`follow`.

    ``resync`` is the verdict that waits for the user's reload, None while state is whole. ``ended`` turns
    True when the session is closed and everything of it was handed over. One task iterates at a time. A
    cancelled ``anext`` (say, by ``asyncio.wait_for``) loses nothing: the next one goes on.
    """

    def __init__(
        self,
        options: Options,
        position: Position,
        http: aiohttp.ClientSession | None,
        on_state: Callable[[Connected | Waiting], None] | None,
        roll: Callable[[], float],
    ) -> None:
        self.resync: Resync | None = None
        self.ended = False
        self._options = options
        self._position = position
        self._http = http
        self._owns_http = http is None
        self._on_state = on_state
        self._waits = Waits(options.backoff, roll)
        self._connection: Connection | None = None
        self._messages: deque[Message] = deque()
        self._attempts = 0
        self._due = 0.0
        self._closing = False

    @property
    def last_id(self) -> int | None:
        """The cursor: the id of the event handed over last, or the point where a live stream began."""
        return self._position.cursor

    def reloaded(self, at: int | None = None) -> None:
        """Tell that state was loaded anew after a verdict: events count again from here.

        With ``at``, the last event id that the loaded state covers, the stream goes on right after that
        one; events handed over since the verdict and newer than it come again.
        """
        self.resync = None
        if at is not None:
            epoch = self._connection.epoch if self._connection else self._position.epoch
            self._position = Position(at, epoch)
            self._messages.clear()
            self._closing = False
            self._due = 0.0
            self._disconnect()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event | Control:
        try:
            while not self._messages:
                if self.ended:
                    raise StopAsyncIteration
                await self._advance()
            message = self._messages.popleft()
            return self._hand_over(item_of(message), message.last_id)
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self.aclose()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Drop the connection and end the iteration; idempotent."""
        self.ended = True
        self._disconnect()
        if self._http is not None and self._owns_http:
            http, self._http = self._http, None
            await http.close()

    async def _advance(self) -> None:
        """Take one step: wait until the next try is due, connect, or read."""
        if self._connection is not None:
            await self._read(self._connection)
        elif (wait := self._due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        else:
            await self._connect()

    async def _connect(self) -> None:
        if self._http is None:
            self._http = aiohttp.ClientSession()
        self._attempts += 1
        asked = self._position
        try:
            connection = await connect(self._http, self._options, asked, self._query())
        except NotNow as error:
            self._waits.ask_once(error.floor)
            self._drop(str(error))
            return
        if connection is None:
            self.ended = True
            return
        self._connection = connection
        self._closing = False
        self._tell(Connected(self._attempts, asked.told, connection.stream_id))
        if asked.told is None and not asked.from_start:
            self._move_to(connection.start, connection.epoch)

    async def _read(self, connection: Connection) -> None:
        silence = SILENT_HEARTBEATS * self._options.heartbeat
        # What was too long behind the last message raises here, before the end of the stream can hide it.
        connection.decoder.feed(b"")
        try:
            chunk = await connection.read(silence)
        except TimeoutError:
            cause: str | None = f"silent for {silence:g} s"
        except (aiohttp.ClientError, OSError) as error:
            cause = str(error) or type(error).__name__
        else:
            cause = None if chunk else "the server ended the stream"
            self.ended = not chunk and self._closing
        if self._connection is not connection or self.ended:
            return
        if cause is not None:
            self._drop(cause)
            return
        self._messages.extend(connection.decoder.feed(chunk))
        if connection.decoder.retry_ms is not None:
            self._waits.set_retry(connection.decoder.retry_ms / 1000)

    def _query(self) -> dict[str, str]:
        """Return query parameters that may differ from one connection to the next."""
        return {}

    def _move_to(self, text: str, epoch: str | None) -> None:
        """Go on behind the cursor that a text of the gateway's spells, if it is one."""
        cursor = parse_cursor(text)
        if cursor is not None:
            self._position = Position(cursor, epoch)

    def _hand_over(self, item: Event | Control, last_id: str) -> Event | Control:
        """Move the cursor and the latch by an item that the user gets now; ``last_id`` is the id line it came under."""
        if isinstance(item, Event):
            epoch = self._connection.epoch if self._connection else self._position.epoch
            self._position = Position(item.id, epoch)
            self._waits.progress()
            self._closing = item.terminal
            return item if self.resync is None else item._replace(in_sync=False)
        if item.type == RESYNC:
            self.resync = resync_of(item)
        elif item.snapshot is not None:
            if self.resync is not None and not self.resync.stale:
                self.resync = None
            epoch = self._connection.epoch if self._connection else self._position.epoch
            self._position = Position(item.snapshot.last_event_id, epoch)
        elif item.type in ENDING:
            self._closing = False
            self._waits.ask_once(retry_hint(item))
        return item

    def _drop(self, cause: str) -> None:
        """Give the connection up and set when the next try is due."""
        connection = self._connection
        if connection is not None:
            if time.monotonic() - connection.opened_at >= self._options.heartbeat:
                self._waits.progress()
            self._move_to(connection.decoder.last_id, connection.epoch)
        self._disconnect()
        delay = self._waits.next()
        self._due = time.monotonic() + delay
        self._tell(Waiting(delay, cause, self._waits.failures))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.response.close()
            self._connection = None

    def _tell(self, state: Connected | Waiting) -> None:
        if self._on_state is not None:
            self._on_state(state)
