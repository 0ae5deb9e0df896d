"""Catching up with many sessions at once, in the order of their shards, and the step in which all of them join live.

Each round every session that memory does not cover has a page read; what all of a shard's sessions have given by then
is written in order. Memory is bounded by the budget: beyond it the newest of what was read is forgotten again, for
the oldest leaves first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ringmere.core.errors import LogUnavailable
from ringmere.core.limits import KIB
from ringmere.hub.attached import SETTLE
from ringmere.hub.catchup import RETRY_PAUSE
from ringmere.hub.merge import Item, in_order
from ringmere.hub.observer import Replay
from ringmere.hub.source import Source

if TYPE_CHECKING:
    from ringmere.hub.many import Many

SMALLEST_PAGE = 16 * KIB
"""A page is not asked for in smaller pieces, however many sessions share the budget."""


class Gather:
    """The way of a stream of many sessions, or of some of them, from their plans to live.

    With ``among_live`` the others of the stream go on meanwhile: what is read goes through their merge.
    """

    def __init__(self, many: Many, sources: dict[str, Source], *, among_live: bool = False) -> None:
        self._many = many
        self.sources = sources
        """By session; all of them join in one step."""
        self._among_live = among_live
        limits = many.hub.limits
        self._budget = min(limits.page_bytes, limits.parked_bytes // 4) if among_live else limits.page_bytes
        self._queued = 0
        self._ready = asyncio.Event()
        self.origin = "window"
        """Where the events come from: ``window``, or ``log`` when that had to be read; a metric label."""
        self._began = time.monotonic()
        self.replayed = 0
        """Events that were given."""
        self._size = 0

    def replace(self, source: Source) -> None:
        """Begin a session anew."""
        self._queued -= sum(_size(item) for item in self.sources[source.session].queue)
        self.sources[source.session] = source

    def observe(self, verdict: str) -> None:
        """Tell the observer that the replay is over, and what the cursor came to."""
        many, observer = self._many, self._many.hub.observer
        replay = Replay(verdict, self.origin, self.replayed, self._size, time.monotonic() - self._began)
        observer.resumed(many.session, verdict, self.origin)
        observer.replayed(many.session, many.stream_id, replay)

    def resumed(self) -> None:
        """The outlet may have become writable."""
        self._ready.set()

    def join_at_once(self) -> bool:
        """Join without touching the log, if the windows reach back far enough; say whether it came to that."""
        ready = self._many.writable and self._unsettled <= 0
        return ready and all(source.covered for source in self.sources.values()) and self._write()

    async def run(self) -> None:
        """Write round after round, then join. Waits while the log is away."""
        if (wait := self._unsettled) > 0:
            await asyncio.sleep(wait)
        while True:
            come = self._come
            try:
                await self._wait_writable()
                await self._read()
                await self._many.hub.pace.turn()
                if self._many.writable and self._write():
                    return
                if come == self._come:
                    await asyncio.sleep(RETRY_PAUSE)  # replicas behind the leader, or a channel behind the log
            except LogUnavailable:
                await asyncio.sleep(RETRY_PAUSE)

    @property
    def _come(self) -> tuple[int, list[int]]:
        """How far all of it has come."""
        return self.replayed, [source.upto for source in self.sources.values()]

    @property
    def _unsettled(self) -> float:
        """Seconds until the newest of the channels has surely come as far as the others of its shard."""
        newest = max((source.channel.started_at for source in self.sources.values()), default=0.0)
        return newest + SETTLE - asyncio.get_running_loop().time()

    async def _wait_writable(self) -> None:
        while not self._many.writable:
            self._ready.clear()
            await self._ready.wait()

    # -- reading ---------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Read a page for each session that has nothing queued and is not covered by memory."""
        wanting = [source for source in self.sources.values() if not source.queue and not source.covered]
        if not wanting:
            return
        self.origin = "log"
        size = max(min(SMALLEST_PAGE, self._budget), self._budget // len(wanting))
        await _all(self._read_one(source, size) for source in wanting)

    async def _read_one(self, source: Source, size: int) -> None:
        taken = await source.read(size)
        self._queued += taken
        while self._queued > self._budget:
            newest = self._newest()
            if newest is None:
                return
            self._queued -= newest.drop_last()

    def _newest(self) -> Source | None:
        """Return the source with the newest queued event; None when that is the last one left."""
        events = [source for source in self.sources.values() if source.queue and source.queue[-1].frame.seq]
        if sum(len(source.queue) for source in events) < 2:
            return None
        return max(events, key=lambda source: source.queue[-1].seq)

    # -- writing ---------------------------------------------------------------------------------------

    def _write(self) -> bool:
        """Write what is complete, in order; join when nothing is left to be read. No await in it: that is the seam."""
        shards: dict[int, list[Source]] = {}
        for source in self.sources.values():
            shards.setdefault(source.attachment.shard, []).append(source)
        rounds = [_round(sources) for sources in shards.values()]
        size = sum(_size(item) for round in rounds for item in round.due)
        if all(round.limit is None for round in rounds) and size <= 2 * self._budget:
            self._join([item for round in rounds for item in round.due])
            return True
        for round in rounds:
            self._give_part(round)
        return False

    def _give_part(self, round: _Round) -> None:
        """Write a shard's due items up to the budget, and remember how far its sessions have come by that."""
        room, count = self._budget, 0
        while count < len(round.due) and (room > 0 or not count):
            room -= _size(round.due[count])
            count += 1
        given, limit = round.due[:count], round.limit
        if count < len(round.due):
            limit = given[-1].seq
        self._give(given)
        for source, covered in round.sources:
            while given and source.queue and in_order(source.queue[0]) <= in_order(given[-1]):
                self._queued -= _size(source.queue.popleft())
            if covered:
                source.upto = max(source.upto, source.channel.last if limit is None else limit)

    def _give(self, items: list[Item]) -> None:
        for item in items:
            if item.frame.seq:
                self.replayed += 1
                self._size += _size(item)
                self.sources[item.origin.session].gave(item.frame.seq)
        if self._among_live:
            self._many.hand_in(items)
        else:
            self._many.write_items(items)

    def _join(self, items: list[Item]) -> None:
        """Write the rest and let every channel hand out from here on, in one step.

        What lies behind a hole that a channel of its shard still fills waits in the merge (contract 7.3).
        """
        many = self._many
        limits = {source.attachment.shard: many.limit(source.attachment.shard) for source in self.sources.values()}

        def held(item: Item) -> bool:
            limit = limits[item.origin.shard]
            return limit is not None and item.seq > limit

        self._give([item for item in items if not held(item)])
        many.hand_in([item for item in items if held(item)])
        for source in self.sources.values():
            source.queue.clear()
            source.attachment.go_live(max(source.upto, source.channel.last))
        self._queued = 0


class _Round(NamedTuple):
    """What of one shard can be written now: everything up to ``limit``, or all there is when it is None."""

    sources: list[tuple[Source, bool]]
    limit: int | None
    due: list[Item]


def _round(sources: list[Source]) -> _Round:
    judged = [(source, source.covered) for source in sources]
    limit = min((source.upto for source, covered in judged if not covered), default=None)
    due: list[Item] = []
    for source, covered in judged:
        due += [item for item in source.queue if limit is None or item.seq <= limit]
        if covered:
            due += source.remembered(limit)
    return _Round(judged, limit, sorted(due, key=in_order))


def _size(item: Item) -> int:
    return len(item.frame.body)


async def _all(reads: Iterable[Awaitable[None]]) -> None:
    """Wait for all reads, then raise the first failure: none of them goes on unseen."""
    for result in await asyncio.gather(*reads, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
