"""Where epoch records live: a key-value record a shard, changed by compare-and-set, copied to the streams."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from ringmere.core.cursor import EpochTable
from ringmere.core.errors import LogRefused, StreamShapeDiffers
from ringmere.core.limits import MIB
from ringmere.log import api
from ringmere.log.connect import Connection
from ringmere.log.epoch_record import METADATA_KEY, EpochRecord, decode, new_record
from ringmere.log.provision import ShardInfo, ensure_stream, reset_head
from ringmere.log.records import Bucket, RecordConflict
from ringmere.log.shape import HEADS_OFF, StreamSettings, Wanted, wanted_heads
from ringmere.log.shards import event_subject, head_name, stream_name

BUCKET = "RINGMERE_EPOCHS"
BUCKET_BYTES = 16 * MIB
CAS_TRIES = 20
"""Lost races in a row before a change is given up; each lost one means that another instance got on."""


class EpochStore:
    """Reads and changes the epoch records of all shards."""

    def __init__(self, connection: Connection, settings: StreamSettings) -> None:
        self.connection = connection
        self.settings = settings
        self.bucket = Bucket(connection, BUCKET)

    def wanted(self) -> Wanted:
        """Return what the bucket's stream should look like."""
        return Wanted(self.bucket.configuration(self.settings.replicas, max_bytes=BUCKET_BYTES))

    async def prepare(self) -> None:
        """Create the bucket. Raises ``StreamShapeDiffers`` when the records were made for another ``shards``."""
        await ensure_stream(self.connection, self.wanted(), reconcile=self.settings.reconcile)
        first = await self.read(0)
        record = first[0] if first else await self._copied(0)
        if record is not None and record.shards != self.settings.shards:
            # No flag overrides this: a session's events would be looked for in another stream.
            raise StreamShapeDiffers(
                stream_name(0), [f"shards is {record.shards}, wanted {self.settings.shards}; it is fixed at birth"]
            )

    async def read(self, shard: int) -> tuple[EpochRecord, int] | None:
        """Leader read of a shard's record and its revision."""
        record = await self.bucket.get(_key(shard))
        return None if record is None else (decode(record.value), record.revision)

    async def ensure(self, info: ShardInfo) -> EpochRecord:
        """Return the record of a stream at start: kept, restored from the stream's metadata, or new.

        A stream created at another time than the record says gets its row, and a new head stream.
        """
        await self._create(info)
        record = await self.note_creation(info.shard)
        first_epoch = self.settings.first_epoch
        if record.table.newest.epoch < first_epoch:
            record = await self.change(info.shard, lambda found: _at_once(found.at_least(first_epoch, 1)))
        await self.copy_to_stream(info.shard, record)
        return record

    async def note_creation(self, shard: int) -> EpochRecord:
        """Add a row, and renew the head stream, if the stream was created at another time than the record says.

        A stream that still carries a copy of this record was restored: ids of what it had then stay valid.
        """

        async def decide(record: EpochRecord) -> EpochRecord:
            # Looked at anew after each read of the record: an older answer could undo a newer row.
            info = await api.stream_info(self.connection, stream_name(shard))
            if info is None or info["created"] == record.created:
                return record
            copy = _copy_in(info)
            if copy is None or copy.table.birth != record.table.birth:
                return record.recreated(info["created"], 1)
            return record.restored(info["created"], await self._restored_to(shard, info))

        return await self.change(shard, decide)

    async def _restored_to(self, shard: int, info: Any) -> int:
        """Return the last sequence that a restored stream has from before its restore."""
        newer = await api.message_since(self.connection, stream_name(shard), info["created"], event_subject(shard, "*"))
        return int(info["state"]["last_seq"]) if newer is None else newer.seq - 1

    async def note_loss(self, shard: int, tail: int, observed: EpochTable) -> EpochRecord:
        """Add a row behind ``tail`` unless the table is another one already than ``observed`` when it was seen."""
        return await self.change(
            shard, lambda record: _at_once(record.promoted(tail) if record.table == observed else record)
        )

    async def bump(
        self, shard: int, reason: str, at_ms: int, *, after: int | None = None, epoch: int | None = None
    ) -> EpochRecord:
        """Add a row by hand: what is behind the stream's tail, or behind ``after``, may have been used before.

        ``epoch`` is its number when it must be above one that this record does not know. Raises ``LogRefused``
        when ``after`` or ``epoch`` cannot be, or there is no stream, and ``StreamShapeDiffers`` when the settings
        are others than those the streams were made with: heads are made anew by them.
        """
        await self._check_heads(shard)
        await self.note_creation(shard)

        async def decide(record: EpochRecord) -> EpochRecord:
            info = await api.stream_info(self.connection, stream_name(shard))
            if info is None:
                raise LogRefused(f"the stream {stream_name(shard)} does not exist: start an instance, it makes it")
            tail = int(info["state"]["last_seq"])
            if after is not None and not 0 <= after <= tail:
                raise LogRefused(f"the stream {stream_name(shard)} ends at {tail}: {after} is not in it")
            try:
                return record.bumped(tail if after is None else after, reason, at_ms, epoch)
            except ValueError as error:
                raise LogRefused(str(error)) from error

        return await self.change(shard, decide)

    async def _check_heads(self, shard: int) -> None:
        found = await api.stream_info(self.connection, head_name(shard))
        if found is None:
            return
        if not self.settings.head_ttl:
            raise StreamShapeDiffers(head_name(shard), [HEADS_OFF])
        rows = wanted_heads(self.settings, shard, 0).differences(found["config"])
        if rows:
            raise StreamShapeDiffers(head_name(shard), rows)

    async def change(self, shard: int, decide: Callable[[EpochRecord], Awaitable[EpochRecord]]) -> EpochRecord:
        """Apply ``decide`` to the newest record until it wins the race; it is asked anew after each lost one.

        The instance that wins also copies the table to the stream and renews the head stream. When
        ``decide`` returns the record as it is, nothing is written.
        """
        for _ in range(CAS_TRIES):
            found = await self.read(shard)
            if found is None:
                raise RecordConflict(f"the epoch record of shard {shard} is gone")
            record, revision = found
            wanted = await decide(record)
            if wanted == record:
                return record
            try:
                await self.bucket.put(_key(shard), wanted.encode(), revision)
            except RecordConflict:
                continue
            await self.copy_to_stream(shard, wanted)
            await reset_head(self.connection, self.settings, shard)
            return wanted
        raise RecordConflict(f"the epoch record of shard {shard} changes faster than it can be changed")

    async def copy_to_stream(self, shard: int, record: EpochRecord) -> None:
        """Copy a record to the metadata of its stream, from where a lost record is restored."""
        info = await api.stream_info(self.connection, stream_name(shard))
        if info is None or info["created"] != record.created:
            return
        config = info["config"]
        text = record.encode().decode()
        metadata = dict(config.get("metadata", {}))
        if metadata.get(METADATA_KEY) != text:
            config["metadata"] = {**metadata, METADATA_KEY: text}
            await api.call(self.connection, f"STREAM.UPDATE.{stream_name(shard)}", config)

    async def _copied(self, shard: int) -> EpochRecord | None:
        """Return the copy of a record in its stream's metadata."""
        info = await api.stream_info(self.connection, stream_name(shard))
        return None if info is None else _copy_in(info)

    async def _create(self, info: ShardInfo) -> None:
        if await self.bucket.get(_key(info.shard)) is not None:
            return
        settings = self.settings
        record = await self._copied(info.shard) or new_record(info.created, settings.shards, settings.first_epoch)
        # A lost race means that another instance has made it in the meantime, and that one counts.
        with contextlib.suppress(RecordConflict):
            await self.bucket.put(_key(info.shard), record.encode(), 0)


def shard_of_key(key: str) -> int | None:
    """Return the shard whose record has that key, None for a key that is no shard's."""
    prefix, _, number = key.partition(".")
    return int(number) if prefix == "shard" and number.isdecimal() else None


def _key(shard: int) -> str:
    return f"shard.{shard}"


def _copy_in(info: Any) -> EpochRecord | None:
    copy = info["config"].get("metadata", {}).get(METADATA_KEY)
    return decode(copy) if copy else None


async def _at_once(record: EpochRecord) -> EpochRecord:
    return record
