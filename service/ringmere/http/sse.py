"""``GET`` and ``HEAD /session/{id}/events``: open a stream (contract 3)."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

from aiohttp import web

from ringmere.core.cursor import parse_cursor, parse_epoch_token
from ringmere.core.errors import Unavailable
from ringmere.core.frames import control_frame, with_retry
from ringmere.http.client_address import client_of
from ringmere.http.cursor import beginning_at, parse_beginning, parse_birth
from ringmere.http.entrance import Entrance, entrance_headers, epoch_headers, reader_headers
from ringmere.http.options import Door
from ringmere.http.parameters import cloudevents, max_queued, overflow, resync, switch
from ringmere.http.stream import STREAM_HEADERS, EventStream
from ringmere.http.trace import trace_of
from ringmere.hub.options import SubscribeOptions

RETRY_JITTER = 0.2
"""Share by which a reconnection time differs from reader to reader (contract 3.7)."""


async def open_stream(door: Door, request: web.BaseRequest, session: str) -> web.StreamResponse:
    """Answer with a stream of the session's events."""
    return await admitted(door, entrance(door, request, session))


def entrance(door: Door, request: web.BaseRequest, session: str) -> Entrance:
    """Return the way into a session's stream that a request asks for."""
    asked = wishes(request)
    beginning = parse_beginning(request)
    options = SubscribeOptions(
        **asked,
        **_on_loss(request),
        cursor=beginning.cursor,
        from_start=beginning.from_start,
        epoch_birth=parse_birth(request) if beginning.cursor is not None else None,
        client=client_of(request, door.options.trusted_proxies),
        trace=trace_of(door, request),
    )
    return _into(door, session, options, beginning.ignored)


def _into(door: Door, session: str, options: SubscribeOptions, ignored: str | None) -> Entrance:
    hub = door.hub

    def behind(text: str, epoch: str | None) -> Entrance:
        given = beginning_at(text, parse_cursor)
        birth = parse_epoch_token(epoch) if given.cursor is not None else None
        there = replace(options, cursor=given.cursor, from_start=False, epoch_birth=birth)
        return _into(door, session, there, given.ignored)

    return Entrance(session, ignored, lambda: hub.subscribe(session, options), lambda: hub.epoch_token(session), behind)


async def admitted(door: Door, way: Entrance) -> web.StreamResponse:
    """Return the stream of a reader once it is admitted, or what is to be said instead.

    Final refusals are problems; temporary trouble is a stream of one ``stream_error`` frame, so that an
    EventSource comes back (contract 3.10). A cursor at the end of a closed session is 204.
    """
    headers = entrance_headers(door, way)
    try:
        reader = await way.admit()
    except Unavailable as error:
        if door.options.stream_errors == "status":
            raise
        return _error_stream(door, error, {**headers, **epoch_headers(way)})
    headers.update(reader_headers(reader))
    if reader.ended:
        return web.Response(status=204, headers=headers)
    return EventStream(reader, headers)


async def head_stream(door: Door, request: web.BaseRequest, session: str) -> web.StreamResponse:
    """Answer with a stream's headers only: no reader, no slot."""
    return head(door, entrance(door, request, session))


def head(door: Door, way: Entrance) -> web.Response:
    """Return the headers of the stream that an entrance leads to."""
    return web.Response(headers={**STREAM_HEADERS, **entrance_headers(door, way), **epoch_headers(way)})


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
