"""The tail in: one session's live messages, checked as a chain and mended from the log.

Each live message names its predecessor, so a hole shows in the very next message. While a hole is
filled from the log, later messages are parked; what does not fit is read from the log as well.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ringmere.core.cursor import EpochTable
from ringmere.core.errors import LogUnavailable
from ringmere.hub.replay import Batch
from ringmere.log.port import Stored, Tail

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel

RETRY_PAUSE = 0.05
"""Seconds between tries while the log is away or a replica is behind."""
BACKFILL_AFTER = 0.5
"""Seconds after which a new feed looks at the log once more: interest takes a moment to reach all servers."""


class Parked(NamedTuple):
    """A live message that waits until the hole before it is filled, or the next turn begins."""

    seq: int
    previous: int
    time_ns: int
    payload: bytes


class Feed:
    """Follows a session's subject and hands every message to its channel once, in order.

    The rules by which a live message ``(seq, previous)`` is taken, ``last`` being the newest accepted:

    ====================  ==================================================================
    seq ≤ last            overlap: dropped; with a later timestamp: is it another log?
    previous = last       accepted
    previous < last       the log shrank behind us: accepted when that is no loss, else a gap
    previous > last       a hole: filled from the log first
    ====================  ==================================================================
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._hub = channel.hub
        self._session = channel.session
        self._loop = asyncio.get_running_loop()
        self.last = 0
        """Sequence of the newest message that was accepted."""
        self.last_time_ns = 0
        self.confirmed_at = 0.0
        """Loop time at which ``last`` was known to be the subject's tail."""
        self.stalled = False
        """The turn is full; messages are parked until the next one."""
        self._parked: list[Parked] = []
        self._parked_bytes = 0
        self._overflowed = False
        self._suspect = False
        self._next_table: EpochTable | None = None
        self._fill: asyncio.Future[None] | None = None
        self._fills = 0
        self._tail: Tail | None = None
        self._sweep_interval = 0.0
        self._next_sweep = 0.0

    # -- beginning and end -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Subscribe first, then read the tail from the leader: what comes in between is parked, not lost."""
        self._fill = self._loop.create_future()  # parks live messages until the tail is known
        self._tail = await self._hub.log.subscribe(self._session, self.on_live)
        await self.begin()
        self._fill = None
        self._next_sweep = self._loop.time() + BACKFILL_AFTER
        self._unpark()

    async def begin(self) -> None:
        """Set ``last`` from the leader, or from the head stream when the log has expired."""
        log = self._hub.log
        stored = await log.last(self._session)
        tail = stored.seq if stored is not None else 0
        if stored is None:
            tail = (await log.bounds(self._session)).tail
            head = await log.head(self._session)
            if head is not None and head.seq <= tail:
                stored = Stored(head.seq, head.time_ns, head.payload)
        self.last, self.last_time_ns = (stored.seq, stored.time_ns) if stored else (0, 0)
        self.confirmed_at = self._loop.time()
        self._channel.begin_at(stored, tail)

    def close(self) -> None:
        """End the tail and a fill under way."""
        if self._tail is not None:
            self._tail.close()
        if self._fill is not None:
            self._fill.cancel()

    # -- the chain -------------------------------------------------------------------------------------

    def on_live(self, seq: int, previous: int, time_ns: int, payload: bytes) -> None:
        """Take one live message (the hot path)."""
        if self._fill is not None or self.stalled:
            self._park(seq, previous, time_ns, payload)
        elif previous == self.last and seq > previous:
            self.last = seq
            self.last_time_ns = time_ns
            self._channel.accept(seq, time_ns, payload)
        else:
            self._out_of_chain(seq, previous, time_ns, payload)

    def _out_of_chain(self, seq: int, previous: int, time_ns: int, payload: bytes) -> None:
        if seq <= self.last:
            if time_ns > self.last_time_ns:
                self._suspect = True
                self._start_fill()
        elif previous < self.last:
            if not self._loss_excluded():
                self._channel.push_gap(self.last, seq)
            self.last, self.last_time_ns = seq, time_ns
            self._channel.accept(seq, time_ns, payload)
        else:
            self._hub.observer.live_gap(self._session)
            self._park(seq, previous, time_ns, payload)
            self._start_fill()

    def _loss_excluded(self) -> bool:
        """Whether nothing can have expired unseen: our last was the tail less than the log's time to live ago."""
        ttl = self._hub.log.log_ttl
        return bool(ttl) and self._loop.time() - self.confirmed_at < ttl

    def purged(self) -> None:
        """A purge was recorded: from here on, a log that shrank may have lost something."""
        self.confirmed_at = float("-inf")

    # -- holes -----------------------------------------------------------------------------------------

    def _park(self, seq: int, previous: int, time_ns: int, payload: bytes) -> None:
        """Keep a message for later, within the bound; beyond it the log is read instead."""
        self._parked_bytes += len(payload)
        if self._parked_bytes > self._hub.limits.parked_bytes:
            self._overflowed = True
        else:
            self._parked.append(Parked(seq, previous, time_ns, payload))

    def go_on(self) -> None:
        """A new turn begins: take what the full one left."""
        self.stalled = False
        if self._fill is None:
            self._unpark()

    def _unpark(self) -> None:
        parked, self._parked = self._parked, []
        overflowed, self._overflowed = self._overflowed, False
        self._parked_bytes = 0
        for message in parked:
            if message.seq > self.last or message.time_ns > self.last_time_ns:
                self.on_live(*message)
        if overflowed:
            self._start_fill()

    def _start_fill(self) -> None:
        if self._fill is None:
            self._fill = asyncio.create_task(self._fill_from_log())

    async def catch_up(self) -> None:
        """Return once everything that the leader had when this was called has been accepted."""
        wanted = self._fills + (1 if self._fill is None else 2)
        while self._fills < wanted:
            self._start_fill()
            assert self._fill is not None
            await asyncio.wait([self._fill])

    async def _fill_from_log(self) -> None:
        while True:
            try:
                await self._fill_once()
                if self._next_table is None and not self._suspect:
                    break
            except LogUnavailable:
                await asyncio.sleep(RETRY_PAUSE)
        self._fills += 1
        self._fill = None
        self._unpark()

    async def _fill_once(self) -> None:
        """Accept page after page until the leader's last message is reached; before that, follow a new epoch."""
        if self._suspect:
            await self._hub.log.check_epoch(self._session)
            self._suspect = False
        if self._next_table is not None:
            await self._rebase(self._next_table)
        asked_at = self._loop.time()
        target = await self._hub.log.last(self._session)
        while target is not None and self.last < target.seq and self._next_table is None:
            before = self.last
            async with self._hub.reads:
                batch = await self._channel.replay.read(self.last, self.last_time_ns)
            self._take(batch)
            if self.last == before:
                await asyncio.sleep(RETRY_PAUSE)
        self.confirmed_at = asked_at

    def _take(self, batch: Batch) -> None:
        if batch.gap:
            self._channel.push_gap(self.last, batch.frames[0].seq if batch.frames else batch.earliest)
            self.last = max(self.last, batch.start)
        if batch.last > self.last:
            self.last, self.last_time_ns = batch.last, batch.last_time_ns
        self._channel.take(batch)
        self._hub.observer.gap_filled(self._session, len(batch.frames))

    # -- another epoch ---------------------------------------------------------------------------------

    def follow(self, table: EpochTable) -> None:
        """Take a changed epoch table."""
        if table != self._channel.table:
            self._next_table = table
            self._start_fill()

    async def _rebase(self, table: EpochTable) -> None:
        """Begin again on the log as it is now."""
        self._parked.clear()
        self._parked_bytes = 0
        reached = self._channel.change_table(table)
        await self.begin()
        if self._next_table == table:
            self._next_table = None
        self._channel.rewind_readers(reached)

    # -- quiet sessions --------------------------------------------------------------------------------

    def due_for_sweep(self, now: float, longest: float) -> bool:
        """Say whether to check now that no last message was missed; the interval grows while all stays quiet."""
        if now < self._next_sweep or self._fill is not None:
            return False
        first = min(self._hub.limits.sweep_first, longest)
        quiet_since = self._channel.active_at
        if now - quiet_since < first:
            self._next_sweep = quiet_since + first
            self._sweep_interval = 0.0
            return False
        self._sweep_interval = min(max(self._sweep_interval * 2, first), longest)
        self._next_sweep = now + self._sweep_interval
        return True

    def swept(self, asked_at: float, newer: bool) -> None:
        """Take the answer of a sweep that began at loop time ``asked_at``."""
        if newer:
            self._start_fill()
        else:
            self.confirmed_at = max(self.confirmed_at, asked_at)
