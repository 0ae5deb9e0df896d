"""The log on JetStream: all parts of this floor, wired.

::

    Connection ── Leader ── query, Listing          what is stored
        │            └───── Outbox, Appender        what is to be stored
        ├── tail or ConsumerTails, Reader           what was and is being stored, in order
        ├── Degraded                                what cannot be stored
        ├── Epochs, Purges                          what ids mean, and since when
        ├── BucketSnapshots                         what somebody knows the state to be
        ├── Control                                 which tasks are to end
        └── Copies                                  how far head streams and mirrors are behind
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ringmere.core.cursor import MAX_ID, EpochTable, SubjectBounds
from ringmere.core.errors import EventTooLarge, LogUnavailable, RingmereError
from ringmere.core.limits import Limits
from ringmere.log import query
from ringmere.log import tail as republished
from ringmere.log.across import Across
from ringmere.log.append import Appender
from ringmere.log.atomic import AtomicAppender
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.consumer import ConsumerReader
from ringmere.log.consumer_tails import ConsumerTails
from ringmere.log.control import Control
from ringmere.log.copies import EVERY, Copies
from ringmere.log.degraded import Degraded
from ringmere.log.epochs import Epochs
from ringmere.log.leader import Leader
from ringmere.log.listing import Listing
from ringmere.log.outbox import Outbox
from ringmere.log.places import Place, Places
from ringmere.log.port import (
    Appended,
    Copy,
    Head,
    LiveSink,
    LogListener,
    Page,
    Row,
    SessionPage,
    SessionState,
    Stored,
    Tail,
    TraceSink,
)
from ringmere.log.purges import Purges
from ringmere.log.reader import DirectReader, Reader
from ringmere.log.shape import HEADER_ROOM, StreamSettings
from ringmere.log.snapshots import BucketSnapshots
from ringmere.log.streams import ShardInfo, ensure_streams

OPEN_TIMEOUT = 30.0
"""Seconds for everything between the first connect and a log that serves."""
READERS = ("consumer", "direct")


@dataclass(frozen=True, slots=True)
class LogSettings(StreamSettings):
    """What the operator asks of the log: the streams' shape and how an instance uses them.

    ``reader`` is how ranges are read: ``consumer`` (a direct get for the first page of a replay, an ordered
    consumer for the others) or ``direct``. ``timeout`` is how long one answer of NATS is waited for, ``copies_every``
    the interval of looks at streams that copy others, in seconds.
    """

    reader: str = "consumer"
    timeout: float = 2.0
    copies_every: float = EVERY

    def __post_init__(self) -> None:
        StreamSettings.__post_init__(self)
        if self.reader not in READERS:
            raise ValueError(f"reader must be one of {', '.join(READERS)}, not {self.reader}")


async def open_log(
    options: ConnectOptions, settings: LogSettings | None = None, limits: Limits | None = None
) -> JetStreamLog:
    """Connect, make or check the streams, and return a log that serves.

    Raises ``LogUnavailable`` when NATS cannot be reached, or JetStream does not answer, within their deadlines:
    a later try may succeed. Raises ``LogRefused`` or ``StreamShapeDiffers`` when none would.
    """
    wanted = settings or LogSettings()
    connection = await Connection.open(options)
    log: JetStreamLog | None = None
    try:
        async with asyncio.timeout(OPEN_TIMEOUT):
            shards = await ensure_streams(connection, wanted)
            largest = min(shard.max_msg_size for shard in shards)
            log = JetStreamLog(connection, wanted, limits or Limits(), largest, _chosen_tail(wanted, shards))
            await log.start()
    except BaseException as error:
        await (log or connection).close()
        if isinstance(error, TimeoutError):
            raise LogUnavailable(f"JetStream did not get ready within {OPEN_TIMEOUT:g} s") from error
        raise
    return log


def _chosen_tail(settings: LogSettings, shards: list[ShardInfo]) -> str:
    """Return the tail that was asked for; left open, the one that all streams can serve."""
    if settings.tail != "auto":
        return settings.tail
    return "republish" if all(shard.republishes for shard in shards) else "consumer"


class JetStreamLog(Across):
    """Keeps the promises of :class:`ringmere.log.port.Log`. Made by :func:`open_log`."""

    def __init__(
        self, connection: Connection, settings: LogSettings, limits: Limits, max_msg_size: int, tail: str
    ) -> None:
        self.ring_size = settings.ring_size
        self.log_ttl = settings.log_ttl
        self.shards = settings.shards
        self.connection = connection
        self.tail = tail
        """Where live messages come from: ``republish`` or ``consumer``."""
        self._settings = settings
        self._max_msg_size = max_msg_size
        self._listener: LogListener | None = None
        self._places = Places(settings.shards)
        self._epochs = Epochs(connection, settings)
        self._purges = Purges(connection, settings)
        self._leader = Leader(connection, settings.timeout)
        self._listing = Listing(self._leader, self._places, lambda: self.max_event_bytes)
        direct = DirectReader(connection, settings.timeout)
        self._reader: Reader = direct
        if settings.reader == "consumer":
            self._reader = ConsumerReader(connection, direct, settings.timeout)
        self._consumers: ConsumerTails | None = None
        if tail == "consumer":
            self._consumers = ConsumerTails(
                connection, self._leader, settings.shards, self._epochs.seen, self._tail_not_reopened, settings.timeout
            )
        outbox = Outbox(connection, lambda: self.max_event_bytes, limits, settings.timeout)
        self._appender = Appender(outbox, self._leader, self._epochs, settings.window)
        self._atomic = AtomicAppender(outbox, self._appender, self._epochs)
        self._degraded = Degraded(connection, settings.timeout, self._degraded_event, self._storing_doubted)
        self.snapshots = BucketSnapshots(connection, settings, self)
        self.cancels = Control(connection, settings, self._cancel_noticed)
        heads, every = bool(settings.head_ttl), settings.copies_every
        self._copies = Copies(connection, settings.shards, self._copies_seen, heads=heads, every=every)

    async def start(self) -> None:
        """Begin to watch epochs, purges and the connection."""
        await self._epochs.start()
        await self._purges.start()
        await self._degraded.start()
        await self.cancels.start()
        self._copies.start()
        self.connection.on_state(self._state_changed)
        self._epochs.on_change(self._epochs_changed)
        self._purges.on_purge(self._purged)

    @property
    def connected(self) -> bool:
        """Whether the connection to NATS is up."""
        return self.connection.connected

    @property
    def max_event_bytes(self) -> int:
        """Largest payload that an append takes: what server and stream take, less room for headers (2.6)."""
        whole = min(self.connection.max_payload, self._max_msg_size)
        limit = whole - min(HEADER_ROOM, whole // 4)
        return min(limit, self._settings.max_event_bytes or limit)

    @property
    def keeps_heads(self) -> bool:
        """Whether there are head streams."""
        return bool(self._settings.head_ttl)

    def listen(self, listener: LogListener) -> None:
        """Set the one listener."""
        self._listener = listener

    def shard_of(self, session: str) -> int:
        """Return the shard that keeps ``session``."""
        return self._places.of(session).shard

    def epochs(self, session: str) -> EpochTable:
        """Return the current epoch table of the session's stream."""
        return self._epochs.table(self._places.of(session).shard)

    async def append(self, session: str, row: Row, expected: int | None = None) -> Appended:
        """Store one event."""
        return await self._appender.append(self._places.of(session), row, expected)

    async def append_many(self, session: str, rows: Sequence[Row]) -> list[Appended | RingmereError]:
        """Store rows pipelined and in order."""
        return await self._appender.append_many(self._places.of(session), rows)

    async def append_atomic(self, session: str, rows: Sequence[Row], expected: int | None = None) -> list[Appended]:
        """Store all rows or none."""
        return await self._atomic.append(self._places.of(session), rows, expected)

    async def subscribe(self, session: str, sink: LiveSink, traces: TraceSink | None = None) -> Tail:
        """Start the live tail."""
        place = self._places.of(session)
        if self._consumers is not None:
            return await self._consumers.subscribe(place, sink, traces)
        return await republished.subscribe(self.connection, place, self._epochs.seen, sink, traces)

    async def bounds(self, session: str) -> SubjectBounds:
        """Return the leader's bounds of subject and stream; the order of the reads is explained in ``query.py``."""
        place = self._places.of(session)
        return await query.bounds(self._leader, place, lambda: self._purged_to(place))

    async def contains(self, session: str, seq: int) -> bool:
        """Say whether ``seq`` is stored on this session's subject."""
        return await query.contains(self._leader, self._places.of(session), seq)

    async def last(self, session: str) -> Stored | None:
        """Return the session's last message."""
        return await query.last(self._leader, self._places.of(session))

    async def head(self, session: str) -> Head | None:
        """Return what is known of a session whose messages may have expired; None also when heads are off."""
        place = self._places.of(session)
        if not self._settings.head_ttl:
            return None
        return await query.head(self.connection, place, lambda: self._purged_to(place))

    async def page(self, session: str, start: int, max_bytes: int) -> Page:
        """Read messages with a sequence ≥ ``start``, up to about ``max_bytes``."""
        return await self._reader.page(self._places.of(session), start, max_bytes)

    async def newer(self, positions: Sequence[tuple[str, int]]) -> list[bool]:
        """Say for each position whether a newer message is stored."""
        places = [(self._places.of(session), seq) for session, seq in positions]
        return await query.newer(self.connection, places, self._settings.timeout)

    async def check_epoch(self, session: str) -> EpochTable:
        """Ask the leader whether the stream is still the one of the table."""
        return await self._epochs.check(self._places.of(session).shard)

    async def sessions(self, prefix: str, after: str, limit: int) -> SessionPage:
        """List sessions that have messages stored."""
        return await self._listing.page(prefix, after, limit)

    async def session(self, session: str) -> SessionState | None:
        """Return one session's state."""
        return await self._listing.session(self._places.of(session))

    async def purge(self, session: str) -> None:
        """Remove the session's messages, its head and its snapshot, and tell every instance."""
        place = self._places.of(session)
        table = self._epochs.table(place.shard)
        last = await query.purge(
            self.connection,
            self._leader,
            place,
            lambda seq: self._purges.record(session, table.id_of(seq)),
            has_head=bool(self._settings.head_ttl),
        )
        await self.snapshots.forget(session, table.id_of(last) if last else MAX_ID)

    async def publish_degraded(self, session: str, payloads: Sequence[bytes]) -> None:
        """Send events to the listeners of all instances without storing them."""
        largest, limit = max(map(len, payloads), default=0), self.max_event_bytes
        if largest > limit:
            raise EventTooLarge(largest, limit)
        await self._degraded.publish(self._places.of(session).shard, session, payloads)

    async def probe(self, shard: int) -> None:
        """Return when the shard has proved that it stores."""
        await self._degraded.probe(shard)

    async def doubt_storing(self, shard: int) -> None:
        """Tell all instances that this one cannot store in a shard."""
        self._degraded.doubt(shard)

    async def close(self) -> None:
        """Release everything."""
        await self._copies.close()
        self._listing.close()
        self._degraded.close()
        await self.cancels.close()
        if self._consumers is not None:
            await self._consumers.close()
        await self._reader.close()
        await self._purges.close()
        await self._epochs.close()
        await self.connection.close()

    async def _purged_to(self, place: Place) -> int:
        return await self._purges.purged_to(place.session, self._epochs.table(place.shard))

    def _state_changed(self, connected: bool) -> None:
        if self._listener is not None:
            self._listener.log_connected(connected)

    def _epochs_changed(self, shard: int, table: EpochTable) -> None:
        if self._listener is not None:
            self._listener.epochs_changed(shard, table)

    def _tail_not_reopened(self, shard: int, reason: str) -> None:
        if self._listener is not None:
            self._listener.tail_not_reopened(shard, reason)

    def _copies_seen(self, copies: Sequence[Copy]) -> None:
        if self._listener is not None:
            self._listener.copies_seen(copies)
