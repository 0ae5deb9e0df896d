"""Lists of sessions, out of the subjects that a stream counts."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ringmere.core.event import is_terminal
from ringmere.core.session import is_session_id
from ringmere.log.leader import Found, Leader
from ringmere.log.places import Place, Places
from ringmere.log.port import SessionPage, SessionState

NAMES_AGE = 5.0
"""Seconds that the names found for a first page serve the pages after it."""
PIPELINE = 64
"""Sessions of a page looked at at once."""


class Listing:
    """Lists sessions of all shards.

    A page is as fresh as its reads; which sessions there are is asked anew for a first page only, since the
    names of 100,000 sessions cost the server a tenth of a second.
    """

    def __init__(self, leader: Leader, places: Places) -> None:
        self._leader = leader
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._names: list[str] = []
        self._names_until = 0.0

    async def page(self, prefix: str, after: str, limit: int) -> SessionPage:
        """Return at most ``limit`` sessions, ids greater than ``after``, that have messages stored."""
        names = await self._all_names(fresh=not after)
        chosen = _choose(names, prefix, after, limit + 1)
        states = await self._states(chosen[:limit])
        return SessionPage(states, chosen[limit - 1] if len(chosen) > limit else None)

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the ids of sessions that have messages stored, ascending, at most ``limit``."""
        return _choose(await self._all_names(fresh=True), prefix, "", limit)

    async def session(self, place: Place) -> SessionState | None:
        """Return one session's state, None when nothing is stored."""
        first, last, state = await asyncio.gather(
            self._leader.next(place.stream, place.subject, 1),
            self._leader.last(place.stream, place.subject),
            self._leader.state(place.stream, place.subject),
        )
        stored = (state.subjects or {}).get(place.subject, 0)
        return _state(place, first, last, stored)

    async def _all_names(self, *, fresh: bool) -> list[str]:
        if fresh or self._loop.time() >= self._names_until:
            names: set[str] = set()
            for stream, every in self._places.streams():
                subjects = await self._leader.subjects(stream, every)
                names.update(subject.rsplit(".", 1)[1] for subject in subjects)
            self._names = sorted(names)
            self._names_until = self._loop.time() + NAMES_AGE
            self._loop.call_later(NAMES_AGE, self._forget)
        return self._names

    def _forget(self) -> None:
        if self._loop.time() >= self._names_until:
            self._names = []

    async def _states(self, names: Sequence[str]) -> list[SessionState]:
        found: list[SessionState] = []
        for start in range(0, len(names), PIPELINE):
            places = [self._places.of(name) for name in names[start : start + PIPELINE]]
            states = await asyncio.gather(*(self.session(place) for place in places))
            found += [state for state in states if state is not None]
        return found


def _choose(names: list[str], prefix: str, after: str, count: int) -> list[str]:
    """Return the first names behind ``after``; what a direct publisher stored under no session id is none."""
    chosen: list[str] = []
    for index in range(max(bisect_right(names, after), bisect_left(names, prefix)), len(names)):
        name = names[index]
        if len(chosen) == count or not name.startswith(prefix):
            break
        if is_session_id(name):
            chosen.append(name)
    return chosen


def _state(place: Place, first: Found | None, last: Found | None, stored: int) -> SessionState | None:
    if first is None or last is None or not stored:
        return None
    newest = last.stored
    return SessionState(
        place.session, first.stored.seq, newest.seq, stored, newest.time_ns, is_terminal(newest.payload)
    )
