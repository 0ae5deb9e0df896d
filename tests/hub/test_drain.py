"""Goodbyes: everybody gets a time of its own to come back, within the grace (contract 8.3)."""

from __future__ import annotations

import asyncio

from support.hub import Client, arrived, world


async def test_goodbyes_are_spread_over_the_grace_with_a_retry_each() -> None:
    async with world(drain_grace=2.0, max_subscribers=500) as w:
        clients = [await w.connect() for _ in range(400)]
        began = asyncio.get_running_loop().time()
        await w.hub.drain()
        assert 1.9 < asyncio.get_running_loop().time() - began <= 2.1
        retries = set()
        for client in clients:
            [data] = client.of("server_draining")
            retries.add(data["retryMs"])
            assert b"retry: %d\n" % data["retryMs"] in client.body
        assert len(retries) > 200
        assert max(retries) <= 3000


async def test_a_goodbye_comes_behind_what_was_accepted_and_a_replay_ends_where_it_is() -> None:
    async with world(page_bytes=500) as w:
        w.put(100)
        paused = await w.connect(0)
        await arrived(paused, 100)
        replaying = await w.connect(0, client=Client(high_water=300))
        paused.pause()
        w.put(3)
        await w.settle()
        await w.hub.drain()
        paused.resume()
        replaying.resume()
        assert paused.story[-4:] == [101, 102, 103, "server_draining"]
        assert replaying.types[-1] == "server_draining"
        assert replaying.ids == [*range(1, len(replaying.ids) + 1)]
        assert len(replaying.ids) < 100
