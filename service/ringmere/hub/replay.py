"""Reading a range of the log for readers that catch up: proven pages, read once for all who wait.

A page is worth nothing until the leader has shown, later than the page arrived, that the message it
starts at is still stored: retention removes from the front only, so then nothing inside it was removed
while it was read (contract 4.6).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from ringmere.core.backlog import Frame
from ringmere.core.cursor import EpochTable, SubjectBounds, decide, event_id
from ringmere.core.errors import LogUnavailable
from ringmere.core.event import NotAnEvent, envelope
from ringmere.core.frames import event_frame
from ringmere.core.limits import Limits
from ringmere.hub.observer import Observer
from ringmere.hub.segment import Segment
from ringmere.log.port import Log, Stored


class Batch(NamedTuple):
    """What the log holds with ``start < sequence ≤ last``, proven; empty when ``last`` is ``start``.

    ``gap``: something between the position asked for and ``start`` is gone, and a verdict is due before
    the next event. ``earliest`` is the lower bound of the next sequence still to come. ``closed`` says
    whether the newest message is terminal, ``oldest_ns`` is the first message's timestamp.
    """

    start: int
    frames: list[Frame]
    last: int
    last_time_ns: int
    closed: bool
    gap: bool
    earliest: int
    oldest_ns: int = 0


class Step(NamedTuple):
    """One step of a replay, shared between readers: a segment to write, or only a new ``position`` to go on from.

    See :class:`Batch` for ``gap`` and ``earliest``; ``generation`` is the replay's at the time of the read.
    """

    segment: Segment | None
    position: int
    generation: int
    gap: bool = False
    earliest: int = 0


class Encoder:
    """Turns a session's stored messages into frames under one epoch; what is no event is observed and skipped."""

    __slots__ = ("_observer", "_session", "epoch_of", "table")

    def __init__(self, table: EpochTable, session: str, observer: Observer) -> None:
        self._session = session
        self._observer = observer
        self.table = table
        self.epoch_of = table.epoch_of

    def frame(self, seq: int, time_ns: int, payload: bytes) -> tuple[Frame, bool] | None:
        """Return the frame and whether the event is terminal, or None for what is no event (contract 1.9)."""
        public_id = event_id(self.epoch_of(seq), seq)
        try:
            event = envelope(payload, public_id, time_ns // 1_000_000)
        except NotAnEvent as error:
            self._observer.skipped(self._session, seq, error.reason)
            return None
        return Frame(seq, event_frame(public_id, event), len(event.json)), event.terminal


class PageCache:
    """The newest replay pages of the instance, for readers of the same range; bounded in number and in bytes."""

    def __init__(self, size: int, max_bytes: int) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self.bytes = 0
        """Frame bytes of all kept pages."""
        self._pages: OrderedDict[tuple[int, int], tuple[Replay, Segment]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def find(self, owner: Replay, position: int, not_before_ns: int) -> Segment | None:
        """Return a page of ``owner`` that goes on behind ``position`` and whose oldest message is not too old."""
        for key, (replay, segment) in self._pages.items():
            if replay is owner and segment.start <= position < segment.last and segment.oldest_ns > not_before_ns:
                self._pages.move_to_end(key)
                return segment
        return None

    def put(self, owner: Replay, segment: Segment) -> None:
        """Keep a page; the least recently used go when there are too many, or they are too large."""
        self._remove((id(owner), segment.start))
        self._pages[id(owner), segment.start] = (owner, segment)
        self.bytes += segment.size
        while self._pages and (len(self._pages) > self._size or self.bytes > self._max_bytes):
            self._remove(next(iter(self._pages)))

    def drop(self, owner: Replay) -> None:
        """Forget the pages of a session (its channel ended, or its log changed)."""
        for key in [key for key, (replay, _) in self._pages.items() if replay is owner]:
            self._remove(key)

    def _remove(self, key: tuple[int, int]) -> None:
        _, segment = self._pages.pop(key, (None, None))
        if segment is not None:
            self.bytes -= segment.size


class Replay:
    """Range reads of one session: single flight, with bounded reads under way on the instance."""

    def __init__(
        self,
        log: Log,
        session: str,
        encoder: Encoder,
        limits: Limits,
        slots: asyncio.Semaphore,
        cache: PageCache,
        clock: Callable[[], int],
    ) -> None:
        self._log = log
        self._session = session
        self.encoder = encoder
        self._page_bytes = limits.page_bytes
        self._slots = slots
        self._cache = cache
        self._clock = clock
        self.generation = 0
        """Rises when what was read before must not be kept any more."""
        self._waiting: list[tuple[int, asyncio.Future[Step]]] = []
        self._task: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """Drop cached pages: the log behind them is another one now, or nobody reads here any more.

        A read that is under way is done again, for its page may be the old log's.
        """
        self.generation += 1
        self._cache.drop(self)

    def close(self) -> None:
        """Stop reading; those who wait are cancelled."""
        self.forget()
        if self._task is not None:
            self._task.cancel()
        for _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    async def after(self, position: int) -> Step:
        """Return the next page behind ``position``, from the cache or by a read shared with all who wait.

        Raises :class:`~ringmere.core.errors.LogUnavailable`.
        """
        ttl = self._log.log_ttl
        not_before_ns = self._clock() - int(ttl * 1e9) if ttl else -1
        cached = self._cache.find(self, position, not_before_ns)
        if cached is not None:
            return Step(cached, cached.last, self.generation)
        future: asyncio.Future[Step] = asyncio.get_running_loop().create_future()
        self._waiting.append((position, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read_for_all())
        return await future

    async def _read_for_all(self) -> None:
        while True:
            # One turn of the loop lets a storm of readers gather; the lowest position then serves most of them.
            await asyncio.sleep(0)
            self._waiting = [item for item in self._waiting if not item[1].done()]
            if not self._waiting:
                return
            try:
                async with self._slots:
                    generation = self.generation
                    position = min(position for position, _ in self._waiting)
                    batch = await self.read(position)
            except Exception as error:
                self._fail(error)
                return
            if generation == self.generation:
                self._settle(position, batch)

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)

    def _settle(self, position: int, batch: Batch) -> None:
        """Answer everyone whom this batch serves; the others wait for the next read.

        Whoever came while it was read may stand before its start.
        """
        segment = None
        if batch.last > batch.start:
            segment = Segment(batch.start, batch.last, batch.frames, batch.oldest_ns)
        if segment is not None:
            self._cache.put(self, segment)
        step = Step(segment, batch.last, self.generation, batch.gap, batch.earliest)
        remaining: list[tuple[int, asyncio.Future[Step]]] = []
        for wanted, future in self._waiting:
            if future.done():
                continue
            if wanted == position:
                future.set_result(step)
            elif wanted > position and not batch.gap and (segment is None or wanted < segment.last):
                future.set_result(step._replace(position=max(wanted, batch.last)))
            else:
                remaining.append((wanted, future))
        self._waiting = remaining

    async def read(
        self,
        position: int,
        time_ns: int = 0,
        unexpired: Callable[[], bool] | None = None,
        *,
        shared: bool = False,
        max_bytes: int | None = None,
    ) -> Batch:
        """Read one page behind ``position`` and prove it by leader reads.

        ``time_ns`` is the timestamp of the message at ``position``, if known: another one there now means
        that the log was replaced. Raises :class:`~ringmere.core.errors.LogUnavailable`, also in that case,
        after having asked for the new epoch, and when the log is not the encoder's any more: then page and proof
        may be of two logs, and ids of none.

        ``unexpired`` is given by who follows the session: it says whether what came behind ``position`` is too
        young to have expired, so that only a full ring can have removed it. ``shared``: the position may be
        another session's of the shard; this one is complete also when its oldest message stands at or before it (7.2).
        """
        batch = await self._read(position, time_ns, unexpired, shared, max_bytes or self._page_bytes)
        if self._log.epochs(self._session) != self.encoder.table:
            raise LogUnavailable("the log was replaced")
        return batch

    async def _read(
        self, position: int, time_ns: int, unexpired: Callable[[], bool] | None, shared: bool, max_bytes: int
    ) -> Batch:
        page = await self._log.page(self._session, max(position, 1), max_bytes)
        messages = page.messages
        if position and messages and messages[0].seq == position:
            if page.more and len(messages) == 1:
                # The position's own message left no room; what is proven below covers this page as well.
                messages += (await self._log.page(self._session, position + 1, max_bytes)).messages
            if time_ns and messages[0].time_ns != time_ns:
                await self._log.check_epoch(self._session)
                raise LogUnavailable("the log was replaced")
            complete = await self._log.contains(self._session, position)
        else:
            present = not shared and position > 0 and await self._log.contains(self._session, position)
            bounds = await self._log.bounds(self._session)
            present |= shared and 0 < bounds.first <= position
            complete = await self._nothing_lost_since(position, present, bounds, unexpired)
            if complete and bounds.stored == 0 and not messages:
                # Nothing is due at or below the tail; a reader goes on behind it.
                return self._encode(max(position, bounds.tail), [], False, bounds.tail + 1)
        if complete:
            due = [message for message in messages if message.seq > position]
            return self._encode(position, due, False, due[0].seq if due else position + 1)
        bounds = await self._log.bounds(self._session)
        return self._what_is_left(position, messages, bounds)

    async def _nothing_lost_since(
        self, position: int, present: bool, bounds: SubjectBounds, unexpired: Callable[[], bool] | None
    ) -> bool:
        """Judge a position that is no stored message (an empty session, an expired one) by the resume table."""
        whole = not bounds.fenced(self._log.ring_size) and bounds.purged_to <= position
        if unexpired is not None:
            # To a follower 0 is no wish for the whole ring, but an empty session that it must not miss a thing of.
            if whole and unexpired():
                return True
            if position == 0:
                return whole and bounds.stream_first <= 1
        head = await self._log.head(self._session) if bounds.stored == 0 else None
        verdict = decide(
            position,
            bounds,
            ring_size=self._log.ring_size,
            present=present,
            head=head.seq if head else None,
            heads_kept=self._log.keeps_heads,
        )
        return not verdict.is_gap

    async def restart(self) -> Batch:
        """Return the empty batch behind which everything that is left of the ring follows: its fence, mostly."""
        return self._what_is_left(0, [], await self._log.bounds(self._session))

    def _what_is_left(self, position: int, messages: list[Stored], bounds: SubjectBounds) -> Batch:
        """Keep of a page what the leader, asked after the page arrived, still stores; a fence is not delivered."""
        if bounds.stored == 0:
            start = max(bounds.tail, position)
            return Batch(start, [], start, 0, False, True, start + 1)
        start = bounds.first if bounds.fenced(self._log.ring_size) else bounds.first - 1
        start = max(start, position)
        return self._encode(start, [message for message in messages if message.seq > start], True, start + 1)

    def _encode(self, start: int, due: list[Stored], gap: bool, earliest: int) -> Batch:
        frames: list[Frame] = []
        closed = False
        for message in due:
            made = self.encoder.frame(message.seq, message.time_ns, message.payload)
            if made is not None:
                frames.append(made[0])
                closed = made[1]
        last, time_ns = (due[-1].seq, due[-1].time_ns) if due else (start, 0)
        return Batch(start, frames, last, time_ns, closed, gap, earliest, due[0].time_ns if due else 0)
