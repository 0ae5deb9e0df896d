"""Range reads: proven pages, one read for all who wait, a bounded cache (contract 4.6)."""

from __future__ import annotations

import asyncio

import pytest

from ringmere.core.cursor import EpochTable
from ringmere.core.errors import LogUnavailable
from ringmere.hub.observer import Observer
from ringmere.hub.replay import Encoder, PageCache, Replay
from ringmere.hub.segment import Segment
from support.hub import S1, arrived, world
from support.virtual import eventually


async def test_a_storm_of_readers_of_one_session_reads_the_log_once() -> None:
    async with world() as w:
        w.put(300)
        clients = await asyncio.gather(*(w.connect(0) for _ in range(50)))
        for client in clients:
            await arrived(client, 300)
            assert client.story == [*range(1, 301), "replay_complete"]
        assert w.log.calls["page"] <= 3


async def test_a_reader_that_comes_while_a_page_is_read_is_not_given_one_that_begins_behind_it() -> None:
    async with world() as w:
        w.put(10)
        await w.connect()
        gate, reading = asyncio.Event(), asyncio.Event()

        async def hold(method: str, session: str) -> None:
            if method == "page":
                reading.set()
                await gate.wait()

        w.log.before = hold
        ahead = await w.connect(5)
        await reading.wait()
        behind = await w.connect(2)
        await w.settle()
        gate.set()
        await arrived(ahead, 5)
        await arrived(behind, 8)
        assert ahead.ids == [*range(6, 11)]
        assert behind.ids == [*range(3, 11)]


async def test_no_more_than_the_limit_of_reads_are_under_way_at_once() -> None:
    async with world(concurrent_reads=2) as w:
        under_way = most = 0
        for number in range(10):
            w.put(5, f"s{number}")

        async def count(method: str, session: str) -> None:
            nonlocal under_way, most
            if method == "page":
                under_way += 1
                most = max(most, under_way)
                await asyncio.sleep(0.1)
                under_way -= 1

        w.log.before = count
        clients = await asyncio.gather(*(w.connect(0, f"s{number}") for number in range(10)))
        for client in clients:
            await arrived(client, 5)
        assert most == 2


async def test_a_message_larger_than_a_page_does_not_stop_the_replay() -> None:
    async with world(page_bytes=1000, window_bytes=1) as w:
        w.put(4, size=900)
        client = await w.connect(1)
        await arrived(client, 3)
        assert client.story[:3] == [2, 3, 4]


async def test_a_replica_that_lags_delays_a_replay_and_loses_nothing() -> None:
    async with world(window_bytes=1) as w:
        w.put(10)
        w.log.replica_lag = 8
        client = await w.connect(0)
        await w.settle(1)
        assert client.ids == [1, 2]
        w.log.replica_lag = 0
        await arrived(client, 10)
        assert client.story == [*range(1, 11), "replay_complete"]


async def test_a_page_is_given_again_from_memory_but_not_beyond_its_age_or_a_purge() -> None:
    async with world(log_ttl=60.0, window_bytes=1) as w:
        w.put(10)
        await w.connect()
        first = await w.connect(0)
        await arrived(first, 10)
        pages = w.log.calls["page"]
        second = await w.connect(0)
        await arrived(second, 10)
        assert w.log.calls["page"] == pages
        await w.hub.purge(S1)
        third = await w.connect(0)
        await eventually(lambda: third.of("replay_complete"))
        assert third.story == ["replay_complete"]
        assert len(w.hub.pages) == w.hub.pages.bytes == 0


async def test_an_expired_page_is_not_served_from_memory() -> None:
    async with world(log_ttl=10.0, window_bytes=1) as w:
        w.put(10)
        await w.connect()
        first = await w.connect(0)
        await arrived(first, 10)
        await asyncio.sleep(11)
        late = await w.connect(0)
        await eventually(lambda: late.of("replay_complete"))
        assert late.story == ["replay_complete"]


@pytest.mark.parametrize(("size", "max_bytes"), [(3, 10_000), (100, 250)])
def test_the_cache_is_bounded_in_number_and_in_bytes(size: int, max_bytes: int) -> None:
    from ringmere.core.backlog import Frame

    cache = PageCache(size, max_bytes)
    owner = object.__new__(Replay)
    for start in range(20):
        cache.put(owner, Segment(start, start + 1, [Frame(start + 1, b"x" * 100, 100)], 1))
        cache.put(owner, Segment(start, start + 1, [Frame(start + 1, b"x" * 100, 100)], 1))
        assert len(cache) <= size
        assert cache.bytes == 100 * len(cache) <= max_bytes
    assert cache.find(owner, 19, 0) is not None
    assert cache.find(owner, 0, 0) is None
    assert cache.find(owner, 19, 1) is None
    assert cache.find(object.__new__(Replay), 19, 0) is None
    cache.drop(owner)
    assert cache.bytes == len(cache) == 0


async def test_a_page_of_one_log_is_never_proven_by_another() -> None:
    async with world() as w:
        w.put(10)
        await w.connect()
        table: EpochTable = w.log.epochs(S1)
        channel = w.hub.channels[0]
        replay = Replay(w.log, S1, Encoder(table, S1, Observer()), w.limits, w.hub.reads, w.hub.pages, w.hub.clock)

        async def replace(method: str, session: str) -> None:
            if method == "contains":
                w.log.before = None
                w.store.recreate()
                w.put(6)

        w.log.before = replace
        with pytest.raises(LogUnavailable):
            await replay.read(5)
        assert channel.table is not None
