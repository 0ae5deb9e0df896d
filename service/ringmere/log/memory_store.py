"""What several :class:`~ringmere.log.memory.MemoryLog` handles share: streams, heads, epochs, purges.

It stands for the NATS servers of one site. Everything happens at one moment, in the call; what a network
does in between (delay, loss, stale replicas) is the handle's part.
"""

from __future__ import annotations

import secrets
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol

from ringmere.core.cursor import EpochTable, SubjectBounds
from ringmere.core.errors import KeyReused, RingmereError, WrongLastEventId
from ringmere.core.event import is_terminal
from ringmere.core.limits import KIB, MIB
from ringmere.log.memory_flags import FlagTable
from ringmere.log.memory_tail import Live
from ringmere.log.port import Answerer, Appended, Head, Row, SessionState, Snapshot, Stored
from ringmere.log.shards import PROBE

NS = 1_000_000_000
_seq = attrgetter("seq")


class StoreWatcher(Protocol):
    """One handle, as the store sees it."""

    def live(self, live: Live) -> None:
        """A message was stored."""

    def epochs_changed(self, shard: int, table: EpochTable) -> None:
        """The epoch table of a shard has new rows."""

    def session_purged(self, session: str) -> None:
        """A purge of the session was recorded."""

    def degraded_event(self, session: str, payload: bytes) -> None:
        """An event went out without being stored."""

    def cancel_noticed(self, session: str, task: str) -> None:
        """The cancel flag of a task was set."""

    def storing_doubted(self, shard: int) -> None:
        """An instance says that it cannot store in a shard."""


class MemoryStream:
    """One shard: sequences shared by all its sessions, a ring with a fence for each of them."""

    def __init__(self, created: int) -> None:
        self.created = created
        self.tail = 0
        self.low = 1
        self.subjects: dict[str, list[Stored]] = {}
        self.owners: dict[int, str] = {}
        self.keys: dict[str, tuple[int, int]] = {}
        self.heads: dict[str, Stored] = {}
        self.purged: dict[str, int] = {}

    @property
    def first(self) -> int:
        """The lowest stored sequence; one past the tail when nothing is stored."""
        while self.low <= self.tail and self.low not in self.owners:
            self.low += 1
        return self.low

    def put(self, session: str, message: Stored, keep: int) -> int:
        """Store a message, drop the oldest beyond ``keep``; return the previous sequence of the session."""
        messages = self.subjects.setdefault(session, [])
        previous = messages[-1].seq if messages else 0
        messages.append(message)
        self.owners[message.seq] = session
        self.tail = message.seq
        if len(messages) > keep:
            del self.owners[messages.pop(0).seq]
        return previous

    def expire(self, before_ns: int) -> None:
        """Drop every message that is older than ``before_ns``."""
        while (first := self.first) <= self.tail:
            session = self.owners[first]
            messages = self.subjects[session]
            if messages[0].time_ns > before_ns:
                return
            del self.owners[messages.pop(0).seq]
            if not messages:
                del self.subjects[session]

    def drop(self, session: str) -> int:
        """Remove a session's messages; return the highest sequence removed, 0 for none."""
        messages = self.subjects.pop(session, [])
        for message in messages:
            del self.owners[message.seq]
        return messages[-1].seq if messages else 0

    def cut(self, tail: int) -> None:
        """Lose everything behind ``tail``, as a promoted copy that lagged has."""
        for session in [self.owners[seq] for seq in self.owners if seq > tail]:
            messages = self.subjects.get(session, [])
            while messages and messages[-1].seq > tail:
                del self.owners[messages.pop().seq]
            if not messages:
                self.subjects.pop(session, None)
        self.heads = {session: head for session, head in self.heads.items() if head.seq <= tail}
        self.tail = min(self.tail, tail)
        self.low = min(self.low, self.tail + 1)


