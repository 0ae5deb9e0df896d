"""``GET`` and ``HEAD /session/{id}/events``: open a stream (contract 3)."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from ringmere.core.errors import LogUnavailable, Unavailable
from ringmere.core.frames import control_frame, with_retry
from ringmere.http.client_address import client_of
from ringmere.http.cursor import Beginning, parse_beginning, parse_birth
from ringmere.http.options import Door
from ringmere.http.parameters import cloudevents, max_queued, overflow, resync, switch
from ringmere.http.stream import STREAM_HEADERS, EventStream
from ringmere.http.trace import trace_of
from ringmere.hub.many import Many
from ringmere.hub.options import SubscribeOptions
from ringmere.hub.subscriber import Subscriber

RETRY_JITTER = 0.2
"""Share by which a reconnection time differs from reader to reader (contract 3.7)."""


async def open_stream(door: Door, request: web.BaseRequest, session: str) -> web.StreamResponse:
    """Answer with a stream of the session's events.

    Final refusals are problems; temporary trouble is a stream of one ``stream_error`` frame, so that an
    EventSource comes back (contract 3.10). A cursor at the end of a closed session is 204.
    """
    asked = wishes(request)
    beginning = parse_beginning(request)
    headers = ignored(door, session, beginning)
    options = SubscribeOptions(
        **asked,
        **_on_loss(request),
        cursor=beginning.cursor,
        from_start=beginning.from_start,
        epoch_birth=parse_birth(request) if beginning.cursor is not None else None,
        client=client_of(request, door.options.trusted_proxies),
        trace=trace_of(door, request),
    )
    return await admitted(door, door.hub.subscribe(session, options), headers, lambda: door.hub.epoch_token(session))


async def admitted(
    door: Door, admission: Awaitable[Subscriber | Many], headers: dict[str, str], token: Callable[[], str]
) -> web.StreamResponse:
    """Return the stream of a reader once it is admitted, or what is to be said instead; ``token`` is the epoch's."""
    try:
        reader = await admission
    except Unavailable as error:
        if door.options.stream_errors == "status":
            raise
        return _error_stream(door, error, {**headers, **epoch(token)})
    headers["X-Stream-Id"] = reader.stream_id
    headers.update(_epoch_headers(reader.epoch_token))
    if reader.ended:
        return web.Response(status=204, headers=headers)
    if reader.start_id is not None:
        headers["X-Start-Event-Id"] = str(reader.start_id)
    return EventStream(reader, headers)


async def head_stream(door: Door, request: web.BaseRequest, session: str) -> web.StreamResponse:
    """Answer with a stream's headers only: no reader, no slot."""
    wishes(request)
    _on_loss(request)
    headers = ignored(door, session, parse_beginning(request))
    return web.Response(headers={**STREAM_HEADERS, **headers, **epoch(lambda: door.hub.epoch_token(session))})


def _on_loss(request: web.BaseRequest) -> dict[str, Any]:
    """Return what a stream of one session wants of its stored state (contract 10.2)."""
    return {"resync": resync(request), "snapshot": switch(request, "snapshot", "invalid_snapshot_parameter")}


def wishes(request: web.BaseRequest) -> dict[str, Any]:
    """Return what the query says of a stream, but for its beginning; raises for the first value that is none."""
    return {
        "max_queued": max_queued(request),
        "anchor": switch(request, "anchor", "invalid_anchor"),
        "overflow": overflow(request),
        "coalesce": switch(request, "coalesce", "invalid_coalesce"),
        "cloudevents": cloudevents(request),
    }


def ignored(door: Door, session: str, beginning: Beginning[Any]) -> dict[str, str]:
    """Return the header that says why a cursor was not taken, and tell the observer."""
    if beginning.ignored is None:
        return {}
    door.hub.observer.cursor_ignored(session, beginning.ignored)
    return {"X-Cursor-Ignored": beginning.ignored}


def epoch(token: Callable[[], str]) -> dict[str, str]:
    """Return the epoch headers, none while the log has never been seen."""
    try:
        return _epoch_headers(token())
    except LogUnavailable:
        return {}


def _epoch_headers(token: str) -> dict[str, str]:
    return {"X-Event-Epoch": token, "X-Qwen-Event-Epoch": token}


def _error_stream(door: Door, error: Unavailable, headers: dict[str, str]) -> web.Response:
    """Return a whole stream that says what is wrong, when to come back, and ends."""
    wait = max(door.hub.limits.retry_ms, round(error.retry_after * 1000))
    # Spread upwards only: nobody is told to come back before the time that was named.
    retry = round(wait * random.uniform(1, 1 + 2 * RETRY_JITTER))
    data = {"error": str(error), "errorKind": error.code, "retryAfterMs": round(error.retry_after * 1000)}
    frame = control_frame("stream_error", data, time.time_ns() // 1_000_000)
    response = web.Response(body=with_retry(retry, frame), headers={**STREAM_HEADERS, **headers})
    response.force_close()
    return response
