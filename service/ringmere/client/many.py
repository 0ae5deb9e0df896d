"""Follow many sessions on one connection: the same iterator, its items name their session, one cursor for all.

::

    async with follow_many("http://127.0.0.1:8080", "a", "b", from_="start") as stream:
        async for item in stream:
            print(item.session, item.type)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import aiohttp
import msgspec

from ringmere.client.backoff import Backoff
from ringmere.client.connect import Options, Position
from ringmere.client.errors import Refused, Unreachable, refusal
from ringmere.client.items import RESYNC, Connected, Control, Event, Resync, Waiting, resync_of
from ringmere.client.stream import Stream
from ringmere.core.composite import is_composite
from ringmere.core.errors import InvalidParameter
from ringmere.core.limits import MAX_DECODED_BYTES
from ringmere.core.session import check_session_id

COMPLETE = "replay_complete"


def follow_many(
    url: str,
    *sessions: str,
    match: str | None = None,
    from_: str | Literal["live", "start"] = "live",
    http: aiohttp.ClientSession | None = None,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
    heartbeat: float = 15.0,
    connect_timeout: float = 10.0,
    backoff: Backoff | None = None,
    max_event_bytes: int = MAX_DECODED_BYTES,
    on_state: Callable[[Connected | Waiting], None] | None = None,
    roll: Callable[[], float] = random.random,
) -> ManyStream:
    """Return a stream of the named ``sessions``, or of all that ``match`` a prefix with a ``*`` behind it.

    ``from_`` is ``"live"``, ``"start"``, or the :attr:`ManyStream.cursor` of an earlier stream. For everything else
    see :func:`~ringmere.client.stream.follow`.
    """
    if bool(sessions) is (match is not None):
        raise InvalidParameter("invalid_sessions", "either sessions or match says which sessions are followed")
    if from_ not in ("live", "start") and not is_composite(from_):
        raise InvalidParameter("invalid_cursor", f"{from_!r} is no cursor")
    options = Options(
        f"{url.rstrip('/')}/events",
        dict(headers or {}),
        {**(params or {}), **({"match": match} if match is not None else {})},
        heartbeat,
        connect_timeout,
        backoff or Backoff(),
        max_event_bytes,
    )
    cursor = None if from_ in ("live", "start") else from_
    position = Position(None, from_start=from_ == "start", text=cursor)
    return ManyStream(url, [check_session_id(one) for one in sessions], options, position, http, on_state, roll)


class ManyStream(Stream):
    """The items of many sessions; made by :func:`follow_many`.

    ``resyncs`` has the verdicts that wait for the user's reload, by session. ``ended`` turns True when all named
    sessions are closed and everything of them was handed over.
    """

    def __init__(
        self,
        url: str,
        sessions: list[str],
        options: Options,
        position: Position,
        http: aiohttp.ClientSession | None,
        on_state: Callable[[Connected | Waiting], None] | None,
        roll: Callable[[], float],
    ) -> None:
        super().__init__(options, position, http, on_state, roll)
        self.resyncs: dict[str, Resync] = {}
        self._url = url.rstrip("/")
        self._sessions = dict.fromkeys(sessions)
        self._replaying: dict[str, None] = {}

    @property
    def cursor(self) -> str | None:
        """The cursor of all sessions: behind the item handed over last, or where a live stream began."""
        return self._position.text

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions that are followed by name."""
        return tuple(self._sessions)

    def reload(self, session: str) -> None:
        """Tell that the state of a session was loaded anew after a verdict: its events count again from here."""
        self.resyncs.pop(session, None)

    async def change(self, *, add: Iterable[str] = (), drop: Iterable[str] = (), from_start: bool = False) -> None:
        """Follow more sessions and others no more; ``from_start`` replays the rings of the added ones first.

        Lasts over reconnects. Raises :class:`~ringmere.client.errors.Refused`, or ``Unreachable``.
        """
        added = [check_session_id(one) for one in add if one not in self._sessions]
        dropped = [check_session_id(one) for one in drop]
        if self._connection is not None:
            await self._post(added, dropped, from_start=from_start)
        self._sessions = dict.fromkeys(one for one in (*self._sessions, *added) if one not in dropped)
        if from_start:
            self._replaying |= dict.fromkeys(added)
        for one in dropped:
            self._replaying.pop(one, None)
            self.resyncs.pop(one, None)

    async def _post(self, add: Iterable[str], drop: Iterable[str], *, from_start: bool) -> None:
        connection, http = self._connection, self._http
        assert connection is not None
        assert http is not None
        body = {"add": list(add), "drop": list(drop), "from": "start" if from_start else "live"}
        address = f"{self._url}/streams/{connection.stream_id}/sessions"
        headers = {**self._options.headers, "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=self._options.connect_timeout)
        try:
            async with http.post(address, data=msgspec.json.encode(body), headers=headers, timeout=timeout) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(str(error) or type(error).__name__, maybe_done=True) from error
        if answer.status >= 500:
            raise Unreachable(f"HTTP {answer.status}", maybe_done=answer.status == 504)
        if answer.status != 200:
            raise refusal(answer.status, text)

    def _query(self) -> dict[str, str]:
        """Return the sessions that the cursor covers; what is still replayed is added again once connected."""
        covered = [one for one in self._sessions if one not in self._replaying]
        return {"session": ",".join(covered or self._sessions)} if self._sessions else {}

    async def _connect(self) -> None:
        await super()._connect()
        if self._connection is not None and self._replaying:
            try:
                await self._post(self._replaying, (), from_start=True)
            except (Unreachable, Refused) as error:
                self._drop(str(error))

    def _move_to(self, text: str, epoch: str | None) -> None:
        if is_composite(text):
            self._position = Position(None, epoch, text=text)

    def _hand_over(self, item: Event | Control, last_id: str) -> Event | Control:
        session = item.session or ""
        if isinstance(item, Event):
            self._move_to(last_id, self._connection.epoch if self._connection else self._position.epoch)
            self._waits.progress()
            return item if session not in self.resyncs else item._replace(in_sync=False)
        if item.type == RESYNC:
            self.resyncs[session] = resync_of(item)
        elif item.type == COMPLETE and session:
            self._replaying.pop(session, None)
        else:
            super()._hand_over(item, last_id)
        return item
