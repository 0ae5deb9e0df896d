"""Lists of sessions, a page at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ringmere.core.event import is_terminal
from ringmere.core.limits import LISTED_BYTES
from ringmere.log.leader import Found, Leader
from ringmere.log.names import Names, choose
from ringmere.log.places import Place, Places
from ringmere.log.port import SessionPage, SessionState

PIPELINE = 64
"""Sessions of a page looked at at once, at the most."""
ANSWERS = 3
"""Times the largest event that the answers about one session take: its first and its last event, in base64."""


class Listing:
    """Lists sessions of all shards; ``largest`` tells the size in bytes that an event has at most.

    A page is as fresh as its reads. Which sessions there are is asked anew for a first page; the pages after it read
    the names that were found then, or some seconds ago by somebody else. So a session that is there all the time is
    in exactly one page of a walk, whatever comes and goes meanwhile.
    """

    def __init__(self, leader: Leader, places: Places, largest: Callable[[], int]) -> None:
        self._leader = leader
        self._places = places
        self._largest = largest
        self._names = Names(leader, places)

    async def page(self, prefix: str, after: str, limit: int) -> SessionPage:
        """Return at most ``limit`` sessions, ids greater than ``after``, that have messages stored."""
        names = await (self._names.recent() if after else self._names.fresh())
        chosen = choose(names, prefix, after, limit + 1)
        states = await self._states(chosen[:limit])
        return SessionPage(states, chosen[limit - 1] if len(chosen) > limit else None)

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the ids of sessions that have messages stored, ascending, at most ``limit``."""
        return choose(await self._names.fresh(), prefix, "", limit)

    async def session(self, place: Place) -> SessionState | None:
        """Return one session's state, None when nothing is stored."""
        first, last, state = await asyncio.gather(
            self._leader.next(place.stream, place.subject, 1),
            self._leader.last(place.stream, place.subject),
            self._leader.state(place.stream, place.subject),
        )
        stored = (state.subjects or {}).get(place.subject, 0)
        return _state(place, first, last, stored)

    def close(self) -> None:
        """End what nobody waits for any more."""
        self._names.close()

    async def _states(self, names: Sequence[str]) -> list[SessionState]:
        """Look at sessions, so many at once that the server's answers never fill the connection that all share."""
        found: list[SessionState] = []
        pipeline = max(1, min(PIPELINE, LISTED_BYTES // (ANSWERS * max(1, self._largest()))))
        for start in range(0, len(names), pipeline):
            places = [self._places.of(name) for name in names[start : start + pipeline]]
            states = await asyncio.gather(*(self.session(place) for place in places))
            found += [state for state in states if state is not None]
        return found


def _state(place: Place, first: Found | None, last: Found | None, stored: int) -> SessionState | None:
    if first is None or last is None or not stored:
        return None
    newest = last.stored
    return SessionState(
        place.session, first.stored.seq, newest.seq, stored, newest.time_ns, is_terminal(newest.payload)
    )
