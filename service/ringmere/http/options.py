"""What the doors may be told: one value, made once at start and passed down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringmere.core.limits import KIB, MIB
from ringmere.http.client_address import Network
from ringmere.hub.hub import Hub

if TYPE_CHECKING:
    from ringmere.core.schemas import TypeSchemas

MAX_REQUEST_LINE = 8 * KIB
"""Bytes of a request line, so of a URL."""
MAX_HEADER_FIELD = 8 * KIB
"""Bytes of one header field; a cursor or a token needs less."""
MAX_HEADERS = 64
"""Header fields of one request."""
BODY_TIMEOUT = 30.0
"""Seconds from the end of a request's header to the end of its body; then 408."""
BODY_BYTES_TOTAL = 64 * MIB
"""Request bodies of the instance that have been received and are not answered yet; beyond it 503."""
KEEPALIVE_TIMEOUT = 75.0
"""Seconds that a connection may stay idle or take for a request header; proxies' pools close theirs earlier."""
STALLED = 30.0
"""Seconds in which a client takes nothing of an answer that waits for it; then the connection is cut."""
LINGER = 2.0
"""Seconds in which the rest of a refused body is read and dropped: its sender sees the answer, not a reset."""
MAX_MESSAGE = 4 * KIB
"""Bytes that a WebSocket client may send as its first message; a cursor of 64 shards needs less."""
MAX_FRAMES = 64
"""WebSocket frames, pings most of all, that a client may send between two heartbeats."""
MISSED_PONGS = 3
"""Pings behind which a WebSocket client that has sent nothing at all is taken for gone."""
HELLO_TIMEOUT = 5.0
"""Seconds for the first message that ``?hello=1`` announces."""
ACCEPT_BACKLOG = 1024
"""Connections that the kernel queues while the loop is busy: a reconnect storm comes at once."""


def to_loop_handler(error: BaseException) -> None:
    """Hand an unexpected error to the event loop's exception handler, which logs it."""
    asyncio.get_running_loop().call_exception_handler({"message": "request failed", "exception": error})


def no_schemas() -> None:
    """Say that no type of event has a schema."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Behaviour of the doors.

    ``stream_errors`` is ``event`` (200 and one ``stream_error`` frame) or ``status`` (503/429), contract 3.10.
    ``metrics`` renders the body of ``/metrics`` and its content type for an ``Accept`` header; None leaves the route
    out. ``readers`` gives the readers furthest behind, of all processes that share the address; None: of this one.
    ``schemas`` gives the schemas of event types that are in force, None when nothing is checked (contract 2.10).
    ``report`` is called with every error that nobody expected. ``worker`` is the number of this process among those
    that share the address, None when it is alone. ``trusted_proxies`` are believed when they name the client
    they speak for.
    """

    stream_errors: str = "event"
    cors_origins: tuple[str, ...] = ()
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]] | None = None
    readers: Callable[[int], Awaitable[list[dict[str, Any]]]] | None = None
    schemas: Callable[[], TypeSchemas | None] = no_schemas
    report: Callable[[BaseException], None] = to_loop_handler
    version: str = "0"
    worker: int | None = None
    trusted_proxies: tuple[Network, ...] = ()


class Door:
    """What every handler gets: the hub, the options, and the bytes of request bodies held right now."""

    __slots__ = ("body_bytes", "hub", "options")

    def __init__(self, hub: Hub, options: HttpOptions) -> None:
        self.hub = hub
        self.options = options
        self.body_bytes = 0
