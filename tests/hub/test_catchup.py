"""From the log to live without a seam, at any speed of the reader."""

from __future__ import annotations

import asyncio

import pytest

from support.hub import Client, arrived, world
from support.virtual import eventually


@pytest.mark.parametrize("window_bytes", [1, 300, 600, 1 << 20])
async def test_what_a_turn_pushes_out_of_the_window_is_not_lost_to_a_reader_that_joins(window_bytes: int) -> None:
    """The reader runs between the arrival of a burst and the end of its turn."""
    async with world(window_bytes=window_bytes) as w:
        w.put(3)
        first = await w.connect(0)
        await arrived(first, 3)
        slow = Client(paused=True)
        await w.connect(3, client=slow)
        await w.settle()
        w.put(7)
        slow.resume()
        await arrived(slow, 7)
        await eventually(lambda: slow.of("replay_complete"))
        assert slow.ids == [*range(4, 11)]
        assert slow.types.count("state_resync_required") == 0


async def test_a_slow_reader_follows_a_publisher_from_page_to_page_and_joins() -> None:
    async with world(page_bytes=2000, window_bytes=1000) as w:
        w.put(100)
        client = await w.connect(0, client=Client(high_water=1500))
        for _ in range(100):
            w.put(1)
            await asyncio.sleep(0.01)
            client.read()
        await eventually(lambda: (client.read(), client.of("replay_complete"))[1])
        await w.settle()
        client.read()
        assert client.ids == [*range(1, 201)]
        assert client.types.count("replay_complete") == 1


async def test_a_cursor_ahead_of_this_instance_waits_for_its_tail_and_gets_nothing_twice() -> None:
    async with world() as w:
        live = await w.connect()
        w.put(3)
        await arrived(live, 3)
        w.log.hold_live()
        w.put(3)
        ahead = await w.connect(5)
        await eventually(lambda: ahead.of("replay_complete"))
        w.log.release_live()
        w.put(1)
        await arrived(ahead, 2)
        await arrived(live, 7)
        assert ahead.ids == [6, 7]
        assert live.ids == [*range(1, 8)]


async def test_a_log_that_goes_away_in_the_middle_of_a_replay_delays_it() -> None:
    async with world(page_bytes=300, window_bytes=1) as w:
        w.put(50)
        client = await w.connect(0, client=Client(high_water=300))
        await arrived(client, 1)
        w.log.disconnect()
        for _ in range(20):
            client.read()
            await w.settle()
        assert not client.over
        count = len(client.ids)
        assert count < 50
        w.log.reconnect()
        for _ in range(50):
            client.read()
            await w.settle()
        assert client.ids == [*range(1, 51)]
        assert client.types.count("replay_complete") == 1


async def test_events_of_one_size_above_the_window_are_replayed_from_the_log() -> None:
    async with world(window_bytes=500) as w:
        live = await w.connect()
        w.put(20, size=100)
        await arrived(live, 20)
        for cursor in (0, 5, 18, 19, 20):
            client = await w.connect(cursor)
            await eventually(lambda client=client: client.of("replay_complete"))
            assert client.ids == [*range(cursor + 1, 21)]
