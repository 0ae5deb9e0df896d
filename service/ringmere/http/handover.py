"""What streams have in common, whatever carries them: an answer that gives its connection away, and who gets it."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from ringmere.http.protocol import GatewayProtocol

FLUSH_GRACE = 5.0
"""Seconds from the end of a stream to the end of its connection, when the client reads no further."""


class Wire:
    """The transport of a handed-over connection, until it is lost."""

    __slots__ = ("_closing", "_transport", "paused")

    def __init__(self, transport: asyncio.Transport, *, paused: bool) -> None:
        self._closing: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = transport
        self.paused = paused

    def abort(self) -> None:
        """Drop the connection and whatever is still buffered."""
        if self._transport is not None:
            self._transport.abort()

    def _abort_after_grace(self, transport: asyncio.Transport) -> None:
        """Have the connection dropped after ``FLUSH_GRACE``: who takes nothing any more would hold it for ever."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().call_later(FLUSH_GRACE, transport.abort)

    def _let_go(self) -> None:
        self._transport = None
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None


class HandedOver(web.StreamResponse):
    """The response of an accepted stream.

    aiohttp calls :meth:`prepare` and :meth:`write_eof` right after each other when the handler has
    returned. The second gives the connection away, so a stream holds no task, no request and no parser.
    Whatever goes wrong before that gives the reader's slot back.
    """

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the headers."""
        try:
            return await super().prepare(request)
        except BaseException:
            self._cancel()
            raise

    async def write_eof(self, data: bytes = b"") -> None:
        """Start the stream on the connection and return; the hub ends it."""
        request, self._req = self._req, None
        if self._eof_sent or request is None:
            return
        self._eof_sent = True
        protocol, transport = request.protocol, request.transport
        if not isinstance(protocol, GatewayProtocol) or transport is None:
            self._cancel()
            return
        await self._begin(request, protocol, transport)

    async def _begin(self, request: web.BaseRequest, protocol: GatewayProtocol, transport: asyncio.Transport) -> None:
        """Hand the connection over and begin."""
        raise NotImplementedError

    def _cancel(self) -> None:
        """Give back what is held: there is no connection."""
        raise NotImplementedError
