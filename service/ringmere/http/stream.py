"""One SSE response: its headers go out through aiohttp, its body straight from the hub to the transport."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11

from ringmere.core.frames import HEARTBEAT, LAST_CHUNK, chunked
from ringmere.core.reasons import CloseReason
from ringmere.http.protocol import GatewayProtocol
from ringmere.hub.lifetime import Lifetime

STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
"""Of every stream: nothing between here and the client may hold it back or change it."""
FLUSH_GRACE = 5.0
"""Seconds from the end of a stream to the end of its connection, when the client reads no further."""

_HEARTBEAT_CHUNK = chunked(HEARTBEAT)


class SseSink:
    """The writing end of one stream (:class:`ringmere.hub.sink.Sink`), and the ears of its transport.

    A closing transport takes nothing, so no write can follow the last chunk onto the connection.
    """

    __slots__ = ("_closing", "_subscriber", "_transport", "framed", "paused")

    transport: str = "sse"

    def __init__(self, subscriber: Lifetime, transport: asyncio.Transport, *, framed: bool, paused: bool) -> None:
        self._closing: asyncio.TimerHandle | None = None
        self._subscriber = subscriber
        self._transport: asyncio.Transport | None = transport
        self.framed = framed
        self.paused = paused

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport; they are dropped when it is closing."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    def heartbeat(self) -> None:
        """Write a comment."""
        self.write(_HEARTBEAT_CHUNK if self.framed else HEARTBEAT)

    def finish(self, reason: CloseReason) -> None:
        """Write the last chunk and close, in one step; the connection goes once everything is flushed.

        A client that takes nothing any more would hold it for ever, so it is aborted after ``FLUSH_GRACE``.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.framed:
            transport.write(LAST_CHUNK)
        if transport.get_write_buffer_size():
            self._closing = asyncio.get_running_loop().call_later(FLUSH_GRACE, transport.abort)
        transport.close()

    def abort(self) -> None:
        """Drop the connection and whatever is still buffered."""
        if self._transport is not None:
            self._transport.abort()

    def received(self, data: bytes) -> None:
        """Drop input: an HTTP client has nothing more to say."""

    def pause(self) -> None:
        """Take the transport's word that it is full."""
        self.paused = True
        self._subscriber.pause()

    def resume(self) -> None:
        """Take the transport's word that it has room."""
        self.paused = False
        self._subscriber.resume()

    def lost(self) -> None:
        """Let go of the transport and tell the reader."""
        self._transport = None
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        self._subscriber.lost()


class EventStream(web.StreamResponse):
    """The response of an accepted stream.

    aiohttp calls :meth:`prepare` and :meth:`write_eof` right after each other when the handler has
    returned. The second hands the connection over, so a stream holds no task, no request and no parser.
    Whatever goes wrong before that gives the reader's slot back.
    """

    def __init__(self, subscriber: Lifetime, headers: dict[str, str]) -> None:
        super().__init__(headers={**STREAM_HEADERS, **headers})
        self.force_close()
        self._subscriber = subscriber

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the headers."""
        try:
            return await super().prepare(request)
        except BaseException:
            self._subscriber.cancel()
            raise

    async def write_eof(self, data: bytes = b"") -> None:
        """Start the stream on the connection and return; the hub ends it."""
        request, self._req = self._req, None
        if self._eof_sent or request is None:
            return
        self._eof_sent = True
        protocol, transport = request.protocol, request.transport
        if not isinstance(protocol, GatewayProtocol) or transport is None:
            self._subscriber.cancel()
            return
        sink = SseSink(
            self._subscriber,
            transport,
            framed=request.version >= HttpVersion11,
            paused=protocol.writing_paused,
        )
        protocol.hand_over(sink)
        self._subscriber.attach(sink)
