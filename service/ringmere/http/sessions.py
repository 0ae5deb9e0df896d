"""Sessions as things: make one, close or purge one, list them, look at one, or at who lags (contract 10.4)."""

from __future__ import annotations

from aiohttp import web

from ringmere.core.session import fresh_session_id
from ringmere.http.options import Door
from ringmere.http.parameters import DEFAULT_LAGGARDS, DEFAULT_LIST, MAX_LIST, id_part, number, switch
from ringmere.http.problems import json_response


async def create_session(door: Door, request: web.BaseRequest) -> web.Response:
    """Give a fresh id. Nothing is stored: a session begins with its first event."""
    session = fresh_session_id()
    headers = {"Location": f"/session/{session}"}
    return json_response({"sessionId": session}, 201, headers)


async def close_session(door: Door, request: web.BaseRequest, session: str) -> web.Response:
    """Publish ``session_closed``; with ``?purge=1`` remove the session from the log instead."""
    if switch(request, "purge", "invalid_purge"):
        await door.hub.purge(session)
    else:
        await door.hub.close_session(session)
    return web.Response(status=204)


async def list_sessions(door: Door, request: web.BaseRequest) -> web.Response:
    """List sessions that have events stored, by ascending id, a page at a time."""
    limit = number(request, "limit", "invalid_limit", 1, MAX_LIST) or DEFAULT_LIST
    prefix = id_part(request, "prefix", "invalid_prefix")
    after = id_part(request, "after", "invalid_after")
    page = await door.hub.sessions(prefix, after, limit)
    answer: dict[str, object] = {"sessions": page.sessions}
    if page.next is not None:
        answer["next"] = page.next
    return json_response(answer)


async def show_session(door: Door, request: web.BaseRequest, session: str) -> web.Response:
    """Show one session with its readers on this instance."""
    return json_response(await door.hub.session(session))


async def list_readers(door: Door, request: web.BaseRequest) -> web.Response:
    """List the readers that are furthest behind, of all sessions."""
    limit = number(request, "limit", "invalid_limit", 1, MAX_LIST) or DEFAULT_LAGGARDS
    ask = door.options.readers
    return json_response({"readers": door.hub.laggards(limit) if ask is None else await ask(limit)})
