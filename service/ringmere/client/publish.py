"""Publish over HTTP with acknowledgement: every event carries a key, so trying again is always safe.

A key makes a second try of the same event a duplicate for the log (contract 2.3), also when the first try
was stored and only its answer got lost. That holds for the log's duplicate window, so a publisher gives up
well before its end.
"""

from __future__ import annotations

import json
import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
import msgspec

from ringmere.client.backoff import Backoff
from ringmere.client.caller import Caller
from ringmere.client.errors import BrokenStream, Refused
from ringmere.core.errors import InvalidBatch, InvalidEvent, RingmereError
from ringmere.core.event import check_key
from ringmere.core.limits import MAX_BATCH
from ringmere.core.session import check_session_id

_LOGGER = logging.getLogger("ringmere.client")

DEFAULT_PATIENCE = 60.0
"""How long one call keeps trying, in seconds; half of the log's shortest usual duplicate window."""
_ROW_TRY_LATER = frozenset({"log_unavailable", "publish_unconfirmed", "publish_overloaded", "unavailable"})
"""Codes of a batch's row that say "not now"."""


class Published(NamedTuple):
    """A stored event. ``duplicate``: an earlier try with the key had stored it, of this call or of another."""

    id: int
    duplicate: bool = False


class Publisher:
    """Publishes to the gateway at ``url``; one object serves any number of sessions and tasks.

    Of several gateways the next one is asked when one fails. ``http`` stays the caller's. ``timeout`` bounds one try,
    ``patience`` all tries of one call, in seconds.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        http: aiohttp.ClientSession | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        patience: float = DEFAULT_PATIENCE,
        backoff: Backoff | None = None,
        roll: Callable[[], float] = random.random,
    ) -> None:
        self._caller = Caller(url, http=http, headers=headers, timeout=timeout, backoff=backoff, roll=roll)
        self._patience = patience
        self.unsent: Counter[str] = Counter()
        """Events that :meth:`emit` could not publish, by the code of the error."""

    async def publish(
        self, session: str, event: Mapping[str, Any], *, key: str | None = None, expected: int | None = None
    ) -> Published:
        """Store one event (``type``, ``data`` and what else contract 2.1 allows) and return its id.

        ``key`` is the idempotency key, by default the event's own ``"key"`` or a random one. ``expected`` is
        the id that must be the session's last.

        Raises :class:`~ringmere.client.errors.Refused`, or ``Unreachable`` when patience ran out
        (``maybe_done`` then says whether it may be stored); a later call with the same key is safe.
        """
        headers = {} if expected is None else {"Expected-Last-Event-Id": str(expected)}
        return _published(await self._post_one(session, event, key, headers))

    async def emit(self, session: str, event: Mapping[str, Any], *, key: str | None = None) -> Published | None:
        """Store one event if it can be done, else count and log why and return None; never raises (contract 2.8).

        What is None here may be stored all the same, when only its answer got lost.
        """
        try:
            return await self.publish(session, event, key=key)
        except RingmereError as error:
            self.unsent[error.code] += 1
            _LOGGER.warning("an event of session %r was not published: %s", session, error)
            return None

    async def publish_or_degrade(
        self, session: str, event: Mapping[str, Any], *, key: str | None = None
    ) -> Published | None:
        """Store one event; while the log does not store, have it sent to live readers only and return None.

        Then it has no id, no reader that comes later gets it, and its key does not keep it from going out twice
        (contract 8.2). Raises as :meth:`publish` does.
        """
        answer = await self._post_one(session, event, key, {"Degraded": "allow"})
        return None if answer.get("degraded") is True else _published(answer)

    async def publish_batch(
        self,
        session: str,
        events: Sequence[Mapping[str, Any]],
        *,
        key: str | None = None,
        atomic: bool = False,
        expected: int | None = None,
    ) -> list[Published | Refused]:
        """Store 1 to 1000 events in order and return a result for each.

        Row *i* has the key ``<key>/<i>`` unless the event brings its own ``"key"``. Rows that could not be
        stored for the moment are tried again, behind the stored ones; with ``atomic`` all are stored or none.
        ``expected`` needs ``atomic``. Raises as :meth:`publish` does; a row refused for good is a ``Refused``
        in the list.
        """
        if not 1 <= len(events) <= MAX_BATCH:
            raise InvalidBatch(f"a batch has 1 to {MAX_BATCH} events, this one has {len(events)}")
        prefix = secrets.token_urlsafe(12) if key is None else check_key(key)
        check_key(f"{prefix}/{len(events) - 1}")
        rows = [{"key": f"{prefix}/{index}", **event} for index, event in enumerate(events)]
        headers = {} if expected is None else {"Expected-Last-Event-Id": str(expected)}
        params = {"atomic": "1"} if atomic else {}
        results: dict[int, Published | Refused] = {}
        open_rows = list(range(len(rows)))
        deadline = self._deadline()
        failures = 0
        while open_rows:
            body = b"[" + b",".join(_encode(rows[index], index) for index in open_rows) + b"]"
            answer = await self._post(session, body, headers, params, deadline)
            results.update(zip(open_rows, _row_results(answer, len(open_rows)), strict=True))
            open_rows = [index for index in open_rows if _is_open(results[index])]
            if open_rows:
                failures += 1
                cause = f"{len(open_rows)} rows not stored"
                await self._caller.pause(failures, 0.0, deadline, cause, True)
        return [results[index] for index in range(len(rows))]

    async def aclose(self) -> None:
        """Release the connections of a publisher that made its own; idempotent."""
        await self._caller.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _deadline(self) -> float:
        return time.monotonic() + self._patience

    async def _post_one(
        self, session: str, event: Mapping[str, Any], key: str | None, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        key = event.get("key") if key is None else key
        keyed = {**headers, "Idempotency-Key": secrets.token_urlsafe(12) if key is None else check_key(key)}
        body = _encode({name: value for name, value in event.items() if name != "key"}, None)
        return await self._post(session, body, keyed, {}, self._deadline())

    async def _post(
        self, session: str, body: bytes, headers: dict[str, str], params: dict[str, str], deadline: float
    ) -> dict[str, Any]:
        """Send until there is an answer that is final, and return its JSON object."""
        path = f"/session/{check_session_id(session)}/events"
        answer = await self._caller.call("POST", path, body=body, headers=headers, params=params, deadline=deadline)
        return _object(answer)


def _encode(event: Mapping[str, Any], index: int | None) -> bytes:
    """Return an event's JSON; what has none is an :class:`InvalidEvent` before anything is sent."""
    try:
        return json.dumps(dict(event), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(str(error), index) from error


def _object(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BrokenStream(f"the answer to a publish is no JSON object: {error}") from error


def _published(answer: Mapping[str, Any]) -> Published:
    public_id = answer.get("id")
    if type(public_id) is not int:
        raise BrokenStream("the answer to a publish has no id")
    return Published(public_id, answer.get("duplicate") is True)


def _row_results(answer: Mapping[str, Any], count: int) -> list[Published | Refused]:
    rows = answer.get("results")
    if not isinstance(rows, list) or len(rows) != count or not all(isinstance(row, dict) for row in rows):
        raise BrokenStream(f"the answer to a batch has no {count} results")
    return [_published(row) if "id" in row else _row_refusal(row) for row in rows]


def _row_refusal(row: dict[str, Any]) -> Refused:
    return Refused(207, str(row.get("code")), str(row.get("detail", "")), row)


def _is_open(result: Published | Refused) -> bool:
    return isinstance(result, Refused) and result.code in _ROW_TRY_LATER
