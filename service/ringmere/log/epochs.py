"""The epoch tables of all shards: known here, watched, and extended when the log has lost or restarted (1.2).

A row is added when a stream was created at another time than its record says, or when its leader's tail
is below a sequence that this instance has seen. Both are looked for about every second, and whenever
somebody who became suspicious calls :meth:`Epochs.check`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

from ringmere.core.cursor import EpochTable
from ringmere.core.errors import LogUnavailable, RingmereError
from ringmere.log import api
from ringmere.log.connect import Connection, Subscription
from ringmere.log.epoch_record import EpochRecord
from ringmere.log.epoch_store import EpochStore, shard_of_key
from ringmere.log.shape import StreamSettings
from ringmere.log.shards import event_subject, stream_name

CHECK_INTERVAL = 1.0
"""Seconds between two looks at each stream."""
CONFIRM_AFTER = 1.0
"""Seconds between two reads of a tail that is too low: a new leader may only be catching up."""
RELOAD_EVERY = 5
"""Looks between two reads of the records themselves, should a notice have been missed."""

TableListener = Callable[[int, EpochTable], None]


class Epochs:
    """The tables of one instance. Call :meth:`start` after the streams exist, :meth:`close` at the end."""

    def __init__(self, connection: Connection, settings: StreamSettings) -> None:
        self._connection = connection
        self._store = EpochStore(connection, settings)
        self._shards = range(settings.shards)
        self._records: dict[int, EpochRecord] = {}
        self._seen = [0] * settings.shards
        self._marks = [(0, 0)] * settings.shards
        self._listeners: list[TableListener] = []
        self._stale: set[int] = set()
        self._wake = asyncio.Event()
        self._watch: Subscription | None = None
        self._monitor: asyncio.Task[None] | None = None
        self.trouble: dict[int, RingmereError] = {}
        """Why the last look at a shard failed; no entry when it went well."""

    async def start(self) -> None:
        """Read all records, watch them, and start to look at the streams.

        Raises ``LogUnavailable`` when they cannot be read.
        """
        self._watch = await self._store.bucket.watch(self._hint)
        for shard in self._shards:
            await self._reload(shard)
        self._connection.on_state(self._state)
        self._monitor = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop looking."""
        if self._watch is not None:
            self._watch.close()
        if self._monitor is not None:
            self._monitor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._monitor

    def on_change(self, listener: TableListener) -> None:
        """Call ``listener(shard, table)`` whenever a table has new rows."""
        self._listeners.append(listener)

    def table(self, shard: int) -> EpochTable:
        """Return the table as this instance knows it; no I/O."""
        return self._records[shard].table

    def seen(self, shard: int, seq: int, time_ns: int = 0) -> None:
        """Remember that ``seq`` was delivered or acknowledged; ``time_ns`` is its timestamp, 0 when not known."""
        if seq > self._seen[shard]:
            self._seen[shard] = seq
        if time_ns and seq > self._marks[shard][0]:
            self._marks[shard] = (seq, time_ns)

    def newest_seen(self, shard: int) -> int:
        """Return the highest sequence seen so far; whatever this stream stores from now on lies above it."""
        return self._seen[shard]

    async def check(self, shard: int) -> EpochTable:
        """Ask the leader whether the stream is still the one of the table, add a row if not, return the table.

        Takes about a second longer when the tail is too low. Raises ``LogUnavailable`` when the stream does
        not answer or does not exist.
        """
        seen, mark, observed = self._seen[shard], self._marks[shard], self._records[shard]
        info = await self._info(shard)
        tail = int(info["state"]["last_seq"])
        if info["created"] != observed.created:
            self._apply(shard, await self._store.note_creation(shard))
        elif tail < seen:
            await self._suspect(shard, tail, info["ts"], observed)
        else:
            kept = await self._kept(shard, mark)
            if kept is not None:
                self._apply(shard, await self._store.note_loss(shard, kept, observed.table))
            else:
                # A stream without messages tells a time before 1970.
                self.seen(shard, tail, max(0, api.nanoseconds(info["state"]["last_ts"])))
        return self.table(shard)

    async def _suspect(self, shard: int, low: int, looked_at: str, observed: EpochRecord) -> None:
        """Look again at a tail that was too low, and add a row if it has not only been late."""
        seen, mark = self._seen[shard], self._marks[shard]
        await asyncio.sleep(CONFIRM_AFTER)
        again = await self._info(shard)
        if again["created"] != observed.created:
            self._apply(shard, await self._store.note_creation(shard))
            return
        tail = int(again["state"]["last_seq"])
        if tail >= seen:
            # Caught up: either a late leader, or the lost range was written again in the meantime.
            exact = mark[0] == seen
            kept = await self._kept(shard, mark if exact else (seen, api.nanoseconds(looked_at)))
            if kept is None:
                return
        self._apply(shard, await self._store.note_loss(shard, min(low, tail), observed.table))

    async def _kept(self, shard: int, mark: tuple[int, int]) -> int | None:
        """Return the last sequence left of the stream in which ``mark`` was seen, None when that is all still there.

        The tail may have grown past a lost range before anybody looked. Then another message stands where
        ``mark`` was, and the first one that was stored later than it stands at or before it.
        """
        seq, time_ns = mark
        if not seq:
            return None
        stream = stream_name(shard)
        same = await api.message_at(self._connection, stream, seq)
        if same is not None and api.nanoseconds(same.time) <= time_ns:
            return None
        later = api.rfc3339(time_ns + 1)
        newer = await api.message_since(self._connection, stream, later, event_subject(shard, "*"))
        return newer.seq - 1 if newer is not None and newer.seq <= seq else None

    async def _info(self, shard: int) -> Any:
        info = await api.stream_info(self._connection, stream_name(shard))
        if info is None:
            raise LogUnavailable(f"the stream {stream_name(shard)} does not exist")
        return info

    async def _reload(self, shard: int) -> None:
        found = await self._store.read(shard)
        if found is None:
            raise LogUnavailable(f"the epoch record of shard {shard} does not exist")
        self._apply(shard, found[0])

    def _apply(self, shard: int, record: EpochRecord) -> None:
        before = self._records.get(shard)
        self._records[shard] = record
        if before is None or before.table == record.table:
            return
        # What was seen behind the new row's start was another message than what will be seen there.
        last = record.table.newest.first - 1
        self._seen[shard] = min(self._seen[shard], last)
        if self._marks[shard][0] > last:
            self._marks[shard] = (0, 0)
        for listener in self._listeners:
            listener(shard, record.table)

    def _hint(self, key: str) -> None:
        shard = shard_of_key(key)
        if shard is not None and shard in self._shards:
            self._stale.add(shard)
            self._wake.set()

    def _state(self, connected: bool) -> None:
        if connected:
            self._stale.update(self._shards)
            self._wake.set()

    async def _run(self) -> None:
        looks = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_INTERVAL * random.uniform(0.9, 1.1)):
                    await self._wake.wait()
            woken = self._wake.is_set()
            self._wake.clear()
            if not self._connection.connected:
                continue
            looks += not woken
            if not woken and looks % RELOAD_EVERY == 0:
                self._stale.update(self._shards)
            stale, self._stale = self._stale, set()
            await asyncio.gather(*(self._look(shard, shard in stale) for shard in self._shards))

    async def _look(self, shard: int, stale: bool) -> None:
        try:
            if stale:
                await self._reload(shard)
            await self.check(shard)
        except RingmereError as error:
            self.trouble[shard] = error
            if stale:
                self._stale.add(shard)
        else:
            self.trouble.pop(shard, None)
