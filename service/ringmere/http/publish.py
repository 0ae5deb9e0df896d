"""``POST /session/{id}/events``: append one event or a batch (contract 2)."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from ringmere.core.cursor import parse_cursor
from ringmere.core.errors import (
    EventTooLarge,
    InvalidExpectation,
    InvalidKey,
    InvalidParameter,
    RingmereError,
    Unavailable,
)
from ringmere.core.event import Draft, check_key
from ringmere.core.trace import TraceContext
from ringmere.http.body import whole_body
from ringmere.http.intake import parser_of
from ringmere.http.options import Door
from ringmere.http.parameters import switch
from ringmere.http.problems import json_response
from ringmere.http.trace import trace_of
from ringmere.hub.publish import Published

DEGRADED = {"id": None, "degraded": True}
"""The answer for an event that went out to live readers and was not stored (contract 8.2)."""


async def publish(door: Door, request: web.BaseRequest, session: str) -> web.Response:
    """Append the event, or the array of events, that the body holds; they may be CloudEvents (contract 2.11).

    The answer comes after the log has acknowledged. Of repeated headers none is guessed at: 400.
    """
    atomic = switch(request, "atomic", "invalid_atomic")
    key = _key(request)
    expected = _expected(request)
    # What asks for more than to be seen is never sent without being stored.
    may_degrade = _degraded(request) and expected is None and not atomic
    trace = trace_of(door, request)
    schemas = door.options.schemas()
    check = schemas.check if schemas is not None else None
    parse = parser_of(request)
    async with whole_body(door, request) as body:
        parsed = parse(body, check, key is None)
        if isinstance(parsed, list):
            return await _batch(door, session, parsed, key, atomic, expected, may_degrade, trace)
        draft = _keyed(parsed, key)
        _check_size(door, draft)
        if may_degrade and await door.hub.publish_degraded(session, [draft], trace):
            return json_response(DEGRADED, 202)
        published = await door.hub.publish(session, draft, expected, trace)
    answer = {"id": published.id, "sessionId": session, "duplicate": published.duplicate}
    return json_response(answer, 200 if published.duplicate else 201)


async def _batch(
    door: Door,
    session: str,
    drafts: list[Draft],
    key: str | None,
    atomic: bool,
    expected: int | None,
    may_degrade: bool,
    trace: TraceContext | None,
) -> web.Response:
    if expected is not None and not atomic:
        raise InvalidExpectation("Expected-Last-Event-Id on a batch needs ?atomic=1")
    if key is not None:
        drafts = [_keyed(draft, f"{key}/{index}") for index, draft in enumerate(drafts)]
    for draft in drafts:
        _check_size(door, draft)
    if may_degrade and await door.hub.publish_degraded(session, drafts, trace):
        return json_response({"sessionId": session, "results": [DEGRADED for _ in drafts]}, 202)
    results = await door.hub.publish_batch(session, drafts, atomic=atomic, expected_id=expected, trace=trace)
    _raise_if_nothing_went(results)
    answer = {"sessionId": session, "results": [_row(result) for result in results]}
    return json_response(answer, _batch_status(results))


def _check_size(door: Door, draft: Draft) -> None:
    """Refuse what the log would not take before anything of its batch is stored (contract 2.2, 2.6)."""
    limit = door.hub.log.max_event_bytes
    if len(draft.payload) > limit:
        raise EventTooLarge(len(draft.payload), limit)


def _raise_if_nothing_went(results: list[Published | RingmereError]) -> None:
    """Raise when the log failed all rows alike: the request as a whole is to be tried again."""
    first = results[0]
    if isinstance(first, Unavailable) and all(type(result) is type(first) for result in results):
        raise first


def _batch_status(results: list[Published | RingmereError]) -> int:
    if any(isinstance(result, RingmereError) for result in results):
        return 207
    new = any(isinstance(result, Published) and not result.duplicate for result in results)
    return 201 if new else 200


def _row(result: Published | RingmereError) -> dict[str, Any]:
    if isinstance(result, RingmereError):
        return {"code": result.code, "detail": str(result)}
    return {"id": result.id, "duplicate": result.duplicate}


def _keyed(draft: Draft, key: str | None) -> Draft:
    """Return the draft with the request's key, unless its own row names one."""
    return draft if key is None or draft.key is not None else draft._replace(key=key)


def _key(request: web.BaseRequest) -> str | None:
    values = request.headers.getall("Idempotency-Key", [])
    if len(values) > 1:
        raise InvalidKey("Idempotency-Key is given more than once")
    return check_key(values[0]) if values else None


def _degraded(request: web.BaseRequest) -> bool:
    """Return whether the publisher takes live readers only, while the log does not store (contract 8.2)."""
    values = request.headers.getall("Degraded", [])
    if values not in ([], ["allow"]):
        raise InvalidParameter("invalid_degraded", "Degraded can only be allow")
    return bool(values)


def _expected(request: web.BaseRequest) -> int | None:
    values = request.headers.getall("Expected-Last-Event-Id", [])
    if not values:
        return None
    expected = parse_cursor(values[0]) if len(values) == 1 else None
    if expected is None:
        raise InvalidExpectation("Expected-Last-Event-Id must be one event id, or 0 for none")
    return expected
