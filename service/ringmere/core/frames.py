"""SSE frames as bytes, encoded once an event and shared by all readers (contract 5).

One frame is one blank-line-ended block. HTTP/1.1 chunk framing is applied to whole blobs of frames, so
that a reader's transport gets one ready write (:func:`chunked`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ringmere.core.event import Envelope

HEARTBEAT = b": hb\n"
"""A comment: keeps middle boxes from closing a quiet stream and never touches a cursor.

It has no blank line: some clients report an empty event at each blank line once they have an id.
"""
OPENING_COMMENT = b": ok\n"
LAST_CHUNK = b"0\r\n\r\n"

_RETRY = b"retry: "
_DATA_LINE = b"\ndata: "
_END = b"\n\n"

_encode = msgspec.json.Encoder().encode


def event_frame(public_id: int, event: Envelope) -> bytes:
    """Return an event's frame: id, type, and its envelope on one data line (contract 5.1)."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (public_id, event.type.encode(), event.json)


def envelope_size(frame: bytes) -> int:
    """Return the bytes of the envelope in an event's frame. No type holds a line end, so its data line is the first."""
    return len(frame) - frame.index(_DATA_LINE) - len(_DATA_LINE) - len(_END)


def degraded_frame(event: Envelope) -> bytes:
    """Return the frame of an event that was not stored: without an ``id:`` line it moves no cursor (contract 8.2)."""
    return b"event: %b\ndata: %b\n\n" % (event.type.encode(), event.json)


def control_frame(type: str, data: Mapping[str, Any], timestamp_ms: int) -> bytes:
    """Return a control frame: never an ``id:`` line, so it cannot move a cursor (contract 5.2)."""
    body = {"v": 1, "type": type, "data": data, "_meta": {"serverTimestamp": timestamp_ms}}
    return b"event: %b\ndata: %b\n\n" % (type.encode(), _encode(body))


def with_retry(retry_ms: int, frame: bytes) -> bytes:
    """Put ``retry:`` into the block of ``frame``: a block of its own shows up as an empty event in some clients."""
    return b"retry: %d\n%b" % (retry_ms, frame)


def without_retry(raw: bytes) -> bytes:
    """Return joined frames as they are for all readers: :func:`with_retry` made the first block one reader's own."""
    return raw[raw.index(b"\n") + 1 :] if raw.startswith(_RETRY) else raw


def anchor_frame(public_id: int) -> bytes:
    """Return a block of only an id, which gives a native EventSource its cursor (contract 3.3)."""
    return b"id: %d\n\n" % public_id


def chunked(blob: bytes) -> bytes:
    """Return ``blob`` as one HTTP/1.1 chunk. It must not be empty: an empty chunk ends the body."""
    return b"%x\r\n%b\r\n" % (len(blob), blob)
