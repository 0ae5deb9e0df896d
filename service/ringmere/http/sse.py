"""``GET`` and ``HEAD /session/{id}/events``: open a stream (contract 3)."""

from __future__ import annotations

import random
import time
from dataclasses import replace

from aiohttp import web

from ringmere.core.errors import LogUnavailable, Unavailable
from ringmere.core.frames import control_frame, with_retry
from ringmere.http.client_address import client_of
from ringmere.http.cursor import Beginning, parse_beginning, parse_birth
from ringmere.http.options import Door
from ringmere.http.parameters import max_queued, overflow, switch
from ringmere.http.stream import STREAM_HEADERS, EventStream
from ringmere.http.trace import trace_of
from ringmere.hub.subscriber import SubscribeOptions

RETRY_JITTER = 0.2
"""Share by which a reconnection time differs from reader to reader (contract 3.7)."""


async def open_stream(door: Door, request: web.BaseRequest, session: str) -> web.StreamResponse:
    """Answer with a stream of the session's events.

    Final refusals are problems; temporary trouble is a stream of one ``stream_error`` frame, so that an
    EventSource comes back (contract 3.10). A cursor at the end of a closed session is 204.
    """
    wishes = _wishes(request)
    beginning = parse_beginning(request)
    headers = _ignored(door, session, beginning)
    options = replace(
        wishes,
        cursor=beginning.cursor,
        from_start=beginning.from_start,
        epoch_birth=parse_birth(request) if beginning.cursor is not None else None,
        client=client_of(request, door.options.trusted_proxies),
        trace=trace_of(door, request),
    )
    try:
        subscriber = await door.hub.subscribe(session, options)
    except Unavailable as error:
        if door.options.stream_errors == "status":
            raise
        return _error_stream(door, error, {**headers, **_epoch(door, session)})
    headers["X-Stream-Id"] = subscriber.stream_id
    headers.update(_epoch_headers(subscriber.epoch_token))
    if subscriber.ended:
        return web.Response(status=204, headers=headers)
    if subscriber.start_id is not None:
        headers["X-Start-Event-Id"] = str(subscriber.start_id)
    return EventStream(subscriber, headers)


async def head_stream(door: Door, request: web.BaseRequest, session: str) -> web.StreamResponse:
    """Answer with a stream's headers only: no reader, no slot."""
    _wishes(request)
    headers = _ignored(door, session, parse_beginning(request))
    return web.Response(headers={**STREAM_HEADERS, **headers, **_epoch(door, session)})


def _wishes(request: web.BaseRequest) -> SubscribeOptions:
    """Return what the query says of the stream, but for its beginning; raises for the first value that is none."""
    return SubscribeOptions(
        max_queued=max_queued(request),
        anchor=switch(request, "anchor", "invalid_anchor"),
        overflow=overflow(request),
        coalesce=switch(request, "coalesce", "invalid_coalesce"),
    )


def _ignored(door: Door, session: str, beginning: Beginning) -> dict[str, str]:
    if beginning.ignored is None:
        return {}
    door.hub.observer.cursor_ignored(session, beginning.ignored)
    return {"X-Cursor-Ignored": beginning.ignored}


def _epoch(door: Door, session: str) -> dict[str, str]:
    """Return the epoch headers, none while the log has never been seen."""
    try:
        return _epoch_headers(door.hub.epoch_token(session))
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
