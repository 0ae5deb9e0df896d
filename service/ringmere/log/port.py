"""What a log promises, whatever keeps it: the seam between ``log`` and ``hub``.

``memory.py`` and ``jetstream.py`` keep the same promises; ``tests/contract`` holds both to them. A log
speaks of *sequences*; the epoch table turns them into public ids. Everything called a *leader read*
is never stale: it sees every append that was acknowledged before it was asked.

Errors: a method that reaches the log raises :class:`~ringmere.core.errors.LogUnavailable` when the log
is away or does not answer in time, never a library's own error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from ringmere.core.cursor import EpochTable, SubjectBounds
from ringmere.core.errors import RingmereError
from ringmere.core.snapshot import SnapshotDraft
from ringmere.core.trace import TraceContext
from ringmere.log.flags import Flags


class Stored(NamedTuple):
    """One message of the log. ``time_ns`` is the log's own timestamp, nanoseconds since 1970."""

    seq: int
    time_ns: int
    payload: bytes


class Page(NamedTuple):
    """Consecutive stored messages of one session from a start on, ascending.

    ``messages`` is what the reading replica held; it may lag behind the leader, but has no hole inside.
    ``more`` says that the page ended at its size limit, not at the end of what the replica holds.
    """

    messages: list[Stored]
    more: bool


class Row(NamedTuple):
    """One event to append: canonical payload, its idempotency key, and the trace that its message is to carry.

    The trace is no part of the event: it never decides whether two rows with one key are the same.
    """

    payload: bytes
    key: str | None = None
    trace: TraceContext | None = None


class Appended(NamedTuple):
    """An acknowledged append. ``duplicate``: the key was stored before, ``seq`` is the first one's."""

    seq: int
    duplicate: bool = False


class Head(NamedTuple):
    """What the head stream keeps of a session: its last message, also after the log expired (contract 1.8)."""

    seq: int
    time_ns: int
    payload: bytes
    terminal: bool


class SessionState(NamedTuple):
    """One session as its log has it. ``stored`` counts messages, a fence included."""

    session: str
    first: int
    last: int
    stored: int
    last_time_ns: int
    closed: bool


class SessionPage(NamedTuple):
    """Sessions in ascending order of id; ``next`` is the ``after`` of the next page, None at the end."""

    sessions: list[SessionState]
    next: str | None


class Copy(NamedTuple):
    """A stream that copies from another one, as its leader sees it.

    ``stream`` is ``events`` or ``head``. ``lag`` counts what the origin has and it has not. ``heard_at`` is the loop
    time at which it has last heard of its origin.
    """

    stream: str
    shard: int
    lag: int
    heard_at: float


class Snapshot(NamedTuple):
    """A stored state that covers everything up to the public id ``last_event_id``; ``state`` is one line of JSON.

    ``final``: nothing is to come behind it. ``updated_ns`` is when the log took it, nanoseconds since 1970.
    """

    last_event_id: int
    state: bytes
    final: bool
    updated_ns: int


LiveSink = Callable[[int, int, int, bytes], None]
"""Takes one live message: ``(seq, previous seq on the subject, time_ns, payload)``. Must not block or raise."""

TraceSink = Callable[[int, int, TraceContext], None]
"""Takes the trace context of a live message: ``(seq, time_ns, trace)``. Must not block or raise."""


NewsSink = Callable[[str, int], None]
"""Takes the session and the sequence of a message that was stored. Must not block or raise."""
Answerer = Callable[[bytes], Awaitable[bytes]]
"""Answers what another instance asks."""


class Tail(Protocol):
    """A live subscription."""

    def close(self) -> None:
        """End it; the sink is not called any more after this returns."""


class LogListener(Protocol):
    """What the hub wants to hear from the log. Called on the event loop; must not block."""

    def log_connected(self, connected: bool) -> None:
        """The connection was lost (False) or is back and subscriptions are restored (True)."""

    def epochs_changed(self, shard: int, table: EpochTable) -> None:
        """The epoch table of a shard has new rows (contract 1.2)."""

    def session_purged(self, session: str) -> None:
        """A purge of the session was recorded, here or on another instance."""

    def degraded_event(self, session: str, payload: bytes) -> None:
        """An event went out to live readers without being stored, by this instance or another (contract 8.2)."""

    def storing_doubted(self, shard: int) -> None:
        """An instance, maybe this one, says that it cannot store in a shard."""

    def tail_not_reopened(self, shard: int, reason: str) -> None:
        """A shard's live messages stopped coming, and a try to have them again failed; there will be another."""

    def cancel_noticed(self, session: str, task: str) -> None:
        """The cancel flag of a task was set, here or on another instance (contract 10.3)."""

    def copies_seen(self, copies: Sequence[Copy]) -> None:
        """All streams that copy from others, looked at every few seconds."""


class Snapshots(Protocol):
    """Stored states, one a session, kept beside the log and at least as long as its heads (contract 10.1)."""

    @property
    def max_bytes(self) -> int:
        """Largest state that :meth:`put` takes; it can change with the server."""

    async def read(self, session: str) -> Snapshot | None:
        """Leader read; None also for a snapshot whose last event is none of the log as it is now."""

    async def put(self, session: str, draft: SnapshotDraft) -> bool:
        """Store a snapshot, or replace one that covers no more; return whether there was one.

        Raises ``SnapshotTooLarge``, ``UnknownEventId``, ``NewerSnapshot``. After ``LogUnavailable`` it may be stored;
        the same again is safe.
        """

    async def drop(self, session: str) -> None:
        """Remove a session's snapshot, if there is one."""


