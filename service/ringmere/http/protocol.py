"""The connection: aiohttp's request handler, and how a stream is taken over from it.

aiohttp tells nobody when a transport pauses, resumes or is lost, and keeps two tasks, the request and its
headers alive for as long as a handler runs. A stream needs the first and must not cost the second. So
once the headers of a stream are on the transport the connection is *handed over*: aiohttp's loop for this
connection ends without closing it, and from then on the transport speaks to its reader alone.

This leans on private names of aiohttp 3.14 (pinned in the project, held by the tests of this module):
``_force_close`` makes ``start()`` return without a close and ``data_received()`` drop input;
``_keepalive_handle``, ``_parser``, ``_messages``, ``_task_handler`` and ``_buffer_paused`` are what it would keep.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from ringmere.http.options import (
    KEEPALIVE_TIMEOUT,
    LINGER,
    MAX_HEADER_FIELD,
    MAX_HEADERS,
    MAX_REQUEST_LINE,
    STALLED,
)
from ringmere.http.problems import problem

_NO_REQUESTS: deque[Any] = deque(maxlen=0)
"""Shared by all handed-over connections: an empty deque of their own would be a good part of what each costs."""


class Attached(Protocol):
    """What hears of a handed-over transport; called by the event loop, must not raise."""

    def pause(self) -> None:
        """The transport holds more than it should; it may be called from inside a write."""

    def resume(self) -> None:
        """The transport may be written to again."""

    def lost(self) -> None:
        """The connection is gone."""


class Holder(Attached, Protocol):
    """Whom a connection is handed over to."""

    def received(self, data: bytes) -> None:
        """The client has sent something."""


class GatewayProtocol(RequestHandler):
    """One connection. Until :meth:`hand_over` it is aiohttp's own."""

    __slots__ = ("_attached", "_holder", "_report", "_stall")

    def __init__(self, manager: GatewayServer, **options: Any) -> None:
        super().__init__(manager, **options)
        self._attached: Attached | None = None
        self._holder: Holder | None = None
        self._report = manager.report
        self._stall: asyncio.TimerHandle | None = None

    def hand_over(self, holder: Holder) -> None:
        """Give the connection to ``holder``: no request is read from it any more, and aiohttp lets go of it."""
        self._attached = self._holder = holder
        self._end_stall()
        self.keep_alive(False)
        self._force_close = True
        self._parser = None
        self._messages = _NO_REQUESTS
        self._task_handler = None
        if self._reading_paused or self._buffer_paused:
            # A paused transport would not notice that the client has gone.
            self._reading_paused = self._buffer_paused = False
            self._resume_transport_reading()

    def accompany(self, attached: Attached | None) -> None:
        """Let ``attached`` hear of the transport while a handler of this connection runs; None ends it."""
        self._attached = attached

    def data_received(self, data: bytes) -> None:
        """Parse input; a body that cannot be parsed further fails the handler that waits for it, at once."""
        if self._holder is not None:
            self._holder.received(data)
            return
        super().data_received(data)
        request = self._current_request
        if request is None or not self._messages or request.content.is_eof():
            return
        if isinstance(self._messages[-1][0], _ErrInfo):
            request.content.set_exception(web.RequestPayloadError("the body is not framed as HTTP/1.1 has it"))

    def pause_writing(self) -> None:
        """Tell the reader that its transport is full."""
        super().pause_writing()
        if self._holder is None:
            self._watch_stall()
        if self._attached is not None:
            self._attached.pause()

    def resume_writing(self) -> None:
        """Tell the reader that its transport takes bytes again."""
        super().resume_writing()
        self._end_stall()
        if self._attached is not None:
            self._attached.resume()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the reader that its client has gone."""
        attached, self._attached, self._holder = self._attached, None, None
        self._end_stall()
        super().connection_lost(exc)
        if attached is not None:
            attached.lost()

    def _watch_stall(self) -> None:
        """Give up an answer of which nothing at all is taken any more: it is held in memory until then."""
        transport = self.transport
        if transport is None:
            return
        left = transport.get_write_buffer_size()

        def look() -> None:
            self._stall = None
            if transport.get_write_buffer_size() >= left:
                transport.abort()
            else:
                self._watch_stall()

        self._end_stall()
        self._stall = self._loop.call_later(STALLED, look)

    def _end_stall(self) -> None:
        stall, self._stall = self._stall, None
        if stall is not None:
            stall.cancel()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write an answer out, and let go of its body: aiohttp keeps it until the connection's next request."""
        resp, gone = await super().finish_response(request, resp, start_time)
        if isinstance(resp, web.Response):
            resp.body = None
        return resp, gone

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP request with a problem, without a log line: anybody can send one."""
        if status >= 500 and exc is not None:
            self._report(exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        if isinstance(exc, LineTooLong):
            limit = max(MAX_REQUEST_LINE, MAX_HEADER_FIELD)
            response = problem("request_header_too_large", f"a line is longer than {limit} bytes", limit=limit)
        else:
            response = problem("internal_error" if status >= 500 else "bad_request")
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Report an error that aiohttp caught outside of any handler."""
        error = kw.get("exc_info")
        self._report(error if isinstance(error, BaseException) else RuntimeError(*args))


class GatewayServer(web.Server):
    """Makes a :class:`GatewayProtocol` for each connection.

    No access log: URLs may carry tokens. No decompression: a small body must not become a large one.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Any],
        report: Callable[[BaseException], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(handler, loop=loop)
        self.report = report

    def __call__(self) -> RequestHandler:
        """Return the protocol of a new connection."""
        return GatewayProtocol(
            self,
            loop=self._loop,
            access_log=None,
            keepalive_timeout=KEEPALIVE_TIMEOUT,
            lingering_time=LINGER,
            max_line_size=MAX_REQUEST_LINE,
            max_field_size=MAX_HEADER_FIELD,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
        )
