"""What a worker and its parent say to each other: one JSON object a line, over a pair of sockets.

The pair is also a lifeline: its end tells each side that the other one is gone, on any system.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import msgspec

from ringmere.core.limits import MIB
from ringmere.settings import Settings
from ringmere.telemetry.merge import Family

MAX_LINE = 4 * MIB
"""Bytes of one message; the largest is a snapshot of all metrics, some 40 KiB."""
MAX_UNREAD = MIB
"""Bytes that wait for the other side to read before a message that can be missed is left out."""
CLOSE_TIMEOUT = 2.0


class Assignment(msgspec.Struct, tag="assignment"):
    """Parent, first: which worker this is, and where it works. ``nats_url`` is the embedded server's, if any."""

    worker: int
    settings: Settings
    nats_url: str | None
    host: str
    port: int
    patient: bool
    """Whether others answer on the address until this one can serve."""
    push_every: float
    """Seconds between two snapshots that come by themselves."""


class Ask(msgspec.Struct, tag="ask"):
    """Parent: send a snapshot now; with ``readers`` that many laggards instead of metrics."""

    number: int
    readers: int = 0


class Page(msgspec.Struct, tag="page"):
    """Parent: what the scrape of that number gets, of all workers together."""

    number: int
    body: bytes
    content_type: str


class Reread(msgspec.Struct, tag="reread"):
    """Parent: read again what the operator has changed."""


class Opened(msgspec.Struct, tag="opened"):
    """Worker: the door is open."""


class Ready(msgspec.Struct, tag="ready"):
    """Worker: ``/readyz`` says 200 for the first time."""


class Refused(msgspec.Struct, tag="refused"):
    """Worker, last: it must not serve. ``stream`` is set when that stream's shape is why."""

    text: str
    stream: str | None = None
    differences: list[str] = []


class Snapshot(msgspec.Struct, tag="snapshot"):
    """Worker: its metrics, or its laggards; ``number`` is that of the question, 0 without one."""

    number: int
    families: list[Family] = []
    readers: list[dict[str, Any]] | None = None


class Scrape(msgspec.Struct, tag="scrape"):
    """Worker: somebody wants the metrics of all workers in a format, or with ``readers`` that many laggards."""

    number: int
    accept: str = ""
    readers: int = 0


Message = Assignment | Ask | Page | Reread | Opened | Ready | Refused | Snapshot | Scrape

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Message).decode


class Line:
    """One end of the pair. :meth:`open` it on the running loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Line:
        """Take a connected socket over."""
        return cls(*await asyncio.open_unix_connection(sock=end, limit=MAX_LINE))

    def send(self, message: Message) -> None:
        """Send a message, in order; it is dropped when the other side has gone, which :meth:`receive` tells."""
        if not self._writer.transport.is_closing():
            self._writer.write(_encode(message) + b"\n")

    @property
    def crowded(self) -> bool:
        """Whether the other side has not read for a while, so that more should wait."""
        return self._writer.transport.get_write_buffer_size() > MAX_UNREAD

    async def receive(self) -> Message | None:
        """Return the next message, None when the other side has gone."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        return _decode(line) if line.endswith(b"\n") else None

    async def close(self) -> None:
        """Send what has been said, then hang up; do not wait long for a side that does not read."""
        self._writer.close()
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._writer.wait_closed()
