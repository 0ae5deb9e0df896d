"""The trace context in a message's header block: the publisher's word, read only when somebody asks for it."""

from __future__ import annotations

from ringmere.core.trace import TRACEPARENT, TRACESTATE, TraceContext, parse_trace

_PARENT = f"\r\n{TRACEPARENT}:".encode()
_STATE = f"\r\n{TRACESTATE}:".encode()
MAX_BLOCK = 8192
"""Bytes of a header block that are searched; whoever writes more in front of the context has none."""


def sampled_trace(block: bytes) -> TraceContext | None:
    """Return the context that a message carries, None when there is none or it is not sampled.

    Names are taken in any case: libraries write ``Traceparent``, too.
    """
    head = block[:MAX_BLOCK]
    lower = head.lower()
    parent = _value(head, lower, _PARENT)
    if not parent:
        return None
    trace = parse_trace(parent, _value(head, lower, _STATE))
    return trace if trace is not None and trace.sampled else None


def _value(head: bytes, lower: bytes, name: bytes) -> str:
    """Return the first value of a header, empty when it is absent, cut off or no ASCII."""
    at = lower.find(name)
    end = lower.find(b"\r\n", at + len(name)) if at >= 0 else -1
    value = head[at + len(name) : end].strip() if end >= 0 else b""
    return value.decode() if value.isascii() else ""
