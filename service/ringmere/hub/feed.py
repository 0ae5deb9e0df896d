"""The tail in: one session's live messages, checked as a chain and mended from the log.

Each live message names its predecessor, so a hole shows in the very next message. While a hole is
filled from the log, later messages are parked; what does not fit is read from the log as well.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ringmere.core.cursor import EpochTable
from ringmere.core.errors import LogUnavailable
from ringmere.hub.parking import Parked, Parking
from ringmere.hub.replay import Batch
from ringmere.log.port import Stored, Tail

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel

RETRY_PAUSE = 0.05
"""Seconds between tries while a replica is behind, and the first pause while the log is away."""
LONGEST_PAUSE = 0.4
"""Seconds that the pauses grow to while the log stays away."""
BACKFILL_AFTER = 0.5
"""Seconds after which a new feed looks at the log once more: interest takes a moment to reach all servers."""


class Feed:
    """Follows a session's subject and hands every message to its channel once, in order.

    The rules by which a live message ``(seq, previous)`` is taken, ``last`` being the newest accepted:

    ====================  ==================================================================
    seq ≤ last            overlap: dropped; with a later timestamp: is it another log?
    previous = last > 0   accepted
    previous ≤ last       the log was empty or shrank behind us: accepted when that is no loss, else a gap
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
        """Its timestamp in the log; 0 when it is not known, as behind a fence that was never read."""
        self.confirmed_at = 0.0
        """Loop time at which ``last`` was known to be the subject's tail."""
        self.stalled = False
        """The turn is full; messages are parked until the next one."""
        self._parking = Parking(channel.hub.limits.parked_bytes)
        self._suspect = False
        self._untold_loss = False
        """Something is gone that readers have not been told of yet."""
        self._purge_unseen = False
        """A purge may have removed messages behind ``last``."""
        self._next_table: EpochTable | None = None
        self._fill: asyncio.Future[None] | None = None
        self._closed = False
        self._fills = 0
        self._tail: Tail | None = None
        self._sweep_interval = 0.0
        self._next_sweep = 0.0

    # -- beginning and end -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Subscribe first, then read the tail from the leader: what comes in between is parked, not lost."""
        opening = self._fill = self._loop.create_future()  # parks live messages until the tail is known
        deliveries = self._hub.deliveries
        traces = deliveries.sink(self._channel) if deliveries is not None else None
        self._tail = await self._hub.log.subscribe(self._session, self.on_live, traces)
        self._begin_at(*await self._look())
        self._fill = None
        opening.set_result(None)
        self._next_sweep = self._loop.time() + BACKFILL_AFTER
        self._unpark()

    async def _look(self) -> tuple[Stored | None, int]:
        """Return the session's last message, from the head stream when the log has expired, and the stream's tail."""
        log = self._hub.log
        stored = await log.last(self._session)
        tail = stored.seq if stored is not None else 0
        if stored is None:
            tail = (await log.bounds(self._session)).tail
            head = await log.head(self._session)
            if head is not None and head.seq <= tail:
                stored = Stored(head.seq, head.time_ns, head.payload)
        return stored, tail

    def _begin_at(self, stored: Stored | None, tail: int) -> None:
        self.last, self.last_time_ns = (stored.seq, stored.time_ns) if stored else (0, 0)
        self.confirmed_at = self._loop.time()
        self._channel.begin_at(stored, tail)

    def close(self) -> None:
        """End the tail and a fill under way."""
        self._closed = True
        if self._tail is not None:
            self._tail.close()
        if self._fill is not None:
            self._fill.cancel()
        self._parking.clear()

    # -- the chain -------------------------------------------------------------------------------------

    def on_live(self, seq: int, previous: int, time_ns: int, payload: bytes) -> None:
        """Take one live message (the hot path)."""
        if self._fill is not None or self.stalled:
            self._parking.add(Parked(seq, previous, time_ns, payload))
        elif previous and previous == self.last and seq > previous:
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
        elif previous <= self.last:
            if not self._loss_excluded():
                self._untold_loss = True
                self.last = seq - 1
                self._tell_loss(seq)
            self.last, self.last_time_ns = seq, time_ns
            self._channel.accept(seq, time_ns, payload)
        else:
            self._hub.observer.live_gap(self._session)
            self._parking.add(Parked(seq, previous, time_ns, payload))
            self._start_fill()

    def _loss_excluded(self) -> bool:
        """Whether nothing can have gone unseen: our last was the tail less than the log's time to live ago."""
        if self._purge_unseen:
            return False
        ttl = self._hub.log.log_ttl
        return self._loop.time() - self.confirmed_at < ttl if ttl else self.last == 0

    def purged(self) -> None:
        """A purge was recorded: ask whether it took something that has not been seen here."""
        self._purge_unseen = True
        self._start_fill()

    # -- holes -----------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """A new turn begins: take what the full one left."""
        self.stalled = False
        if self._fill is None:
            self._unpark()
            self._channel.attached.caught_up()

    def _unpark(self) -> None:
        parked, overflowed = self._parking.take()
        for message in parked:
            if message.seq > self.last or message.time_ns > self.last_time_ns:
                self.on_live(*message)
        if overflowed:
            self._start_fill()

    @property
    def busy(self) -> bool:
        """Whether a hole is being filled, or the turn is full."""
        return self._fill is not None or self.stalled

    def look(self) -> None:
        """Ask the leader whether something was missed."""
        self._start_fill()

    def _start_fill(self) -> None:
        if self._fill is None and not self._closed:
            self._channel.attached.fall_behind()
            self._fill = asyncio.create_task(self._fill_from_log())

    async def catch_up(self) -> None:
        """Return once everything that the leader had when this was called has been accepted.

        Raises ``LogUnavailable`` when the feed has ended.
        """
        wanted = self._fills + (1 if self._fill is None else 2)
        while self._fills < wanted:
            self._start_fill()
            if self._fill is None or self._closed:
                raise LogUnavailable("the session is not followed any more")
            await asyncio.wait([self._fill])

    async def _fill_from_log(self) -> None:
        """Fill until the chain is whole; whatever else goes wrong must end the streams, not silence them."""
        try:
            await self._fill_up()
            self._fills += 1
            self._fill = None
            self._unpark()
            self._channel.attached.caught_up_soon()
        except Exception as error:
            self._channel.fail(error)

    async def _fill_up(self) -> None:
        pause = RETRY_PAUSE
        while True:
            try:
                await self._fill_once()
                if self._next_table is None and not self._suspect:
                    return
            except LogUnavailable:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _fill_once(self) -> None:
        """Accept page after page until the leader's last message is reached; before that, follow a new epoch."""
        if self._suspect:
            await self._hub.log.check_epoch(self._session)
            self._suspect = False
        self.follow(self._hub.log.epochs(self._session))
        if self._next_table is not None:
            await self._rebase(self._next_table)
        asked_at = self._loop.time()
        if self._purge_unseen:
            bounds = await self._hub.log.bounds(self._session)
            self._purge_unseen = bounds.purged_to > self.last
        parked = len(self._parking)
        target = await self._hub.log.last(self._session)
        if target is not None and target.seq < self.last:
            # A leader that has lost what it gave out: the table gets a row, and this feed begins again.
            await self._hub.log.check_epoch(self._session)
        while target is not None and self.last < target.seq and self._next_table is None:
            before = self.last
            async with self._hub.reads:
                batch = await self._channel.replay.read(self.last, self.last_time_ns, self._loss_excluded)
            if batch.gap:
                await self._hub.snapshots.look(self._session)
            self._take(batch)
            if self.last == before:
                await asyncio.sleep(RETRY_PAUSE)
        if self._next_table is None:
            self._tell_loss(self.last + 1)
        if target is not None or self._loss_excluded():
            self.confirmed_at = asked_at
        self._parking.forget_answered(parked, self.last, self.last_time_ns)

    def _take(self, batch: Batch) -> None:
        if batch.gap:
            self._untold_loss = True
            if batch.start > self.last:
                self.last, self.last_time_ns = batch.start, 0
        if batch.frames:
            self._tell_loss(batch.frames[0].seq)
        if batch.last > self.last:
            self.last, self.last_time_ns = batch.last, batch.last_time_ns
        self._channel.take(batch)
        self._hub.observer.gap_filled(self._session, len(batch.frames))

    def _tell_loss(self, earliest: int) -> None:
        """Put one verdict before what follows a loss, however many pages retention took meanwhile."""
        if self._untold_loss:
            self._untold_loss = self._purge_unseen = False
            self._channel.push_gap(earliest)

    # -- another epoch ---------------------------------------------------------------------------------

    def follow(self, table: EpochTable) -> None:
        """Take a changed epoch table."""
        if table != self._channel.table:
            self._next_table = table
            self._start_fill()

    async def _rebase(self, table: EpochTable) -> None:
        """Begin again on the log as it is now.

        Nothing changes until the leader has answered: a reader's last id has a meaning under the old table only.
        """
        self._parking.clear()
        stored, tail = await self._look()
        if self._next_table is not table:
            return
        self._next_table = None
        self._untold_loss = self._purge_unseen = False
        reached = self._channel.change_table(table)
        self._begin_at(stored, tail)
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
        """Take the answer of a sweep that began at loop time ``asked_at``.

        That nothing newer is stored confirms ``last`` only while nothing can have come and expired unseen.
        """
        if newer:
            self._start_fill()
        elif self._loss_excluded():
            self.confirmed_at = max(self.confirmed_at, asked_at)
