"""An incremental decoder of ``text/event-stream`` (WHATWG HTML 9.2.5 and 9.2.6): bytes in, messages out.

The stream may be cut anywhere, also inside a character, a CRLF or the byte order mark. Lines are split as
bytes and decoded one by one, which gives the same text as decoding the whole stream: no line end can lie
inside a character, and a character that a line end cuts short is U+FFFD either way.
"""

from __future__ import annotations

from typing import NamedTuple

from ringmere.core.errors import FrameTooLong
from ringmere.core.limits import MAX_DECODED_BYTES, MAX_RETRY_MS

_BOM = b"\xef\xbb\xbf"
_LINE_ENDS = b"\r\n"
_MAX_RETRY_DIGITS = len(str(MAX_RETRY_MS))


class Message(NamedTuple):
    """One dispatched event: its type (``message`` when unnamed), its data, and the last event id by then."""

    type: str
    data: str
    last_id: str


class Decoder:
    """Decodes one response body; make a new one for every connection.

    ``last_id`` is the last event id by the block that ended last (a block of only an id moves it and
    dispatches nothing). ``retry_ms`` is the reconnection time in milliseconds, None until the server set
    one. ``comments`` counts comment lines: they dispatch nothing, but show that the server lives.
    """

    __slots__ = (
        "_after_cr",
        "_data",
        "_failed",
        "_first_line",
        "_id",
        "_limit",
        "_line",
        "_type",
        "comments",
        "last_id",
        "retry_ms",
    )

    def __init__(self, limit: int = MAX_DECODED_BYTES, last_id: str = "") -> None:
        self.last_id = last_id
        self.retry_ms: int | None = None
        self.comments = 0
        self._limit = limit
        self._line = bytearray()
        self._data = bytearray()
        self._type = b""
        self._id = last_id
        self._first_line = True
        self._after_cr = False
        self._failed = False

    def feed(self, chunk: bytes) -> list[Message]:
        """Take the next bytes and return the messages they completed, in order.

        Raises :class:`FrameTooLong` when a line, or an event's data so far, is longer than ``limit`` bytes;
        messages that were complete before that are returned first, and the next call raises. The decoder
        is of no use after that.
        """
        if self._failed:
            raise FrameTooLong(self._limit)
        messages: list[Message] = []
        for line in self._complete_lines(chunk):
            if len(line) + len(self._data) > self._limit:
                self._failed = True
                break
            self._take(line, messages)
        if len(self._line) + len(self._data) > self._limit:
            self._failed = True
        if self._failed and not messages:
            raise FrameTooLong(self._limit)
        return messages

    def _complete_lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes and keep the rest; only CRLF, LF and CR end a line."""
        if not chunk:
            return []
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        # bytes.splitlines knows no other line ends, unlike str.splitlines.
        lines = chunk.splitlines()
        rest = lines.pop() if chunk and chunk[-1] not in _LINE_ENDS else b""
        if self._line and lines:
            lines[0] = bytes(self._line) + lines[0]
            self._line.clear()
        self._line += rest
        return lines

    def _take(self, line: bytes, messages: list[Message]) -> None:
        """Process one line: a blank one ends the block, any other is a field or a comment."""
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            self._end_block(messages)
            return
        name, colon, value = line.partition(b":")
        if colon and not name:
            self.comments += 1
            return
        if value[:1] == b" ":
            value = value[1:]
        self._field(name, value)

    def _field(self, name: bytes, value: bytes) -> None:
        """Apply one field; names are case-sensitive and unknown ones are ignored."""
        if name == b"data":
            self._data += value
            self._data += b"\n"
        elif name == b"event":
            self._type = value
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit():
            digits = value.lstrip(b"0") or b"0"
            capped = len(digits) > _MAX_RETRY_DIGITS
            self.retry_ms = MAX_RETRY_MS if capped else min(int(digits), MAX_RETRY_MS)

    def _end_block(self, messages: list[Message]) -> None:
        """Dispatch the block: the id always takes effect, a message comes only of a block with data."""
        self.last_id = self._id
        if self._data:
            type = self._type.decode(errors="replace") or "message"
            del self._data[-1:]
            messages.append(Message(type, self._data.decode(errors="replace"), self.last_id))
            self._data.clear()
        self._type = b""
