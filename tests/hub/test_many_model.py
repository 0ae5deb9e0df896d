"""Streams of many sessions against plain lists: random publishes, faults, drops and resumes over sessions and shards.

Nothing is ever evicted here, so there is exactly one right answer: each stream, put together over all its
connections, has every event of its sessions behind its first point, each once, in the order of its shard.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from ringmere.core.backlog import Overflow
from ringmere.core.errors import Unavailable
from ringmere.core.limits import Limits
from ringmere.hub.membership import Change
from ringmere.log.memory_store import MemoryStore
from support.hub import Client
from support.machine import HubMachine, budget
from support.many import connect, cursor, events, seen, stream_of

NAMES = tuple(f"run-{number}" for number in range(7))
LIMITS = Limits(
    window_bytes=1500,
    window_bytes_total=4000,
    turn_bytes=900,
    parked_bytes=700,
    page_bytes=600,
    page_cache=3,
    sweep_first=0.5,
    sweep_max=2.0,
    write_timeout=200.0,
    channel_linger=2.0,
    max_queued=16,
)


class Followed:
    """One stream over all its connections: the sessions, since when each is due, and what has come."""

    def __init__(self, names: tuple[str, ...], match: bool, overflow: Overflow) -> None:
        self.names = names
        self.match = match
        self.overflow = overflow
        self.client: Client | None = None
        self.hub = 0
        self.due_from: dict[str, int] = {}
        self.not_after: dict[str, int] = {}
        self.had: list[tuple[str, int]] = []
        self.cursor: str | None = None
        self.late = False

    def collect(self) -> None:
        """Keep what the connection that ends now has brought."""
        if self.client is not None:
            self.had += events(self.client)
            self.cursor = cursor(self.client) or self.cursor
            self.client = None


class Machine(HubMachine):
    """One store, two instances, and streams that follow a part of the sessions or all that match."""

    @initialize(shards=st.integers(1, 3))
    def begin(self, shards: int) -> None:
        self.store = MemoryStore(ring_size=8000, log_ttl=3600.0, shards=shards, clock=self.loop.time_ns)
        self.streams: list[Followed] = []
        self.stored: dict[str, list[int]] = {name: [] for name in NAMES}
        self.start(self.store, LIMITS)

    def shard(self, name: str) -> int:
        return self.world.log.shard_of(name)

    # Publishers.

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=12), pause=st.sampled_from([None, 0.0, 0.01]))
    def publish(self, names: list[str], pause: float | None) -> None:
        self.run(self._publish(names, pause))

    async def _publish(self, names: list[str], pause: float | None) -> None:
        for name in names:
            self.stored[name] += self.world.put(1, name, size=len(self.stored[name]) % 200)
            if pause is not None:
                await asyncio.sleep(pause)

    @rule(name=st.sampled_from(NAMES), count=st.integers(20, 60))
    def flood(self, name: str, count: int) -> None:
        self.run(self._publish([name] * count, None))

    # Readers.

    @rule(
        names=st.sets(st.sampled_from(NAMES), min_size=1),
        match=st.booleans(),
        instance=st.integers(0, 1),
        overflow=st.sampled_from(list(Overflow)),
        start=st.booleans(),
    )
    def follow(self, names: set[str], match: bool, instance: int, overflow: Overflow, start: bool) -> None:
        if len(self.streams) >= 4:
            return
        stream = Followed(NAMES if match else tuple(sorted(names)), match, overflow)
        stream.due_from = dict.fromkeys(NAMES if match else stream.names, 0)
        if self._connect(stream, instance, from_start=start):
            if not start:
                assert stream.client is not None
                ids = stream.client.reader.passage.points.ids  # type: ignore[union-attr]
                stream.due_from = {name: ids[self.shard(name)] for name in stream.due_from}
            self.streams.append(stream)

    def _connect(self, stream: Followed, instance: int, *, from_start: bool = False) -> bool:
        hub = self.world.hubs[instance]
        match = "run-" if stream.match else None
        work = connect(
            self.world, *stream.names, cursor=stream.cursor, match=match, hub=hub, overflow=stream.overflow,
            from_start=from_start and stream.cursor is None, client=Client(high_water=4000), anchor=True,
        )  # fmt: skip
        try:
            stream.client = self.run(work)
        except Unavailable:
            return False
        stream.hub = instance
        if stream.cursor is None and not from_start:
            stream.cursor = str(stream_of(stream.client).start_id)
        return True

    @rule(pick=st.integers(0, 3), instance=st.integers(0, 1))
    def drop_and_come_back(self, pick: int, instance: int) -> None:
        for stream in self.streams[pick : pick + 1]:
            if stream.client is not None and not stream.client.over:
                if self._may_be_ahead(stream):
                    return
                self.call(stream.client.leave)
            stream.collect()
            if stream.cursor is None:
                stream.had.clear()
                self._connect(stream, instance, from_start=True)
            else:
                self._connect(stream, instance)

    def _may_be_ahead(self, stream: Followed) -> bool:
        """Whether the cursor may have passed an event that the live tail lost unnoticed: the exception of 7.3."""
        return self.lossy > 0

    lossy = 0

    @rule(pick=st.integers(0, 3))
    def pause(self, pick: int) -> None:
        for stream in self.streams[pick : pick + 1]:
            if stream.client is not None and not stream.client.over and not stream.client.paused:
                self.call(stream.client.pause)

    @rule(pick=st.integers(0, 3))
    def read(self, pick: int) -> None:
        for stream in self.streams[pick : pick + 1]:
            if stream.client is not None and not stream.client.over:
                self.call(stream.client.read)

    @rule(pick=st.integers(0, 3), name=st.sampled_from(NAMES), start=st.booleans(), instance=st.integers(0, 1))
    def add(self, pick: int, name: str, start: bool, instance: int) -> None:
        for stream in self.streams[pick : pick + 1]:
            client = stream.client
            if stream.match or client is None or client.over or name in stream.names:
                continue
            work = self.world.hubs[instance].many.membership.change(
                stream_of(client).stream_id, Change(add=(name,), from_start=start)
            )
            try:
                changed = self.run(work)
            except Unavailable:
                continue
            stream.names = changed.sessions
            point = 0 if start else max([*self.stored[name], 0])
            stream.due_from[name] = point
            if start:
                self.run(self._settle())  # until its replay is complete the cursor does not cover it
                self._check()

    # What goes wrong.

    @rule(instance=st.integers(0, 1), count=st.integers(1, 3))
    def drop_live(self, instance: int, count: int) -> None:
        self.lossy = 1
        self.logs[instance].drop_live(count)

    @rule(instance=st.integers(0, 1), connected=st.booleans())
    def connection(self, instance: int, connected: bool) -> None:
        log = self.logs[instance]
        if connected != log.connected:
            self.call(log.reconnect if connected else log.disconnect)

    @rule(instance=st.integers(0, 1), lag=st.integers(0, 3))
    def replica_lags(self, instance: int, lag: int) -> None:
        self.logs[instance].replica_lag = lag

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.06, 0.3, 1.1]))
    def advance(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule()
    def settle(self) -> None:
        self.run(self._settle())
        self._check()

    async def _settle(self) -> None:
        for log in self.logs:
            log._drop = 0
            log.replica_lag = 0
            if not log.connected:
                log.reconnect()
        for pause in [3.0] * 6 + [0.1] * 60:  # a reader takes a few kilobytes at a time
            for stream in self.streams:
                if stream.client is not None and not stream.client.over:
                    stream.client.read()
            await asyncio.sleep(pause)
        self.lossy = 0
        for stream in self.streams:
            if stream.client is None or stream.client.over:
                stream.collect()

    def _check(self) -> None:
        assert self.faults == []
        for stream in self.streams:
            if stream.client is None:
                continue
            had = stream.had + events(stream.client)
            for name in stream.due_from:
                mine = [id for session, id in had if session == name]
                due = [id for id in self.stored[name] if id > stream.due_from[name]]
                extra = [id for id in mine if id <= stream.due_from[name]]
                assert mine == sorted(set(mine)), (name, mine)
                assert mine[len(extra) :] == due, (name, mine, due)
            types = [row.type for row in seen(stream.client)]
            assert "state_resync_required" not in types
        for hub in self.world.hubs:
            members = [reader for channel in hub.channels for reader in channel.members]
            assert hub.slots == len(members) + len(hub.many.streams)
            assert hub.backlog_bytes == 0

    def finish(self) -> None:
        self.run(self._settle())
        for stream in self.streams:
            if stream.client is None:
                self._connect(stream, 0, from_start=stream.cursor is None)
        self.settle()
        for stream in self.streams:
            if stream.client is not None and not stream.client.over:
                self.call(stream.client.leave)


@pytest.mark.timeout(240)
class TestModel(Machine.TestCase):  # type: ignore[name-defined, misc]
    settings = budget(60, 30)