class Log(Protocol):
    """A durable log of sessions, each a ring of the newest ``ring_size`` messages plus a fence (contract 1)."""

    ring_size: int
    log_ttl: float
    """Seconds that a message is kept at the longest; 0 is for ever."""

    @property
    def max_event_bytes(self) -> int:
        """Largest payload that an append takes (contract 2.6); it can change with the server."""

    @property
    def connected(self) -> bool:
        """Whether the log can be reached now."""

    @property
    def snapshots(self) -> Snapshots:
        """The stored states of sessions."""

    @property
    def cancels(self) -> Flags:
        """The cancel flags of tasks."""

    @property
    def keeps_heads(self) -> bool:
        """Whether :meth:`head` knows every session of the last ``head_ttl`` (contract 1.8)."""

    def listen(self, listener: LogListener) -> None:
        """Set the one listener."""

    @property
    def shards(self) -> int:
        """How many shards there are."""

    def shard_of(self, session: str) -> int:
        """Return the shard that keeps ``session``."""

    def table(self, shard: int) -> EpochTable:
        """Return the current epoch table of a shard; no I/O."""

    async def newest(self, shard: int) -> int:
        """Leader read of the sequence that a shard's stream gave last, to whatever session."""

    def epochs(self, session: str) -> EpochTable:
        """Return the current epoch table of the session's stream; no I/O."""

    async def append(self, session: str, row: Row, expected: int | None = None) -> Appended:
        """Store one event and return when the log has acknowledged it.

        ``expected`` is the sequence that must be the session's last (0: nothing stored). Raises
        ``EventTooLarge``, ``WrongLastEventId`` (its ``current`` is a public id), ``KeyReused``,
        ``PublishOverloaded``, ``LogUnavailable`` (not stored), ``PublishUnconfirmed`` (fate unknown).
        """

    async def append_many(self, session: str, rows: Sequence[Row]) -> list[Appended | RingmereError]:
        """Store rows pipelined and in order; one result a row. Never raises for a row."""

    async def append_atomic(self, session: str, rows: Sequence[Row], expected: int | None = None) -> list[Appended]:
        """Store all rows or none; raises as :meth:`append` does."""

    async def subscribe(self, session: str, sink: LiveSink, traces: TraceSink | None = None) -> Tail:
        """Start the live tail; when this returns, what is appended from now on reaches ``sink`` (at most once).

        ``traces`` is told right behind ``sink`` of each message that carries a sampled trace context, whoever gave
        it; without one nobody looks.
        """

    async def bounds(self, session: str) -> SubjectBounds:
        """Leader read of the subject's and the stream's bounds."""

    async def contains(self, session: str, seq: int) -> bool:
        """Leader read: is ``seq`` stored on this session's subject? (contract 4.4)"""

    async def last(self, session: str) -> Stored | None:
        """Leader read of the session's last message."""

    async def head(self, session: str) -> Head | None:
        """Return what is known of a session whose messages may have expired; None when nothing is."""

    async def page(self, session: str, start: int, max_bytes: int) -> Page:
        """Read messages with a sequence ≥ ``start``, up to about ``max_bytes``.

        At least one message behind ``start`` comes with it, if the replica has one: whoever goes on from the last
        delivered sequence always gets on, however large the events are.
        """

    async def newer(self, positions: Sequence[tuple[str, int]]) -> list[bool]:
        """For each (session, last known sequence) say whether a newer message is stored. A replica may answer."""

    async def check_epoch(self, session: str) -> EpochTable:
        """Ask the leader whether the session's stream is still the one of the table, and add a row if not."""

    async def sessions(self, prefix: str, after: str, limit: int) -> SessionPage:
        """List sessions that have messages stored, ids greater than ``after``, at most ``limit``."""

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the ids of sessions that have messages stored, ascending, at most ``limit``."""

    async def watch(self, wanted: Callable[[str], bool], sink: NewsSink) -> Tail:
        """Tell ``sink`` of messages of ``wanted`` sessions in all shards, as they are stored, each at most once.

        In a shard they come in the order of its sequences, and in the same order with what tails deliver.
        """

    async def serve(self, name: str, answer: Answerer) -> Tail:
        """Answer what instances, this one too, ask under a name, until the returned subscription is closed."""

    async def ask(self, name: str, request: bytes) -> bytes | None:
        """Ask whoever serves a name; None when nobody does."""

    async def session(self, session: str) -> SessionState | None:
        """Return one session's state, None when nothing is stored."""

    async def purge(self, session: str) -> None:
        """Remove the session's messages, its head and its snapshot, and tell every instance."""

    async def publish_degraded(self, session: str, payloads: Sequence[bytes]) -> None:
        """Send events to the listeners of all instances without storing them; each at most once (contract 8.2).

        Returns when NATS has taken them. Raises ``EventTooLarge`` (none was sent) and ``LogUnavailable``.
        """

    async def probe(self, shard: int) -> None:
        """Return when the shard has proved that it stores: it has stored a message that belongs to no session.

        No reader, list or bound of a session ever shows it. Raises ``LogUnavailable`` or ``PublishUnconfirmed``.
        """

    async def doubt_storing(self, shard: int) -> None:
        """Tell all instances that this one cannot store in a shard, so that they look for themselves.

        Raises ``LogUnavailable``.
        """

    async def close(self) -> None:
        """Release everything; nothing is flushed, for every append was acknowledged."""
