"""Snapshots in a key-value bucket: a state a session, changed by compare-and-set (contract 10.1).

A record is the snapshot as JSON, with the birth of the log that its last event belongs to. The bucket has no
notices: a snapshot is read from the leader when somebody wants it, and kept in no instance's memory.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ringmere.core.cursor import EpochTable
from ringmere.core.errors import SnapshotTooLarge, UnknownEventId
from ringmere.core.limits import MIB
from ringmere.core.session import check_session_id
from ringmere.core.snapshot import SnapshotDraft
from ringmere.core.strict_json import one_line
from ringmere.log import api
from ringmere.log.basis import Basis, check_basis, refuse_older
from ringmere.log.connect import Connection
from ringmere.log.port import Snapshot
from ringmere.log.provision import create_fitting, ensure_stream, snapshot_limit
from ringmere.log.records import Bucket, Record, RecordConflict, key_of
from ringmere.log.shape import HEADER_ROOM, SNAPSHOT_SHARE, StreamSettings, Wanted
from ringmere.log.shards import stream_name

BUCKET = "RINGMERE_SNAPSHOTS"
CAS_TRIES = 20
"""Lost races in a row before a write is given up; each lost one means that another writer got on."""


class _Stored(msgspec.Struct):
    """A record; the names are the public ones."""

    lastEventId: int  # noqa: N815
    birth: str
    state: msgspec.Raw
    final: bool = False


_decode = msgspec.json.Decoder(_Stored).decode
_encode = msgspec.json.Encoder().encode


def wanted_snapshots(bucket: Bucket, settings: StreamSettings, max_bytes: int) -> Wanted:
    """Return what the bucket's stream should look like.

    A snapshot lives as long as anything else of its session, by the settings that made the bucket or reconciled it.
    Unlike records of the log itself, the oldest ones make room for new ones, as events do.
    """
    age = max(settings.log_ttl, settings.head_ttl) if settings.log_ttl and settings.head_ttl else 0.0
    config = bucket.configuration(settings.replicas, max_bytes, age) | {"discard": "old", "republish": None}
    as_found = {"max_age": settings.reconcile, "max_bytes": settings.snapshot_bytes}
    return Wanted(config, frozenset(field for field, given in as_found.items() if not given))


async def prepare_snapshots(connection: Connection, settings: StreamSettings, account: dict[str, Any]) -> None:
    """Create the bucket, or check it; it takes less than it asks for when the store has no more."""
    bucket = Bucket(connection, BUCKET)
    wanted = wanted_snapshots(bucket, settings, snapshot_limit(settings, account))
    if await api.stream_info(connection, bucket.stream) is None:
        # A cluster knows its servers' room only some seconds later, and grants more than there is: then it refuses
        # every change of any stream. So no more is asked for than goes with what events were granted.
        share = max(await _event_bytes(connection, settings) // SNAPSHOT_SHARE, MIB)
        limit = settings.snapshot_bytes or min(wanted.config["max_bytes"], share)
        await create_fitting(connection, wanted.config | {"max_bytes": limit}, MIB)
    await ensure_stream(connection, wanted, reconcile=settings.reconcile)


async def _event_bytes(connection: Connection, settings: StreamSettings) -> int:
    """Return what all event streams together may hold, as they were granted."""
    infos = [await api.stream_info(connection, stream_name(shard)) for shard in range(settings.shards)]
    return sum(info["config"]["max_bytes"] for info in infos if info is not None)


class BucketSnapshots:
    """The snapshots of all sessions. ``log`` is what they are snapshots of."""

    def __init__(self, connection: Connection, settings: StreamSettings, log: Basis) -> None:
        self._connection = connection
        self._settings = settings
        self._log = log
        self._bucket = Bucket(connection, BUCKET)

    @property
    def max_bytes(self) -> int:
        """Largest state that is taken: the setting, as far as the server goes along."""
        whole = self._connection.max_payload
        limit = whole - min(HEADER_ROOM, whole // 4)
        return min(limit, self._settings.max_snapshot_bytes or limit)

    async def read(self, session: str) -> Snapshot | None:
        """Return the session's snapshot."""
        record = await self._bucket.get(key_of(check_session_id(session)))
        return known_snapshot(record, self._log.epochs(session))

    async def put(self, session: str, draft: SnapshotDraft) -> bool:
        """Store a snapshot; a writer that lost a race looks at everything again."""
        key = key_of(check_session_id(session))
        if len(draft.state) > self.max_bytes:
            raise SnapshotTooLarge(len(draft.state), self.max_bytes)
        for _ in range(CAS_TRIES):
            record = await self._bucket.get(key)
            table = self._log.epochs(session)
            refuse_older(known_snapshot(record, table), draft)
            await check_basis(self._log, session, draft.last_event_id)
            value = _encode(_Stored(draft.last_event_id, table.birth, msgspec.Raw(draft.state), draft.final))
            try:
                revision = await self._bucket.put(key, value, record.revision if record is not None else 0)
            except RecordConflict:
                continue
            await self._keep_unless_purged(session, draft.last_event_id, revision)
            return record is not None
        raise RecordConflict(f"the snapshot of {session} changes faster than it can be changed")

    async def _keep_unless_purged(self, session: str, public_id: int, revision: int) -> None:
        """Look once more: a purge that came in between was recorded before it removed the snapshot of before."""
        try:
            await check_basis(self._log, session, public_id)
        except UnknownEventId:
            await self._bucket.drop(key_of(session), revision)
            raise

    async def drop(self, session: str) -> None:
        """Remove a session's snapshot."""
        await self._bucket.drop(key_of(check_session_id(session)))

    async def forget(self, session: str, purged_to: int) -> None:
        """Remove what a purge up to that id leaves no basis for: a state that was stored behind it meanwhile stays."""
        key = key_of(check_session_id(session))
        record = await self._bucket.get(key)
        if record is None:
            return
        found = known_snapshot(record, self._log.epochs(session))
        if found is None or found.last_event_id <= purged_to:
            await self._bucket.drop(key, record.revision)


def known_snapshot(record: Record | None, table: EpochTable) -> Snapshot | None:
    """Return the snapshot that a record holds, None for one of another log.

    What is no such record was written past the gateways: it counts as none, and the next snapshot replaces it.
    """
    if record is None:
        return None
    try:
        stored = _decode(record.value)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    if stored.birth != table.birth or not table.known(stored.lastEventId):
        return None
    state = one_line(bytes(stored.state))
    return Snapshot(stored.lastEventId, state, stored.final, api.nanoseconds(record.time))
