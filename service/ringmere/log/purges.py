"""Purge records: up to which id a session was purged, so that no instance takes a hole for a quiet log (4.5).

A record is written before the purge itself. The verdict reads it from the leader; other instances hear
of it by notice and drop what they hold in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable

from ringmere.core.cursor import EpochTable, split_id
from ringmere.core.errors import InvalidSessionId, LogUnavailable
from ringmere.core.limits import MIB
from ringmere.core.session import check_session_id
from ringmere.log import api
from ringmere.log.connect import Connection, Subscription
from ringmere.log.provision import ensure_stream
from ringmere.log.records import Bucket, Record, RecordConflict, identifier_of, key_of
from ringmere.log.shape import StreamSettings, Wanted

BUCKET = "RINGMERE_PURGES"
BUCKET_BYTES = 64 * MIB
MIN_AGE = 86_400.0
"""Seconds that a record is kept at the least; longer than an instance or a mirror is cut off."""
CAS_TRIES = 20
CATCH_UP_TRIES = 10
RETRY = 0.5


class Purges:
    """The purge records of all sessions, and the news of them."""

    def __init__(self, connection: Connection, settings: StreamSettings) -> None:
        self._connection = connection
        self._settings = settings
        self.bucket = Bucket(connection, BUCKET)
        self._listeners: list[Callable[[str], None]] = []
        self._watch: Subscription | None = None
        self._revision = 0
        self._catching_up: asyncio.Task[None] | None = None

    def wanted(self) -> Wanted:
        """Return what the bucket's stream should look like; a record outlives all that was stored before its purge."""
        settings = self._settings
        age = max(settings.log_ttl, settings.head_ttl, MIN_AGE) if settings.log_ttl else 0.0
        # Kept longer or shorter, the records mean the same; nobody should have to reconcile them.
        return Wanted(self.bucket.configuration(settings.replicas, BUCKET_BYTES, age), frozenset({"max_age"}))

    async def prepare(self) -> None:
        """Create the bucket."""
        await ensure_stream(self._connection, self.wanted(), reconcile=self._settings.reconcile)

    async def start(self) -> None:
        """Listen for purges from now on."""
        self._watch = await self.bucket.watch(self._notice)
        info = await api.stream_info(self._connection, self.bucket.stream)
        if info is None:
            raise LogUnavailable(f"the bucket {BUCKET} does not exist")
        self._revision = info["state"]["last_seq"]
        self._connection.on_state(self._state)

    async def close(self) -> None:
        """Stop listening."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._catching_up is not None:
            self._catching_up.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._catching_up

    def on_purge(self, listener: Callable[[str], None]) -> None:
        """Call ``listener(session)`` when a purge was recorded, here or elsewhere; it may be called twice for one."""
        self._listeners.append(listener)

    async def record(self, session: str, public_id: int) -> None:
        """Record that everything up to ``public_id`` is purged; a record never goes back."""
        key = key_of(session)
        for _ in range(CAS_TRIES):
            found = await self.bucket.get(key)
            highest = max(public_id, _id_of(found))
            try:
                await self.bucket.put(key, json.dumps({"id": highest}).encode(), found.revision if found else 0)
            except RecordConflict:
                continue
            return
        raise RecordConflict(f"the purge record of {session} changes faster than it can be changed")

    async def purged_to(self, session: str, table: EpochTable) -> int:
        """Leader read: the highest purged sequence in terms of the present stream, 0 when there is none.

        A record of an epoch that is void, or of a range that was lost since, speaks of other messages.
        """
        public_id = _id_of(await self.bucket.get(key_of(session)))
        epoch, sequence = split_id(public_id)
        for index, row in enumerate(table.rows):
            if row.epoch == epoch and not row.void:
                later = table.rows[index + 1 :]
                return min(sequence, *(row.first - 1 for row in later)) if later else sequence
        return 0

    def _notice(self, key: str) -> None:
        try:
            session = check_session_id(identifier_of(key))
        except (ValueError, InvalidSessionId):
            # Nobody but a gateway writes here, so this is no record of ours.
            return
        for listener in self._listeners:
            listener(session)

    def _state(self, connected: bool) -> None:
        listening = self._watch is not None
        if connected and listening and (self._catching_up is None or self._catching_up.done()):
            self._catching_up = asyncio.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        """Tell of the purges whose notices were missed while the connection was down."""
        for _ in range(CATCH_UP_TRIES):
            with contextlib.suppress(LogUnavailable):
                info = await api.stream_info(self._connection, self.bucket.stream)
                for key, record in (await self.bucket.since(self._revision + 1)).items():
                    self._revision = max(self._revision, record.revision)
                    self._notice(key)
                # The newest record may be missing because the replica that answered is late, or because it is old.
                if info is None or self._revision >= info["state"]["last_seq"]:
                    return
            await asyncio.sleep(RETRY)


def _id_of(record: Record | None) -> int:
    return 0 if record is None else int(json.loads(record.value)["id"])
