"""One SSE response: its headers go out through aiohttp, its body straight from the hub to the transport."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.http import HttpVersion11

from ringmere.core.frames import HEARTBEAT, LAST_CHUNK, chunked
from ringmere.core.reasons import CloseReason
from ringmere.http.handover import HandedOver, Wire
from ringmere.http.protocol import GatewayProtocol
from ringmere.hub.lifetime import Lifetime

STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
"""Of every stream: nothing between here and the client may hold it back or change it."""

_HEARTBEAT_CHUNK = chunked(HEARTBEAT)


class SseSink(Wire):
    """The writing end of one stream (:class:`ringmere.hub.sink.Sink`), and the ears of its transport.

    A closing transport takes nothing, so no write can follow the last chunk onto the connection.
    """

    __slots__ = ("_subscriber", "framed")

    transport: str = "sse"

    def __init__(self, subscriber: Lifetime, transport: asyncio.Transport, *, framed: bool, paused: bool) -> None:
        super().__init__(transport, paused=paused)
        self._subscriber = subscriber
        self.framed = framed

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport; they are dropped when it is closing."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    def heartbeat(self) -> None:
        """Write a comment."""
        self.write(_HEARTBEAT_CHUNK if self.framed else HEARTBEAT)

    def finish(self, reason: CloseReason) -> None:
        """Write the last chunk and close, in one step; the connection goes once everything is flushed."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.framed:
            transport.write(LAST_CHUNK)
        if transport.get_write_buffer_size():
            self._abort_after_grace(transport)
        transport.close()

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
        self._let_go()
        self._subscriber.lost()


class EventStream(HandedOver):
    """The response of an accepted SSE stream."""

    def __init__(self, subscriber: Lifetime, headers: dict[str, str]) -> None:
        super().__init__(headers={**STREAM_HEADERS, **headers})
        self.force_close()
        self._subscriber = subscriber

    async def _begin(self, request: web.BaseRequest, protocol: GatewayProtocol, transport: asyncio.Transport) -> None:
        framed = request.version >= HttpVersion11
        sink = SseSink(self._subscriber, transport, framed=framed, paused=protocol.writing_paused)
        protocol.hand_over(sink)
        self._subscriber.attach(sink)

    def _cancel(self) -> None:
        self._subscriber.cancel()
