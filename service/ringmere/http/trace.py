"""The trace that a request belongs to, by its W3C headers; nobody looks unless the instance makes traces."""

from __future__ import annotations

from aiohttp import web

from ringmere.core.trace import TRACEPARENT, TRACESTATE, TraceContext, parse_trace
from ringmere.http.options import Door


def trace_of(door: Door, request: web.BaseRequest) -> TraceContext | None:
    """Return the request's trace context; None without one, with a malformed one, or with more than one."""
    if door.hub.observer.tracer is None:
        return None
    parents = request.headers.getall(TRACEPARENT, [])
    if len(parents) != 1:
        return None
    return parse_trace(parents[0], ",".join(request.headers.getall(TRACESTATE, [])))
