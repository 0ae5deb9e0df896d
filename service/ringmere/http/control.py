"""``/session/{id}/tasks/{task}/cancel``: ask for a task's end, look for it, wait for it (contract 10.3)."""

from __future__ import annotations

import asyncio

from aiohttp import web

from ringmere.core.control import CancelFlag, describe_cancel, parse_cancel
from ringmere.core.limits import MAX_CANCEL_WAIT
from ringmere.http.body import json_body
from ringmere.http.options import Door
from ringmere.http.parameters import number
from ringmere.http.problems import json_response
from ringmere.http.protocol import GatewayProtocol


async def cancel_task(door: Door, request: web.BaseRequest, session: str, task: str) -> web.Response:
    """Set the task's flag, whether anybody knows the task or not; a repeated cancel is answered with the first one."""
    flag = await door.hub.cancels.request(session, task, await _reason(door, request))
    return json_response(describe_cancel(session, task, flag), 202)


async def show_cancel(door: Door, request: web.BaseRequest, session: str, task: str) -> web.Response:
    """Tell whether the task is to end; with ``?wait=`` as soon as it is, or when so many seconds are over."""
    seconds = number(request, "wait", "invalid_wait", 0, MAX_CANCEL_WAIT)
    if seconds:
        flag = await _wait(door, request, session, task, seconds)
    else:
        flag = await door.hub.cancels.look(session, task)
    response = json_response(describe_cancel(session, task, flag))
    if door.hub.draining:
        # The next question is for another instance.
        response.force_close()
    return response


async def _reason(door: Door, request: web.BaseRequest) -> str | None:
    """Return the reason in the body. There may be none, but a browser has to declare JSON all the same.

    Without that any page could send this request across origins without asking first.
    """
    if not request.can_read_body and not {"Content-Type", "Origin"} & request.headers.keys():
        return None
    async with json_body(door, request) as body:
        return parse_cancel(body)


class _Leaving:
    """The ears of a waiting request's transport: whoever leaves waits no more."""

    def __init__(self, waiting: asyncio.Task[CancelFlag | None]) -> None:
        self._waiting = waiting

    def pause(self) -> None:
        """Nothing is written while a request waits."""

    def resume(self) -> None:
        """Nothing is written while a request waits."""

    def lost(self) -> None:
        """End the wait."""
        self._waiting.cancel()


async def _wait(door: Door, request: web.BaseRequest, session: str, task: str, seconds: float) -> CancelFlag | None:
    protocol = request.protocol
    waiting = asyncio.get_running_loop().create_task(door.hub.cancels.wait(session, task, seconds))
    if isinstance(protocol, GatewayProtocol):
        protocol.accompany(_Leaving(waiting))
    try:
        return await waiting
    except asyncio.CancelledError:
        if request.transport is None:
            raise ConnectionResetError("the client has gone") from None
        raise
    finally:
        waiting.cancel()
        if isinstance(protocol, GatewayProtocol):
            protocol.accompany(None)
