"""Cancel tasks, and look whether a task is cancelled (contract 10.3)."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import msgspec

from ringmere.client.caller import Caller
from ringmere.client.errors import BrokenStream
from ringmere.core.control import check_reason
from ringmere.core.session import check_session_id


class Cancellation(NamedTuple):
    """That a task is to end: since when, milliseconds since 1970, and why. The first request's."""

    requested_at: int
    reason: str | None = None


async def cancel(caller: Caller, session: str, task: str, reason: str | None, deadline: float) -> Cancellation:
    """Cancel a task and return what holds now: this cancel, or the one before it.

    Raises as :meth:`~ringmere.client.caller.Caller.call` does, and ``InvalidCancel`` for what is no reason.
    """
    body = {} if reason is None else {"reason": check_reason(reason)}
    answer = await caller.call("POST", _path(session, task), body=json.dumps(body).encode(), deadline=deadline)
    found = _cancellation(answer)
    if found is None:
        raise BrokenStream("the answer to a cancel says that the task is not cancelled")
    return found


async def look(caller: Caller, session: str, task: str, deadline: float) -> Cancellation | None:
    """Return the cancel of a task, None when there is none; raises as :func:`cancel` does."""
    return _cancellation(await caller.call("GET", _path(session, task), deadline=deadline))


async def wait(caller: Caller, session: str, task: str, seconds: int) -> Cancellation | None:
    """Return the cancel of a task as soon as there is one, None when there is none within ``seconds``.

    Tries for ever, so what it raises is never ``Unreachable``.
    """
    params = {"wait": str(seconds)}
    answer = await caller.call("GET", _path(session, task), params=params, wait=seconds, deadline=math.inf)
    return _cancellation(answer)


def _path(session: str, task: str) -> str:
    return f"/session/{check_session_id(session)}/tasks/{check_session_id(task)}/cancel"


def _cancellation(body: bytes) -> Cancellation | None:
    try:
        answer = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BrokenStream(f"the answer about a cancel is no JSON object: {error}") from error
    if answer.get("cancelled") is False:
        return None
    requested_at, reason = answer.get("requestedAt"), answer.get("reason")
    if answer.get("cancelled") is not True or type(requested_at) is not int:
        raise BrokenStream("the answer about a cancel does not say whether there is one")
    return Cancellation(requested_at, reason if isinstance(reason, str) else None)
