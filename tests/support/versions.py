"""Reading a stream over each version of HTTP with other people's clients: httpx for 1.1 and 2, aioquic for 3."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamReset

from ringmere.core.decoder import Decoder, Message
from support.proxies import Proxy

DEADLINE = 30.0
CLIENT = "127.0.0.2"
"""Where readers over TCP come from: not the address that proxies and instances have."""


class Reader:
    """One stream: ``headers`` of its answer by lower-case name, and its messages as they come."""

    def __init__(self, headers: Mapping[str, str], blobs: AsyncIterator[bytes]) -> None:
        self.headers = headers
        self._blobs = blobs
        self._decoder = Decoder()
        self._messages: list[Message] = []

    async def next(self) -> dict[str, Any]:
        """Return the envelope of the next message."""
        async with asyncio.timeout(DEADLINE):
            while not self._messages:
                self._messages = self._decoder.feed(await anext(self._blobs))
        envelope: dict[str, Any] = json.loads(self._messages.pop(0).data)
        return envelope

    async def beats(self, count: int) -> None:
        """Read until so many comments have come; fail when anything else comes."""
        while self._decoder.comments < count:
            async with asyncio.timeout(DEADLINE):
                assert self._decoder.feed(await anext(self._blobs)) == []

    async def ended(self) -> bool:
        """Return True once the stream has ended, as a whole; fail when anything else comes, or it is cut."""
        async with asyncio.timeout(DEADLINE):
            async for blob in self._blobs:
                assert self._decoder.feed(blob) == self._messages == []
        return True


@asynccontextmanager
async def reading(
    proxy: Proxy, version: str, session: str, query: str = "", headers: Mapping[str, str] | None = None
) -> AsyncIterator[Reader]:
    """Open a session's stream through a proxy's TLS with HTTP ``1.1``, ``2`` or ``3``."""
    path, headers = f"/session/{session}/events{query}", headers or {}
    opened = _over_quic(proxy, path, headers) if version == "3" else _over_tcp(proxy, version, path, headers)
    async with opened as reader:
        yield reader


@asynccontextmanager
async def _over_tcp(proxy: Proxy, version: str, path: str, headers: Mapping[str, str]) -> AsyncIterator[Reader]:
    second = version == "2"
    transport = httpx.AsyncHTTPTransport(verify=proxy.trust, http1=not second, http2=second, local_address=CLIENT)
    async with (
        httpx.AsyncClient(transport=transport, timeout=DEADLINE) as http,
        http.stream("GET", proxy.secure + path, headers=dict(headers)) as answer,
    ):
        assert (answer.status_code, answer.http_version) == (200, f"HTTP/{version}")
        yield Reader(answer.headers, answer.aiter_raw())


class _Http3(QuicConnectionProtocol):
    """Keeps what has come in order; there is one request on a connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._http = H3Connection(self._quic)
        self._come: asyncio.Queue[H3Event | None] = asyncio.Queue()

    def quic_event_received(self, event: QuicEvent) -> None:
        for each in self._http.handle_event(event):
            self._come.put_nowait(each)
        if isinstance(event, StreamReset | ConnectionTerminated):
            self._come.put_nowait(None)

    async def get(self, authority: str, path: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Send the request and return the answer's headers, the status among them."""
        fields = {":method": "GET", ":scheme": "https", ":authority": authority, ":path": path, **headers}
        stream = self._quic.get_next_available_stream_id()
        encoded = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
        self._http.send_headers(stream, encoded, end_stream=True)
        self.transmit()
        first = await asyncio.wait_for(self._come.get(), DEADLINE)
        assert isinstance(first, HeadersReceived)
        return {name.decode(): value.decode() for name, value in first.headers}

    async def blobs(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; raise ``ConnectionResetError`` when it is cut."""
        while True:
            event = await self._come.get()
            if event is None:
                raise ConnectionResetError
            if isinstance(event, DataReceived):
                yield event.data
                if event.stream_ended:
                    return


@asynccontextmanager
async def _over_quic(proxy: Proxy, path: str, headers: Mapping[str, str]) -> AsyncIterator[Reader]:
    place = urlsplit(proxy.secure)
    trust = QuicConfiguration(is_client=True, alpn_protocols=["h3"])
    trust.load_verify_locations(str(proxy.authority))
    async with connect(
        str(place.hostname), int(place.port or 0), configuration=trust, create_protocol=_Http3
    ) as connection:
        assert isinstance(connection, _Http3)
        answer = await connection.get(place.netloc, path, headers)
        assert answer[":status"] == "200"
        yield Reader(answer, connection.blobs())
