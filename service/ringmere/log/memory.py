"""A log in memory that keeps the promises of :mod:`ringmere.log.port`, for tests and for trying things out.

Several :class:`MemoryLog` on one :class:`~ringmere.log.memory_store.MemoryStore` stand for several
instances on one NATS. What a network can do to an instance is asked for by name: :meth:`MemoryLog.drop_live`,
:meth:`MemoryLog.hold_live`, :meth:`MemoryLog.disconnect`, ``replica_lag``, ``before``.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter

from ringmere.core.cursor import EpochTable, SubjectBounds
from ringmere.core.errors import EventTooLarge, LogUnavailable, RingmereError
from ringmere.core.session import check_session_id, is_session_id
from ringmere.log.memory_across import MemoryAcross
from ringmere.log.memory_snapshots import MemorySnapshots
from ringmere.log.memory_store import MemoryStore
from ringmere.log.memory_tail import Live, MemoryTail
from ringmere.log.port import (
    Appended,
    Head,
    LiveSink,
    LogListener,
    Page,
    Row,
    SessionPage,
    SessionState,
    Stored,
    TraceSink,
)
from ringmere.log.shards import shard_of

_seq = attrgetter("seq")


class MemoryLog(MemoryAcross):
    """One instance's handle on a store.

    ``calls`` counts calls by method name; ``replica_lag`` is how many of a stream's newest messages reads by
    :meth:`page` and :meth:`newer` do not see; ``before`` is awaited with (method, session) before each call
    takes effect, so that a test can stop the log at any point or let it fail.
    """

    def __init__(self, store: MemoryStore | None = None) -> None:
        super().__init__()
        self.store = store or MemoryStore()
        self.ring_size = self.store.ring_size
        self.log_ttl = self.store.log_ttl
        self.max_event_bytes = self.store.max_event_bytes
        self.connected = True
        self.calls: Counter[str] = Counter()
        self.replica_lag = 0
        self.before: Callable[[str, str], Awaitable[None]] | None = None
        self._listener: LogListener | None = None
        self._tails: dict[str, list[MemoryTail]] = {}
        self._drop = 0
        self._held: list[Live] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.snapshots = MemorySnapshots(self)
        self.store.watchers.append(self)

    @property
    def keeps_heads(self) -> bool:
        """Whether the store keeps heads."""
        return bool(self.store.head_ttl)

    def listen(self, listener: LogListener) -> None:
        """Set the one listener."""
        self._listener = listener

    def shard_of(self, session: str) -> int:
        """Return the shard that keeps ``session``."""
        return shard_of(check_session_id(session), self.store.shards)

    def epochs(self, session: str) -> EpochTable:
        """Return the current epoch table of the session's stream."""
        return self.store.tables[self.shard_of(session)]

    async def append(self, session: str, row: Row, expected: int | None = None) -> Appended:
        """Store one event."""
        shard = await self._call("append", session)
        self._fits(row)
        return self.store.append(shard, session, row, expected)

    async def append_many(self, session: str, rows: Sequence[Row]) -> list[Appended | RingmereError]:
        """Store rows in order, one result a row."""
        results: list[Appended | RingmereError] = []
        try:
            shard = await self._call("append_many", session)
        except LogUnavailable as error:
            return [error for _ in rows]
        for row in rows:
            try:
                self._fits(row)
                results.append(self.store.append(shard, session, row, None))
            except RingmereError as error:
                results.append(error)
        return results

    async def append_atomic(self, session: str, rows: Sequence[Row], expected: int | None = None) -> list[Appended]:
        """Store all rows or none."""
        shard = await self._call("append_atomic", session)
        for row in rows:
            self._fits(row)
        return self.store.append_atomic(shard, session, rows, expected)

    async def subscribe(self, session: str, sink: LiveSink, traces: TraceSink | None = None) -> MemoryTail:
        """Start the live tail."""
        await self._call("subscribe", session)
        self._loop = asyncio.get_running_loop()
        tail = MemoryTail(sink, traces, lambda tail: self._forget(session, tail))
        self._tails.setdefault(session, []).append(tail)
        return tail

    async def bounds(self, session: str) -> SubjectBounds:
        """Return the subject's and the stream's bounds."""
        return self.store.bounds(await self._call("bounds", session), session)

    async def contains(self, session: str, seq: int) -> bool:
        """Say whether ``seq`` is stored on this session's subject."""
        shard = await self._call("contains", session)
        return self.store.at(self.store.stream(shard), session, seq) is not None

    async def last(self, session: str) -> Stored | None:
        """Return the session's last message."""
        shard = await self._call("last", session)
        messages = self.store.stream(shard).subjects.get(session)
        return messages[-1] if messages else None

    async def head(self, session: str) -> Head | None:
        """Return what is known of a session whose messages may have expired."""
        return self.store.head(await self._call("head", session), session)

    async def page(self, session: str, start: int, max_bytes: int) -> Page:
        """Read messages with a sequence ≥ ``start``, up to about ``max_bytes``, at least one behind ``start``."""
        messages = self._replica(await self._call("page", session), session)
        taken: list[Stored] = []
        size = 0
        for message in messages[bisect_left(messages, start, key=_seq) :]:
            if taken and taken[-1].seq > start and size + len(message.payload) > max_bytes:
                return Page(taken, True)
            taken.append(message)
            size += len(message.payload)
        return Page(taken, False)

    async def newer(self, positions: Sequence[tuple[str, int]]) -> list[bool]:
        """Say for each position whether a newer message is stored."""
        await self.enter("newer", "")
        replicas = [(self._replica(self.shard_of(session), session), seq) for session, seq in positions]
        return [bool(messages) and messages[-1].seq > seq for messages, seq in replicas]

    async def check_epoch(self, session: str) -> EpochTable:
        """Add a row to the epoch table when the stream is not the one it was."""
        return self.store.check_epoch(await self._call("check_epoch", session))

    async def sessions(self, prefix: str, after: str, limit: int) -> SessionPage:
        """List sessions that have messages stored."""
        await self.enter("sessions", "")
        names = sorted(
            session
            for shard in range(self.store.shards)
            for session in self.store.stream(shard).subjects
            if session.startswith(prefix) and session > after and is_session_id(session)
        )
        states = [self.store.state(self.shard_of(session), session) for session in names[:limit]]
        found = [state for state in states if state is not None]
        return SessionPage(found, names[limit - 1] if len(names) > limit else None)

    async def session(self, session: str) -> SessionState | None:
        """Return one session's state."""
        return self.store.state(await self._call("session", session), session)

    async def purge(self, session: str) -> None:
        """Remove the session's messages, its head and its snapshot."""
        self.store.purge(await self._call("purge", session), session)

    async def publish_degraded(self, session: str, payloads: Sequence[bytes]) -> None:
        """Send events to the listeners of all instances without storing them."""
        await self._call("publish_degraded", session)
        for payload in payloads:
            self._fits(Row(payload))
        for payload in payloads:
            self.store.degraded(session, payload)

    async def probe(self, shard: int) -> None:
        """Store a message that belongs to no session."""
        await self.enter("probe", "")
        self.store.probe(shard)

    async def doubt_storing(self, shard: int) -> None:
        """Tell all instances that this one cannot store in a shard."""
        await self.enter("doubt_storing", "")
        self.store.doubt(shard)

    async def close(self) -> None:
        """Leave the store."""
        self.connected = False
        self._tails.clear()
        if self in self.store.watchers:
            self.store.watchers.remove(self)

    # What a network can do to this instance.

    def drop_live(self, count: int = 1) -> None:
        """Lose the next ``count`` live messages on their way to this instance."""
        self._drop += count

    def hold_live(self) -> None:
        """Keep live messages back until :meth:`release_live`."""
        self._held = self._held or []

    def lose_held(self) -> None:
        """Lose what is held back, and go on holding."""
        self._held = [] if self._held is not None else None

    def release_live(self) -> None:
        """Deliver what was held back, in order."""
        held, self._held = self._held or [], None
        for live in held:
            self._send(live)

    def disconnect(self) -> None:
        """Lose the connection: calls fail, live messages pass by."""
        self.connected = False
        if self._listener is not None:
            self._listener.log_connected(False)

    def reconnect(self) -> None:
        """Come back, with all subscriptions."""
        self.connected = True
        if self._listener is not None:
            self._listener.log_connected(True)
        self.tell_flags()

    # What the store tells this instance.

    def live(self, live: Live) -> None:
        """Take a live message off the network."""
        self.tell_news(live)
        if not self.connected or live.session not in self._tails:
            return
        if self._drop:
            self._drop -= 1
        elif self._held is not None:
            self._held.append(live)
        else:
            self._send(live)

    def epochs_changed(self, shard: int, table: EpochTable) -> None:
        """Pass new epoch rows on."""
        if self._listener is not None:
            self._listener.epochs_changed(shard, table)

    def session_purged(self, session: str) -> None:
        """Pass a purge on."""
        if self._listener is not None:
            self._listener.session_purged(session)

    def degraded_event(self, session: str, payload: bytes) -> None:
        """Pass on an event that is not stored, unless it is lost on the way."""
        if self.connected and self._listener is not None:
            asyncio.get_running_loop().call_soon(self._listener.degraded_event, session, payload)

    def storing_doubted(self, shard: int) -> None:
        """Pass on that an instance cannot store."""
        if self.connected and self._listener is not None:
            asyncio.get_running_loop().call_soon(self._listener.storing_doubted, shard)

    def _forget(self, session: str, tail: MemoryTail) -> None:
        """Drop a closed tail."""
        tails = [other for other in self._tails.get(session, []) if other is not tail]
        if tails:
            self._tails[session] = tails
        else:
            self._tails.pop(session, None)

    def _send(self, live: Live) -> None:
        for tail in self._tails.get(live.session, []):
            assert self._loop is not None
            self._loop.call_soon(tail.deliver, live)

    def _replica(self, shard: int, session: str) -> list[Stored]:
        stream = self.store.stream(shard)
        messages = stream.subjects.get(session, [])
        if not self.replica_lag:
            return messages
        return messages[: bisect_left(messages, stream.tail - self.replica_lag + 1, key=_seq)]

    def _fits(self, row: Row) -> None:
        if len(row.payload) > self.max_event_bytes:
            raise EventTooLarge(len(row.payload), self.max_event_bytes)

    async def _call(self, method: str, session: str) -> int:
        shard = self.shard_of(session)
        await self.enter(method, session)
        return shard

    async def enter(self, method: str, session: str) -> None:
        """Begin a call: count it, let the test have its say, fail while there is no connection."""
        self.calls[method] += 1
        if self.before is not None:
            await self.before(method, session)
        await asyncio.sleep(0)
        if not self.connected:
            raise LogUnavailable("not connected to the log")
