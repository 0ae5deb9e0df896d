"""Frames of a stream of many sessions: like a session's own, and the session's id in the envelope (contract 7.1).

The id line is left out: it is the stream's cursor, which differs from reader to reader. So the rest is made once
for all readers that follow the session together with others.
"""

from __future__ import annotations

import msgspec

from ringmere.core.backlog import Frame

_VERSION = b'"v":1,'
_DATA_LINE = b"\ndata: "
_DATA = b'"data":{'
_ID_LINE = b"id: "


class Tagged(msgspec.Struct, frozen=True, gc=False):
    """One frame without its id line; ``seq`` and ``size`` are those of :class:`~ringmere.core.backlog.Frame`."""

    seq: int
    body: bytes
    size: int


def tag(frame: Frame, session: str) -> Tagged:
    """Return a frame of ``session`` as a stream of many sessions carries it.

    A control frame names the session in its ``data``, too. Session ids need no escapes in JSON (contract 1.7).
    """
    name = b'"sessionId":"%b"' % session.encode()
    sse = frame.sse
    start = sse.index(b"\n") + 1 if sse.startswith(_ID_LINE) else 0
    # The type stands before the data line and may hold anything but a line end.
    at = sse.index(_VERSION, sse.index(_DATA_LINE)) + len(_VERSION)
    rest = sse[at:]
    if not frame.size:
        rest = rest.replace(_DATA, _DATA + name + (b"" if _DATA + b"}" in rest else b","), 1)
    size = frame.size + len(name) + 1 if frame.size else 0
    return Tagged(frame.seq, sse[start:at] + name + b"," + rest, size)
