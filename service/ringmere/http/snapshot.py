"""``/session/{id}/snapshot``: the state of a session as somebody who knows it has stored it (contract 10.1)."""

from __future__ import annotations

import msgspec
from aiohttp import web

from ringmere.core.snapshot import parse_snapshot
from ringmere.http.body import json_body
from ringmere.http.cursor import parse_birth
from ringmere.http.options import Door
from ringmere.http.problems import json_response


async def put_snapshot(door: Door, request: web.BaseRequest, session: str) -> web.Response:
    """Store the state that the body holds; 201 when there was none, 200 when it replaces one."""
    birth = parse_birth(request)
    async with json_body(door, request) as body:
        draft = parse_snapshot(body)
        replaced = await door.hub.snapshots.put(session, draft, birth)
    answer = {"sessionId": session, "lastEventId": draft.last_event_id, "final": draft.final}
    token = door.hub.epoch_token(session)
    return json_response({**answer, "eventEpoch": token}, 200 if replaced else 201)


async def get_snapshot(door: Door, request: web.BaseRequest, session: str) -> web.Response:
    """Give the stored state; 304 to who names the one it has. Caches may keep it, but must ask each time."""
    snapshot = await door.hub.snapshots.get(session)
    token = door.hub.epoch_token(session)
    etag = f'"{snapshot.updated_ns:x}-{token}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if any(known in ("*", etag, f"W/{etag}") for known in _known(request)):
        return web.Response(status=304, headers=headers)
    answer = {
        "sessionId": session,
        "lastEventId": snapshot.last_event_id,
        "state": msgspec.Raw(snapshot.state),
        "final": snapshot.final,
        "eventEpoch": token,
        "updatedAt": snapshot.updated_ns // 1_000_000,
    }
    return json_response(answer, headers=headers)


async def drop_snapshot(door: Door, request: web.BaseRequest, session: str) -> web.Response:
    """Remove the stored state; it is no error when there is none."""
    await door.hub.snapshots.drop(session)
    return web.Response(status=204)


def _known(request: web.BaseRequest) -> list[str]:
    """Return the tags of ``If-None-Match``; ours hold no comma."""
    return [tag.strip() for value in request.headers.getall("If-None-Match", []) for tag in value.split(",")]