class MemoryStore:
    """The shared state. ``clock`` returns nanoseconds since 1970; sizes are bytes, times seconds."""

    def __init__(
        self,
        *,
        ring_size: int = 8000,
        log_ttl: float = 3600.0,
        shards: int = 1,
        head_ttl: float = 7 * 86400.0,
        duplicate_window: float = 120.0,
        cancel_ttl: float = 3600.0,
        max_event_bytes: int = 1 * MIB - 64 * KIB,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.ring_size = ring_size
        self.log_ttl = log_ttl
        self.shards = shards
        self.head_ttl = head_ttl
        self.duplicate_window = min(duplicate_window, log_ttl) if log_ttl else duplicate_window
        self.max_event_bytes = max_event_bytes
        self.clock = clock
        self.watchers: list[StoreWatcher] = []
        self.served: dict[str, Answerer] = {}
        self.streams = [MemoryStream(clock()) for _ in range(shards)]
        self.tables = [EpochTable(secrets.token_hex(8)) for _ in range(shards)]
        self.recorded = [(stream.created, 0) for stream in self.streams]
        self.snapshots: dict[str, tuple[str, Snapshot]] = {}
        """By session: the birth of its log, and the snapshot."""
        self.flags = FlagTable(clock, cancel_ttl)
        self.refusals: dict[int, RingmereError] = {}

    def stream(self, shard: int) -> MemoryStream:
        """Return a shard's stream as it is now, expired messages removed."""
        stream = self.streams[shard]
        if self.log_ttl:
            stream.expire(self.clock() - int(self.log_ttl * NS))
        return stream

    def append(self, shard: int, session: str, row: Row, expected: int | None) -> Appended:
        """Store one row, or say why not; a known key is answered before the expectation is looked at."""
        self._check_storing(shard)
        stream = self.stream(shard)
        found = self.duplicate(stream, session, row)
        if found is not None:
            return found
        self.expect(shard, session, expected)
        return self._put(shard, stream, session, row)

    def append_atomic(self, shard: int, session: str, rows: Sequence[Row], expected: int | None) -> list[Appended]:
        """Store all rows or none. All of them known by their keys: duplicates; some: their keys were reused."""
        self._check_storing(shard)
        stream = self.stream(shard)
        found = [self.duplicate(stream, session, row) for row in rows]
        known = [answer for answer in found if answer is not None]
        if known and len(known) == len(rows):
            return known
        keys = [row.key for row in rows if row.key is not None]
        if known or len(set(keys)) != len(keys):
            raise KeyReused("a key of this batch was used before")
        self.expect(shard, session, expected)
        return [self._put(shard, stream, session, row) for row in rows]

    def duplicate(self, stream: MemoryStream, session: str, row: Row) -> Appended | None:
        """Return the first answer to a key inside the duplicate window, None for a new one."""
        if row.key is None:
            return None
        forgotten = self.clock() - int(self.duplicate_window * NS)
        while stream.keys and next(iter(stream.keys.values()))[1] <= forgotten:
            del stream.keys[next(iter(stream.keys))]
        seq, _ = stream.keys.get(f"{session}/{row.key}", (0, 0))
        if not seq:
            return None
        first = self.at(stream, session, seq)
        if first is not None and first.payload != row.payload:
            raise KeyReused("the key was used for another body")
        return Appended(seq, True)

    def expect(self, shard: int, session: str, expected: int | None) -> None:
        """Raise :class:`WrongLastEventId` unless ``expected`` is the session's last sequence (0: none)."""
        messages = self.streams[shard].subjects.get(session)
        last = messages[-1].seq if messages else 0
        if expected is not None and expected != last:
            raise WrongLastEventId(self.tables[shard].id_of(last) if last else 0)

    def at(self, stream: MemoryStream, session: str, seq: int) -> Stored | None:
        """Return the session's message with that very sequence."""
        messages = stream.subjects.get(session, [])
        index = bisect_left(messages, seq, key=_seq)
        return messages[index] if index < len(messages) and messages[index].seq == seq else None

    def bounds(self, shard: int, session: str) -> SubjectBounds:
        """Return the bounds of the session and its stream."""
        stream = self.stream(shard)
        messages = stream.subjects.get(session)
        purged_to = stream.purged.get(session, 0)
        if not messages:
            return SubjectBounds(stream.tail, stream.first, 0, 0, 0, purged_to)
        return SubjectBounds(stream.tail, stream.first, messages[0].seq, messages[-1].seq, len(messages), purged_to)

    def head(self, shard: int, session: str) -> Head | None:
        """Return what the head stream knows."""
        stored = self.streams[shard].heads.get(session)
        if stored is None or stored.time_ns <= self.clock() - int(self.head_ttl * NS):
            return None
        return Head(stored.seq, stored.time_ns, stored.payload, is_terminal(stored.payload))

    def state(self, shard: int, session: str) -> SessionState | None:
        """Return one session's state, None when nothing is stored."""
        messages = self.stream(shard).subjects.get(session)
        if not messages:
            return None
        last = messages[-1]
        return SessionState(session, messages[0].seq, last.seq, len(messages), last.time_ns, is_terminal(last.payload))

    def purge(self, shard: int, session: str) -> None:
        """Remove messages, head and snapshot, record it, tell every handle."""
        stream = self.stream(shard)
        stream.purged[session] = max(stream.drop(session), stream.purged.get(session, 0))
        stream.heads.pop(session, None)
        self.snapshots.pop(session, None)
        for watcher in tuple(self.watchers):
            watcher.session_purged(session)

    def recreate(self, shard: int = 0, *, noticed: bool = True) -> None:
        """Make a shard's stream anew, its sequences starting at 1; unnoticed, until somebody checks the epoch."""
        created = max(self.clock(), self.streams[shard].created + 1)
        self.streams[shard] = MemoryStream(created)
        if noticed:
            self.check_epoch(shard)

    def rewind(self, tail: int, shard: int = 0, *, noticed: bool = True) -> None:
        """Lose what lies behind ``tail``, as a promotion of a lagging copy does."""
        self.streams[shard].cut(tail)
        if noticed:
            self.check_epoch(shard)

    def check_epoch(self, shard: int) -> EpochTable:
        """Add a row when the stream is another one or its tail fell behind what was seen (contract 1.2)."""
        stream, table = self.streams[shard], self.tables[shard]
        created, seen = self.recorded[shard]
        if stream.created != created:
            changed = table.recreated(1)
        elif stream.tail < seen:
            changed = table.promoted(stream.tail)
        else:
            return table
        self.tables[shard] = changed
        self.recorded[shard] = (stream.created, stream.tail)
        for watcher in tuple(self.watchers):
            watcher.epochs_changed(shard, changed)
        return changed

    def refuse(self, error: RingmereError | None, shard: int | None = None) -> None:
        """Answer every append with ``error`` from now on, as a full or leaderless log does; None ends it.

        Without ``shard`` in all of them.
        """
        for each in range(self.shards) if shard is None else (shard,):
            if error is None:
                self.refusals.pop(each, None)
            else:
                self.refusals[each] = error

    def probe(self, shard: int) -> None:
        """Store a message that belongs to no session."""
        self._check_storing(shard)
        self._put(shard, self.stream(shard), PROBE, Row(b""))

    def degraded(self, session: str, payload: bytes) -> None:
        """Give an event to all handles without storing it."""
        for watcher in tuple(self.watchers):
            watcher.degraded_event(session, payload)

    def doubt(self, shard: int) -> None:
        """Tell all handles that one of them cannot store."""
        for watcher in tuple(self.watchers):
            watcher.storing_doubted(shard)

    def _check_storing(self, shard: int) -> None:
        error = self.refusals.get(shard)
        if error is not None:
            raise error

    def _put(self, shard: int, stream: MemoryStream, session: str, row: Row) -> Appended:
        now = self.clock()
        message = Stored(stream.tail + 1, now, row.payload)
        previous = stream.put(session, message, self.ring_size + 1)
        if row.key is not None:
            stream.keys[f"{session}/{row.key}"] = (message.seq, now)
        if self.head_ttl:
            stream.heads[session] = message
        self.recorded[shard] = (self.recorded[shard][0], max(self.recorded[shard][1], message.seq))
        for watcher in tuple(self.watchers):
            watcher.live(Live(session, previous, message, row.trace))
        return Appended(message.seq)
