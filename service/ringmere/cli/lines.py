"""Events as lines of JSON, from a file or stdin, checked by the service's own rules before they are sent."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from ringmere.core.errors import InvalidEvent, InvalidInput, RingmereError
from ringmere.core.event import check_key, parse_draft

AHEAD = 400
"""Lines read before they are sent."""

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class BadLine(RingmereError):
    """A line holds no event; the text names the line."""

    code = "bad_line"


class Line(NamedTuple):
    """One event to publish. ``number`` is its line from 1, ``position`` its place among the events from 1."""

    number: int
    position: int
    event: dict[str, Any]
    key: str
    at_ms: float
    size: int


def read_event(text: bytes, number: int, prefix: str, position: int = 1) -> Line:
    """Return the event of a line; its ``key`` is its own, else ``<prefix>/<number>``.

    ``at_ms`` is for the publisher alone and is dropped. Raises ``InvalidInput`` by contract 2.1.
    """
    body, at_ms = _without_at_ms(text)
    draft = parse_draft(body)
    event = json.loads(body)
    event.pop("key", None)
    return Line(number, position, event, draft.key or check_key(f"{prefix}/{number}"), at_ms, len(body))


def _without_at_ms(text: bytes) -> tuple[bytes, float]:
    """Return the line without its ``at_ms``, the rest as it is written, and the milliseconds."""
    if b'"at_ms"' not in text:
        return text, 0.0
    try:
        event = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The strict parser finds better words for what is wrong.
        return text, 0.0
    at_ms = _number(event.pop("at_ms", None))
    return _encode(event), at_ms


def _number(raw: msgspec.Raw | None) -> float:
    if raw is None:
        return 0.0
    try:
        return max(0.0, msgspec.json.decode(raw, type=float))
    except msgspec.DecodeError as error:
        raise InvalidEvent("'at_ms' must be a number") from error


class Lines:
    """Reads lines in a thread of its own, at most ``AHEAD`` of them ahead, so that a slow stdin blocks nobody.

    ``source`` None is stdin. ``total`` is the number of events when it can be known, else None.
    """

    def __init__(self, source: Path | None, prefix: str) -> None:
        # A reader of its own: a thread that waits in sys.stdin would make the interpreter's end a fatal error.
        self._file: BinaryIO = open(0, "rb", closefd=False) if source is None else source.open("rb")  # noqa: SIM115
        self._prefix = prefix
        self.total = None if source is None else sum(1 for line in source.open("rb") if line.strip())
        self._queue: asyncio.Queue[Line | Exception | None] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._peeked: Line | None = None
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, daemon=True).start()

    async def next(self) -> Line | None:
        """Return the next line, None at the end. Raises :class:`BadLine` at the first line that is no event."""
        if self._peeked is not None:
            return self.take()
        return self._checked(await self._queue.get())

    def peek(self) -> Line | None:
        """Return the next line without taking it, None when none has been read yet or the end is near."""
        if self._peeked is None and not self._queue.empty():
            item = self._queue.get_nowait()
            if isinstance(item, Line):
                self._peeked = item
            else:
                # An end or an error is for next(): what stands before it is sent first.
                self._queue.put_nowait(item)
        return self._peeked

    def take(self) -> Line | None:
        """Take the line that :meth:`peek` showed."""
        line, self._peeked = self._peeked, None
        return self._checked(line)

    def _checked(self, item: Line | Exception | None) -> Line | None:
        if isinstance(item, Exception):
            raise item
        if item is not None:
            self._room.release()
        return item

    def _read(self) -> None:
        try:
            for line in self._events():
                self._room.acquire()
                self._put(line)
            self._put(None)
        except (InvalidInput, BadLine, OSError) as error:
            self._put(error)

    def _put(self, item: Line | Exception | None) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    def _events(self) -> Iterator[Line]:
        position = 0
        with self._file:
            for number, text in enumerate(self._file, 1):
                if not text.strip():
                    continue
                position += 1
                try:
                    yield read_event(text, number, self._prefix, position)
                except InvalidInput as error:
                    raise BadLine(f"line {number}: {error}") from error
