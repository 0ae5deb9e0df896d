"""``/events``: many sessions on one connection, and which ones, changed while it is open (contract 7)."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from ringmere.core.composite import parse_composite
from ringmere.core.errors import InvalidParameter, MalformedBody
from ringmere.core.session import check_session_id
from ringmere.core.strict_json import load
from ringmere.http.body import json_body
from ringmere.http.client_address import client_of
from ringmere.http.cursor import beginning_at, births_of, parse_births, parse_points
from ringmere.http.entrance import Entrance
from ringmere.http.options import Door
from ringmere.http.parameters import id_text, single
from ringmere.http.problems import json_response
from ringmere.http.sse import admitted, head, wishes
from ringmere.http.trace import trace_of
from ringmere.hub.many import Many
from ringmere.hub.membership import Change
from ringmere.hub.options import ManyOptions

_FIELDS = {"add", "drop", "from"}


async def open_events(door: Door, request: web.BaseRequest) -> web.StreamResponse:
    """Answer with a stream of the events of all sessions that are named, or of those that match."""
    return await admitted(door, entrance(door, request))


async def head_events(door: Door, request: web.BaseRequest) -> web.StreamResponse:
    """Answer with such a stream's headers only: no reader, no slot."""
    return head(door, entrance(door, request))


def entrance(door: Door, request: web.BaseRequest) -> Entrance:
    """Return the way into the stream of many sessions that a request asks for."""
    sessions, prefix = _followed(request)
    asked = wishes(request)
    shards = door.hub.log.shards
    beginning = parse_points(request, shards)
    options = ManyOptions(
        **asked,
        points=beginning.cursor,
        from_start=beginning.from_start,
        births=parse_births(request, shards) if beginning.cursor is not None else (),
        client=client_of(request, door.options.trusted_proxies),
        trace=trace_of(door, request),
    )
    return _into(door, sessions, prefix, options, beginning.ignored)


def _into(door: Door, sessions: list[str], prefix: str | None, options: ManyOptions, ignored: str | None) -> Entrance:
    many, shards = door.hub.many, door.hub.log.shards

    def admit() -> Awaitable[Many]:
        return many.subscribe(sessions, options) if prefix is None else many.subscribe_matching(prefix, options)

    def behind(text: str, epoch: str | None) -> Entrance:
        given = beginning_at(text, lambda one: parse_composite(one, shards))
        births = births_of(epoch, shards) if given.cursor is not None else ()
        there = replace(options, points=given.cursor, from_start=False, births=births)
        return _into(door, sessions, prefix, there, given.ignored)

    return Entrance(_label(sessions, prefix), ignored, admit, many.epoch_tokens, behind)


async def change_stream(door: Door, request: web.BaseRequest, stream_id: str) -> web.Response:
    """Add sessions to an open stream, whichever instance has it, and drop others; say how to come back to it."""
    async with json_body(door, request) as body:
        change = _change(body)
    changed = await door.hub.many.membership.change(stream_id, change)
    query = urlencode({"session": ",".join(changed.sessions), "last_event_id": changed.cursor}, safe=",:@~=")
    return json_response({"sessions": changed.sessions, "lastEventId": changed.cursor, "url": f"/events?{query}"})


def _followed(request: web.BaseRequest) -> tuple[list[str], str | None]:
    """Return the sessions that a request names, or the prefix of those it means."""
    named = [one for value in request.query.getall("session", []) for one in value.split(",")]
    match = single(request, "match", "invalid_match")
    if bool(named) is (match is not None):
        raise InvalidParameter("invalid_sessions", "either session or match says which sessions are followed")
    if match is None:
        return list(dict.fromkeys(check_session_id(one) for one in named)), None
    if not match.endswith("*"):
        raise InvalidParameter("invalid_match", "match is the beginning of an id and a * behind it")
    return [], id_text(match[:-1], "match", "invalid_match")


def _label(sessions: list[str], prefix: str | None) -> str:
    return f"{prefix}*" if prefix is not None else ",".join(sessions[:1])


def _change(body: bytes) -> Change:
    """Return the change that a body asks for."""
    value = load(body)
    if not isinstance(value, dict) or not set(value) <= _FIELDS:
        raise MalformedBody(f"the body is an object with {', '.join(sorted(_FIELDS))}")
    begin = value.pop("from", "live")
    if begin not in ("live", "start"):
        raise MalformedBody("from is live or start")
    try:
        change = msgspec.convert({**value, "from_start": begin == "start"}, Change)
    except msgspec.ValidationError as error:
        raise MalformedBody(f"add and drop are arrays of session ids: {error}") from error
    for session in (*change.add, *change.drop):
        check_session_id(session)
    return change
