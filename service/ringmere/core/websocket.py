"""SSE frames as WebSocket text frames: one JSON envelope each, what stands behind ``data:`` (contract 7.4).

A server's frames are not masked, so header and payload are the same bytes for every reader. No frame is compressed:
permessage-deflate keeps a dictionary for each connection, so each reader would need an encoding of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ringmere.core.limits import FRAMED_BLOBS, KEPT_BLOB_BYTES

_DATA = b"data: "
_ID = b"id: "
_FINAL_TEXT = 0x81

Encode = Callable[[bytes], bytes]
"""Turns joined SSE frames into text frames; empty when they hold no data."""


def text_frame(payload: bytes) -> bytes:
    """Return one unmasked text frame."""
    size = len(payload)
    if size < 126:
        return b"%c%c%b" % (_FINAL_TEXT, size, payload)
    if size < 1 << 16:
        return b"%c\x7e%b%b" % (_FINAL_TEXT, size.to_bytes(2, "big"), payload)
    return b"%c\x7f%b%b" % (_FINAL_TEXT, size.to_bytes(8, "big"), payload)


def text_frames(sse: bytes) -> bytes:
    """Return the envelopes of joined SSE frames. Comments, ``retry:`` and blocks of only an id have none.

    All readers of a session are handed the same bytes, live at once and in a replay at about the same time: the newest
    few results serve them all, but for very long ones. Where nobody reads over WebSocket nothing is made.
    """
    return newest_frames(sse) if len(sse) <= KEPT_BLOB_BYTES else _frames_of(sse)


def _frames_of(sse: bytes) -> bytes:
    return b"".join([text_frame(line[6:]) for line in sse.split(b"\n") if line.startswith(_DATA)])


newest_frames = lru_cache(maxsize=FRAMED_BLOBS)(_frames_of)
"""The same, with the newest results kept whatever their length."""


def text_frames_with_cursor(sse: bytes) -> bytes:
    """Return the same for a stream of many sessions, whose cursor is not the event's id: it goes into the envelope.

    It is the first member, a number when there is one shard (contract 7.2).
    """
    parts = []
    cursor = b""
    for line in sse.split(b"\n"):
        if line.startswith(_ID):
            text = line[len(_ID) :]
            cursor = b'{"cursor":%b,' % (text if text.isdigit() else b'"%b"' % text)
        elif line.startswith(_DATA):
            envelope = line[len(_DATA) :]
            parts.append(text_frame(cursor + envelope[1:] if cursor else envelope))
        elif not line:
            cursor = b""
    return b"".join(parts)
