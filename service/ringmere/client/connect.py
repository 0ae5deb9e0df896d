"""One try to open a stream: the request, and what each kind of answer means for the next try."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp

from ringmere.client.backoff import Backoff, parse_retry_after
from ringmere.client.errors import BrokenStream, ClientError, refusal
from ringmere.core.cursor import parse_cursor
from ringmere.core.decoder import Decoder
from ringmere.core.limits import MAX_DECODED_BYTES

TRY_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that say "not now"; any other error status is final."""
_NO_TOTAL = aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None)
"""A stream has no end in time; connecting and silence have deadlines of their own."""
_PROBLEM_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Options:
    """What does not change between the tries of one stream; times in seconds, sizes in bytes."""

    address: str
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    heartbeat: float = 15.0
    connect_timeout: float = 10.0
    backoff: Backoff = field(default_factory=Backoff)
    max_event_bytes: int = MAX_DECODED_BYTES


@dataclass(slots=True)
class Position:
    """Where to go on: the newest cursor, and the epoch token it came with (contract 1.3).

    That of many sessions is a ``text``, and ``cursor`` is None then.
    """

    cursor: int | None
    epoch: str | None = None
    from_start: bool = False
    text: str | None = None

    @property
    def told(self) -> int | str | None:
        """The cursor, of whatever kind."""
        return self.text if self.cursor is None else self.cursor


@dataclass(slots=True)
class Connection:
    """One open response and its decoder.

    ``start_id`` is the point a live-only stream begins at, ``start`` the same as it is written.
    """

    response: aiohttp.ClientResponse
    decoder: Decoder
    opened_at: float
    epoch: str | None
    start_id: int | None
    start: str
    stream_id: str | None

    async def read(self, silence: float) -> bytes:
        """Return the next bytes, b"" at a clean end; TimeoutError when none come for ``silence`` seconds."""
        async with asyncio.timeout(silence):
            return await self.response.content.readany()


class NotNow(Exception):
    """No stream this time; ``floor`` is how many seconds the server asked to wait."""

    def __init__(self, cause: str, floor: float = 0.0) -> None:
        super().__init__(cause)
        self.floor = floor


async def connect(
    http: aiohttp.ClientSession, options: Options, position: Position, query: Mapping[str, str] | None = None
) -> Connection | None:
    """Ask for the stream at ``position``; None when the session is closed and all of it was read (204).

    Raises :class:`NotNow` when another try makes sense, :class:`~ringmere.client.errors.Refused` for a
    final status, :class:`~ringmere.client.errors.BrokenStream` when 200 brings no event stream.
    """
    try:
        async with asyncio.timeout(options.connect_timeout):
            return await _request(http, options, position, query or {})
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise ClientError(f"no address of a gateway: {error}") from error
    except TimeoutError as error:
        raise NotNow(f"no answer within {options.connect_timeout:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise NotNow(str(error) or type(error).__name__) from error


async def _request(
    http: aiohttp.ClientSession, options: Options, position: Position, query: Mapping[str, str]
) -> Connection | None:
    response = await http.get(
        options.address,
        headers=_headers(options, position),
        params={**options.params, **query, **({"from": "start"} if position.from_start else {})},
        timeout=_NO_TOTAL,
    )
    opened = False
    try:
        if response.status == 204:
            return None
        if response.status != 200:
            await _refuse(response)
        if response.content_type != "text/event-stream":
            raise BrokenStream(f"the answer is {response.content_type}, not text/event-stream")
        opened = True
        return _connection(response, options)
    finally:
        if not opened:
            response.close()


def _headers(options: Options, position: Position) -> dict[str, str]:
    # A compressed stream sits in the compressor's buffer of a proxy until it is full.
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
    headers.update(options.headers)
    if position.told is not None:
        headers["Last-Event-ID"] = str(position.told)
        if position.epoch is not None:
            headers["X-Event-Epoch"] = position.epoch
    return headers


async def _refuse(response: aiohttp.ClientResponse) -> None:
    """Raise what a status other than 200 and 204 means."""
    if response.status in TRY_LATER:
        floor = parse_retry_after(response.headers.get("Retry-After"), time.time())
        raise NotNow(f"HTTP {response.status}", floor)
    raise refusal(response.status, await response.content.read(_PROBLEM_BYTES))


def _connection(response: aiohttp.ClientResponse, options: Options) -> Connection:
    headers = response.headers
    return Connection(
        response=response,
        decoder=Decoder(options.max_event_bytes),
        opened_at=time.monotonic(),
        epoch=headers.get("X-Event-Epoch"),
        start_id=parse_cursor(headers.get("X-Start-Event-Id", "")),
        start=headers.get("X-Start-Event-Id", ""),
        stream_id=headers.get("X-Stream-Id"),
    )
