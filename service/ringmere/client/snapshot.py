"""A session's stored state: load it, store it, remove it (contract 10.1).

::

    snapshot = await get_snapshot(url, "demo")
    async with follow(url, "demo", from_=snapshot.last_event_id if snapshot else "start") as stream: ...
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import aiohttp
import msgspec

from ringmere.client.errors import BrokenStream, ClientError, Unreachable, refusal
from ringmere.core.errors import InvalidSnapshot
from ringmere.core.session import check_session_id

TIMEOUT = aiohttp.ClientTimeout(total=30.0)


class StoredState(NamedTuple):
    """A stored state that covers everything up to ``last_event_id``: resume behind that.

    ``final``: nothing is to come behind it. ``event_epoch`` is the log's token, ``updated_at`` milliseconds since 1970.
    """

    last_event_id: int
    state: Any
    final: bool
    event_epoch: str
    updated_at: int


async def get_snapshot(url: str, session: str, *, headers: Mapping[str, str] | None = None) -> StoredState | None:
    """Return the session's stored state, None when there is none that a resume could begin with.

    Raises :class:`~ringmere.client.errors.Refused`, or ``Unreachable`` when nothing answers.
    """
    status, body = await _ask("GET", url, session, headers)
    if status != 200:
        refused = refusal(status, body)
        if refused.code == "snapshot_not_found":
            return None
        raise refused
    answer = _decoded(body)
    try:
        return StoredState(
            answer["lastEventId"], answer["state"], answer["final"], answer["eventEpoch"], answer["updatedAt"]
        )
    except KeyError as error:
        raise BrokenStream(f"the answer is no snapshot: {error} is missing") from error


async def put_snapshot(
    url: str,
    session: str,
    last_event_id: int,
    state: Any,
    *,
    final: bool = False,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Store ``state``, which covers everything up to ``last_event_id``; the same again is safe.

    Raises :class:`~ringmere.client.errors.Refused` with code ``newer_snapshot`` when a stored one covers more (its
    ``problem["lastEventId"]`` says how much), ``unknown_event_id`` when the id is none of the session's log;
    ``Unreachable`` when nothing answers: then it may be stored. What has no JSON is an ``InvalidSnapshot`` before
    anything is sent.
    """
    draft = {"lastEventId": last_event_id, "state": state, "final": final}
    try:
        body = json.dumps(draft, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSnapshot(str(error)) from error
    fields = {**(headers or {}), "Content-Type": "application/json"}
    status, answer = await _ask("PUT", url, session, fields, body)
    if status not in (200, 201):
        raise refusal(status, answer)


async def drop_snapshot(url: str, session: str, *, headers: Mapping[str, str] | None = None) -> None:
    """Remove the session's stored state, if there is one; raises as :func:`get_snapshot` does."""
    status, body = await _ask("DELETE", url, session, headers)
    if status != 204:
        raise refusal(status, body)


async def _ask(
    method: str, url: str, session: str, headers: Mapping[str, str] | None, body: bytes | None = None
) -> tuple[int, bytes]:
    check_session_id(session)
    address = f"{url.rstrip('/')}/session/{session}/snapshot"
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as http,
            http.request(method, address, data=body, headers=headers) as response,
        ):
            return response.status, await response.read()
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise ClientError(f"no address of a gateway: {error}") from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Unreachable(str(error) or type(error).__name__, maybe_done=method != "GET") from error


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BrokenStream(f"the answer is no JSON object: {error}") from error
