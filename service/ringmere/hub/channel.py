"""One live session: one feed in, many readers out.

What the channel accepts in one turn of the loop is encoded once, joined once, and handed to every
reader as one blob; the window keeps it for readers that come back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ringmere.core.backlog import Frame
from ringmere.core.cursor import EpochTable, Outcome, SubjectBounds
from ringmere.core.reasons import CloseReason
from ringmere.hub.attached import Attached
from ringmere.hub.fanout import FanOut
from ringmere.hub.feed import Feed
from ringmere.hub.replay import Batch, Encoder, Replay
from ringmere.hub.rewind import Reached, reached_by, rewind
from ringmere.hub.subscriber import Subscriber
from ringmere.hub.window import Window
from ringmere.log.port import Stored

if TYPE_CHECKING:
    from ringmere.hub.hub import Hub


class Channel:
    """The live state of one session on this instance, from its first reader to a while after its last."""

    def __init__(self, hub: Hub, session: str) -> None:
        self.hub = hub
        self.session = session
        self.started = False
        self.started_at = 0.0
        """Loop time."""
        self.slots = 0
        """Readers admitted, attached or not (contract 6.9)."""
        self.members: set[Subscriber] = set()
        self._live = FanOut()
        self.attached = Attached(self)
        """Streams of many sessions that follow this one."""
        self.starting: asyncio.Task[None] | None = None
        """The start under way, shared by all who wait for it."""
        self.ended = False
        self.flushed = 0
        """Sequence up to which live readers have been handed everything."""
        self.events = self.sent = 0
        """Events accepted since the channel began, and the bytes of all frames that were fanned out."""
        self.last_event = self.turns = 0
        """The newest stored event that live readers have been handed, and in how many turns they were handed any."""
        self.closed = False
        """Whether the newest event is terminal (contract 2.9)."""
        self.active_at = 0.0
        """Loop time of the newest fan-out."""
        self.told: frozenset[Subscriber] = frozenset()
        """Readers that know of a degradation and not of its end yet (contract 8.2)."""
        self.joined_at = 0.0
        """Loop time at which a reader was last served from the window."""
        self.evictions = 0
        self.table = hub.log.epochs(session)
        self.window = Window(0, hub.limits.window_bytes, hub.log.ring_size, hub.window_budget)
        self._stream_tail = 0
        self._purged_at = -1
        self.feed = Feed(self)
        self._encoder = Encoder(self.table, session, hub.observer)
        self.replay = Replay(hub.log, session, self._encoder, hub.limits, hub.reads, hub.pages, hub.clock)
        self._turn: list[Frame] = []
        self._turn_bytes = 0
        self._bounds: tuple[float, asyncio.Future[SubjectBounds]] | None = None
        self._now = asyncio.get_running_loop().time

    @property
    def last(self) -> int:
        """Sequence of the newest message that was accepted."""
        return self.feed.last

    def id_of(self, seq: int) -> int:
        """Return the public id of a sequence under the epoch table this channel encodes with."""
        return self.table.id_of(seq) if seq else 0

    async def start(self) -> None:
        """Begin to follow the session; raises ``LogUnavailable``."""
        await self.feed.start()
        self.started = True
        self.started_at = self._now()
        self.feed.follow(self.hub.log.epochs(self.session))

    def close(self) -> None:
        """End the feed and every read; the readers have been ended by the hub."""
        self.ended = True
        self.hub.behind.discard(self)
        if self.starting is not None:
            self.starting.cancel()
        self.feed.close()
        self.replay.close()
        self.window.reset(0)

    def fail(self, error: Exception) -> None:
        """End every stream because of a fault of this program: silence would look like a quiet session."""
        context = {"message": f"session {self.session} could not be followed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
        for reader in list(self.members):
            reader.give_up()
        self.attached.give_up()
        self.hub.discard(self)

    # -- what the feed calls ---------------------------------------------------------------------------

    def begin_at(self, stored: Stored | None, tail: int) -> None:
        """Begin behind ``stored``, the session's last message, which the window gets; ``tail`` is the stream's."""
        self.flushed = self.last
        self.closed = False
        self.window.reset(self.last)
        self._stream_tail = tail
        self._purged_at = -1
        made = self._encoder.frame(*stored) if stored is not None else None
        if stored is not None and made is not None:
            frame, self.closed = made
            self.window.reset(self.last - 1)
            self.window.add([frame], stored.time_ns)
            self._expire_window()

    def accept(self, seq: int, time_ns: int, payload: bytes) -> None:
        """Take the next live message into this turn (the hot path)."""
        made = self._encoder.frame(seq, time_ns, payload)
        if made is None:
            return
        frame, self.closed = made
        self.events += 1
        self._push(frame)
        if self._turn_bytes >= self.hub.limits.turn_bytes:
            self.feed.stalled = True
            self.hub.behind.add(self)

    def take(self, batch: Batch) -> None:
        """Take a page that fills a hole."""
        for frame in batch.frames:
            self._push(frame)
        if batch.frames:
            self.closed = batch.closed
            self.events += len(batch.frames)
        self.flush()

    def take_unstored(self, frame: Frame) -> None:
        """Take a frame that no log has into this turn: an event that could not be stored, or a notice of that."""
        self.events += bool(frame.size)
        self._push(frame)
        if self._turn_bytes >= self.hub.limits.turn_bytes:
            self.flush()

    def push_gap(self, earliest: int) -> None:
        """Tell live readers that something before ``earliest`` is gone, each from the last event that it has."""
        self.flush()
        self.window.reset(earliest - 1)
        self.replay.forget()
        self.closed = False
        for reader in self.readers:
            reader.overtaken(self.id_of(earliest), self.last)
        self.flushed = self.last
        self.attached.overtaken(earliest)
        self.hub.observer.resync(self.session, Outcome.RING_EVICTED.value, None, None)

    def _push(self, frame: Frame) -> None:
        if not self._turn:
            self.hub.mark_dirty(self)
        self._turn.append(frame)
        self._turn_bytes += len(frame.sse)

    def change_table(self, table: EpochTable) -> Reached:
        """Encode under another epoch table from now on; return what each reader had reached under the old one."""
        self.flush()
        reached = reached_by(self)
        self.table = table
        self._encoder = self.replay.encoder = Encoder(table, self.session, self.hub.observer)
        self.replay.forget()
        self._bounds = None
        return reached

    def rewind_readers(self, reached: Reached) -> None:
        """Let every reader read on from the log, or tell it that its last id is unknown now (contract 1.2)."""
        rewind(self, reached)

    def purged(self) -> None:
        """A purge was recorded: what is remembered goes."""
        self.flush()
        self._purged_at = self.last
        self.window.reset(self.last)
        self.replay.forget()
        self._bounds = None
        self.closed = False
        self.feed.purged()

    # -- the fan-out -----------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Fan out, then go on with what did not fit into the turn."""
        self.flush()
        if self.feed.stalled:
            self.feed.go_on()

    def flush(self) -> None:
        """Hand all frames of this turn to all live readers as one blob each (the hot path)."""
        turn = self._turn
        if not turn:
            return
        self._turn, self._turn_bytes = [], 0
        raw = b"".join([frame.sse for frame in turn])
        self.sent += len(raw)
        before = self.flushed
        taken = list(self._live.write(turn, raw, before))
        self.flushed = self.last
        if self.attached.live:
            self.attached.hand_on(turn, before)
        events = [frame for frame in turn if frame.seq]
        if events:
            self.turns += 1
            self.last_event = events[-1].seq
            self.window.add(events, self.feed.last_time_ns)
            self.active_at = self.feed.confirmed_at = self._now()
        count = len(events) if len(events) == len(turn) else sum(1 for frame in turn if frame.size)
        time_ns = self.feed.last_time_ns if events else 0
        for transport, readers in taken:
            if readers and count:
                self.hub.delivered.add(transport, count * readers, len(raw) * readers, time_ns)
        if self.closed:
            for reader in self.readers:
                reader.finish(CloseReason.SESSION_CLOSED)

    @property
    def readers(self) -> tuple[Subscriber, ...]:
        """Live readers; replaced, never changed, so that a fan-out under way is not disturbed."""
        return self._live.readers

    # -- what the readers ask --------------------------------------------------------------------------

    def joinable(self, position: int) -> bool:
        """Say whether a reader at ``position`` can be served from memory without a seam.

        The turn ends first: what it adds to the window may push out what the reader is due.
        """
        self.flush()
        self._expire_window()
        return self.window.floor <= position <= self.last

    def covers(self, position: int) -> bool:
        """Say whether everything behind ``position`` that this channel has come to is in memory."""
        self.flush()
        self._expire_window()
        return self.window.floor <= position

    @property
    def live_position(self) -> int:
        """Where a reader without a cursor begins: behind the newest event, or before it when it ended the session."""
        return self.last_word - 1 if self.closed else self.last

    @property
    def last_word(self) -> int:
        """Sequence of the terminal event of a closed session, 0 while it is open; the window always holds it."""
        self.flush()
        return self.window.last_event if self.closed else 0

    @property
    def start_id(self) -> int:
        """The id that names the point where a reader without a cursor begins."""
        return self.id_of(self.start_point)

    @property
    def start_point(self) -> int:
        """The sequence that names this moment in the log.

        An empty session's is the stream's tail: a cursor there is judged right, 0 would mean everything.
        """
        return max(self.last, self._stream_tail)

    @property
    def known(self) -> bool:
        """Whether the session has, or had, messages that no purge has removed."""
        return self.last not in (0, self._purged_at)

    def _expire_window(self) -> None:
        """Serve nothing from memory that the log has expired; the last word of a closed session is the head's."""
        ttl = self.hub.log.log_ttl
        if ttl and not self.closed:
            self.window.expire(self.hub.clock() - int(ttl * 1e9))

    def shrink_window(self) -> None:
        """Give the window's memory back (the instance has too much of it)."""
        self.flush()
        if self.closed:
            self.window.keep_newest()
        else:
            self.window.reset(self.last)

    async def catch_up(self) -> None:
        """Return once everything that the leader has now has been accepted."""
        await self.feed.catch_up()

    async def bounds(self) -> SubjectBounds:
        """Return leader bounds at most ``bounds_age`` old; a storm of readers shares one read."""
        now = self._now()
        if self._bounds is None or now - self._bounds[0] > self.hub.limits.bounds_age or _failed(self._bounds[1]):
            self._bounds = (now, asyncio.ensure_future(self.hub.log.bounds(self.session)))
            # All who asked may have gone when it fails: that is nothing to complain about.
            self._bounds[1].add_done_callback(_failed)
        return await asyncio.shield(self._bounds[1])

    def enter(self, reader: Subscriber) -> None:
        """Add a live reader."""
        self._live.enter(reader)
        self.joined_at = self._now()
        self.hub.breakers.greet(self, reader)

    def leave(self, reader: Subscriber) -> None:
        """Remove a live reader, at once, also in the middle of a fan-out."""
        self._live.leave(reader)


def _failed(answer: asyncio.Future[SubjectBounds]) -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)
