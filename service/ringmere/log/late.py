"""A log that may come later, so that an instance can open its doors while NATS is still away.

Until :meth:`LateLog.arrive` every call that needs the log raises ``LogUnavailable``, which the doors
already know how to say. From then on all calls go to the log that has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringmere.core.cursor import EpochTable, SubjectBounds
from ringmere.core.errors import LogUnavailable, RingmereError
from ringmere.log.flags import Flags
from ringmere.log.port import (
    Answerer,
    Appended,
    Head,
    LiveSink,
    Log,
    LogListener,
    NewsSink,
    Page,
    Row,
    SessionPage,
    SessionState,
    Snapshots,
    Stored,
    Tail,
    TraceSink,
)

RETRY_AFTER = 2.0
"""Seconds that callers are told to wait while there is no log yet."""


class LateLog:
    """Keeps the promises of :class:`~ringmere.log.port.Log` for a log that is opened later.

    ``ring_size``, ``log_ttl`` and ``shards`` are what the log will be opened with; ``max_event_bytes`` is a guess until
    the server has said what it takes.
    """

    def __init__(self, ring_size: int, log_ttl: float, max_event_bytes: int, shards: int = 1) -> None:
        self.ring_size = ring_size
        self.log_ttl = log_ttl
        self._guess = max_event_bytes
        self._shards = shards
        self._log: Log | None = None
        self._listener: LogListener | None = None

    def arrive(self, log: Log) -> None:
        """Pass all further calls on to ``log``, and tell the listener that it is connected."""
        self._log = log
        self.ring_size = log.ring_size
        self.log_ttl = log.log_ttl
        if self._listener is not None:
            log.listen(self._listener)
            self._listener.log_connected(log.connected)

    @property
    def max_event_bytes(self) -> int:
        """Largest payload that an append takes, as the server says now."""
        return self._guess if self._log is None else self._log.max_event_bytes

    @property
    def connected(self) -> bool:
        """Whether the log is there and connected."""
        return self._log is not None and self._log.connected

    @property
    def keeps_heads(self) -> bool:
        """See :meth:`Log.keeps_heads`."""
        return self._log is not None and self._log.keeps_heads

    def listen(self, listener: LogListener) -> None:
        """Set the one listener, now and for the log that arrives."""
        self._listener = listener
        if self._log is not None:
            self._log.listen(listener)

    def _there(self) -> Log:
        if self._log is None:
            raise LogUnavailable("NATS has not answered yet", retry_after=RETRY_AFTER)
        return self._log

    @property
    def snapshots(self) -> Snapshots:
        """See :meth:`Log.snapshots`."""
        return self._there().snapshots

    @property
    def cancels(self) -> Flags:
        """See :meth:`Log.cancels`."""
        return self._there().cancels

    @property
    def shards(self) -> int:
        """How many shards there are, or will be."""
        return self._shards if self._log is None else self._log.shards

    def table(self, shard: int) -> EpochTable:
        """See :meth:`Log.table`."""
        return self._there().table(shard)

    async def newest(self, shard: int) -> int:
        """See :meth:`Log.newest`."""
        return await self._there().newest(shard)

    async def names(self, prefix: str, limit: int) -> list[str]:
        """See :meth:`Log.names`."""
        return await self._there().names(prefix, limit)

    async def watch(self, wanted: Callable[[str], bool], sink: NewsSink) -> Tail:
        """See :meth:`Log.watch`."""
        return await self._there().watch(wanted, sink)

    async def serve(self, name: str, answer: Answerer) -> Tail:
        """See :meth:`Log.serve`."""
        return await self._there().serve(name, answer)

    async def ask(self, name: str, request: bytes) -> bytes | None:
        """See :meth:`Log.ask`."""
        return await self._there().ask(name, request)

    def shard_of(self, session: str) -> int:
        """See :meth:`Log.shard_of`."""
        return self._there().shard_of(session)

    def epochs(self, session: str) -> EpochTable:
        """See :meth:`Log.epochs`."""
        return self._there().epochs(session)

    async def append(self, session: str, row: Row, expected: int | None = None) -> Appended:
        """See :meth:`Log.append`."""
        return await self._there().append(session, row, expected)

    async def append_many(self, session: str, rows: Sequence[Row]) -> list[Appended | RingmereError]:
        """See :meth:`Log.append_many`; without a log each row has the error as its result."""
        if self._log is None:
            return [LogUnavailable("NATS has not answered yet", retry_after=RETRY_AFTER) for _ in rows]
        return await self._log.append_many(session, rows)

    async def append_atomic(self, session: str, rows: Sequence[Row], expected: int | None = None) -> list[Appended]:
        """See :meth:`Log.append_atomic`."""
        return await self._there().append_atomic(session, rows, expected)

    async def subscribe(self, session: str, sink: LiveSink, traces: TraceSink | None = None) -> Tail:
        """See :meth:`Log.subscribe`."""
        return await self._there().subscribe(session, sink, traces)

    async def bounds(self, session: str) -> SubjectBounds:
        """See :meth:`Log.bounds`."""
        return await self._there().bounds(session)

    async def contains(self, session: str, seq: int) -> bool:
        """See :meth:`Log.contains`."""
        return await self._there().contains(session, seq)

    async def last(self, session: str) -> Stored | None:
        """See :meth:`Log.last`."""
        return await self._there().last(session)

    async def head(self, session: str) -> Head | None:
        """See :meth:`Log.head`."""
        return await self._there().head(session)

    async def page(self, session: str, start: int, max_bytes: int) -> Page:
        """See :meth:`Log.page`."""
        return await self._there().page(session, start, max_bytes)

    async def newer(self, positions: Sequence[tuple[str, int]]) -> list[bool]:
        """See :meth:`Log.newer`."""
        return await self._there().newer(positions)

    async def check_epoch(self, session: str) -> EpochTable:
        """See :meth:`Log.check_epoch`."""
        return await self._there().check_epoch(session)

    async def sessions(self, prefix: str, after: str, limit: int) -> SessionPage:
        """See :meth:`Log.sessions`."""
        return await self._there().sessions(prefix, after, limit)

    async def session(self, session: str) -> SessionState | None:
        """See :meth:`Log.session`."""
        return await self._there().session(session)

    async def purge(self, session: str) -> None:
        """See :meth:`Log.purge`."""
        await self._there().purge(session)

    async def publish_degraded(self, session: str, payloads: Sequence[bytes]) -> None:
        """See :meth:`Log.publish_degraded`."""
        await self._there().publish_degraded(session, payloads)

    async def probe(self, shard: int) -> None:
        """See :meth:`Log.probe`."""
        await self._there().probe(shard)

    async def doubt_storing(self, shard: int) -> None:
        """See :meth:`Log.doubt_storing`."""
        await self._there().doubt_storing(shard)

    async def close(self) -> None:
        """Close the log that has arrived, if any."""
        if self._log is not None:
            await self._log.close()
