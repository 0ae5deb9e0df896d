"""Which sessions there are: their ids, out of the subjects that each shard's stream counts.

The names of 100,000 sessions are an answer of several megabytes, a tenth of a second of work for the server and
a thirtieth for an instance. So no two listings run at once, none takes the loop for longer than a slice of it, and a
walk over many pages reads the names it has found for a while.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from heapq import merge

import msgspec

from ringmere.core.errors import LogUnavailable
from ringmere.core.limits import MAX_LISTED
from ringmere.core.session import SESSION_ID
from ringmere.log.leader import Leader
from ringmere.log.places import Places

NAMES_AGE = 5.0
"""Seconds that the names found for a first page serve the pages after it."""
LONGEST_REST = 1.0
SLICE = 256 * 1024
"""Characters of an answer that are read in one turn of the loop: about a millisecond."""
OVERLAP = 1000
"""Subjects at the end of a server's page that are asked for again, to see that none fell between two pages."""
TRIES = 10
"""Pages in a row between which more than the overlap has gone."""

Runs = Sequence[list[str]]
"""The names of each shard, ascending."""


class Names:
    """Knows which sessions have messages stored."""

    def __init__(self, leader: Leader, places: Places) -> None:
        self._leader = leader
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[Runs] | None = None
        self._rest_until = 0.0
        self._found: Runs = ()
        self._found_until = 0.0

    async def fresh(self) -> Runs:
        """List them now; those who ask before a listing has begun share it.

        It waits for the one under way, and then for as long as that took, :data:`LONGEST_REST` at most: however many
        ask, the log does other things as well.
        """
        if self._next is None:
            self._next = self._loop.create_task(self._list())
            self._next.add_done_callback(_heard)
        return await asyncio.shield(self._next)

    async def recent(self) -> Runs:
        """Return the newest list, a fresh one when that is more than :data:`NAMES_AGE` old."""
        return self._found if self._loop.time() < self._found_until else await self.fresh()

    def close(self) -> None:
        """End a listing that has not begun yet."""
        if self._next is not None:
            self._next.cancel()

    async def _list(self) -> Runs:
        async with self._turn:
            await asyncio.sleep(max(0.0, self._rest_until - self._loop.time()))
            self._next = None
            begun = self._loop.time()
            try:
                found: list[list[str]] = []
                for stream, every in self._places.streams():
                    found.append(await self._of(stream, every, MAX_LISTED - sum(map(len, found))))
            finally:
                ended = self._loop.time()
                self._rest_until = ended + min(ended - begun, LONGEST_REST)
        self._found, self._found_until = found, ended + NAMES_AGE
        self._loop.call_later(NAMES_AGE, self._forget)
        return found

    def _forget(self) -> None:
        if self._loop.time() >= self._found_until:
            self._found = ()

    async def _of(self, stream: str, every: str, room: int) -> list[str]:
        """Return one shard's names, at most ``room``, however many pages that takes.

        The server counts pages off from the front of its list as it is at that moment, so each page begins within the
        one before it: had so many gone meanwhile that it does not, some of those that stayed would be passed over.
        """
        names: list[str] = []
        offset, tries = 0, 0
        while True:
            page = await self._leader.subjects(stream, every, offset)
            if page.total > room:
                raise LogUnavailable(f"there are more sessions than an instance lists ({MAX_LISTED})")
            found = await _ids(page.subjects, every.removesuffix("*"))
            if names and found and found[0] > names[-1]:
                offset, tries = max(0, offset - page.limit // 2), tries + 1
                if tries == TRIES:
                    raise LogUnavailable("the sessions change faster than they can be listed")
                continue
            names += found[bisect_right(found, names[-1]) :] if names else found
            if not page.limit or offset + page.limit >= page.total:
                return names
            offset, tries = offset + max(page.limit - OVERLAP, 1), 0


async def _ids(subjects: msgspec.Raw, prefix: str) -> list[str]:
    """Return the session ids behind ``prefix``, ascending; what a stranger stored under no session id is none.

    Session ids are written in JSON as they are, so they need no decoder, which could not be stopped half-way.
    """
    whole = bytes(subjects)
    named = re.compile(f'"{re.escape(prefix)}({SESSION_ID})":')
    ids: list[str] = []
    begin = 0
    while begin < len(whole):
        comma = whole.find(b",", begin + SLICE)
        end = comma if comma > 0 else len(whole)
        ids += named.findall(whole[begin:end].decode(errors="replace"))
        begin = end
        await asyncio.sleep(0)
    ids.sort()
    return ids


def choose(runs: Runs, prefix: str, after: str, count: int) -> list[str]:
    """Return the first names that begin with ``prefix`` and come behind ``after``, each once."""
    chosen: list[str] = []
    for name in merge(*(_from(run, prefix, after) for run in runs)):
        if len(chosen) == count or not name.startswith(prefix):
            break
        # A stranger may have stored something in a shard that the session does not live in.
        if not chosen or chosen[-1] != name:
            chosen.append(name)
    return chosen


def _from(run: list[str], prefix: str, after: str) -> Iterator[str]:
    begin = max(bisect_right(run, after), bisect_left(run, prefix))
    return map(run.__getitem__, range(begin, len(run)))


def _heard(task: asyncio.Task[Runs]) -> None:
    """Take note of an error, in case nobody waits any more."""
    if not task.cancelled():
        task.exception()
