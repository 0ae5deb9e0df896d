"""The sweep asks about quiet channels, less and less often, and never about busy ones."""

from __future__ import annotations

import asyncio

from support.hub import arrived, world


async def test_a_channel_that_stays_quiet_is_asked_about_less_and_less_often() -> None:
    async with world() as w:
        await w.connect()
        await asyncio.sleep(5)
        early = w.log.calls["newer"]
        await asyncio.sleep(300)
        late = w.log.calls["newer"] - early
        assert 2 <= early <= 5
        assert 9 <= late <= 15


async def test_a_busy_channel_is_not_asked_about() -> None:
    async with world() as w:
        client = await w.connect()
        await asyncio.sleep(1)
        before = w.log.calls["newer"]
        for _ in range(50):
            w.put(1)
            await asyncio.sleep(0.4)
        assert w.log.calls["newer"] == before
        await arrived(client, 50)


async def test_a_stop_that_comes_together_with_a_wake_up_still_stops() -> None:
    async with world() as w:
        await w.settle(1)
        w.log.disconnect()
        w.log.reconnect()
        async with asyncio.timeout(5):
            await w.hub.close()


async def test_many_channels_are_asked_about_in_one_call() -> None:
    async with world() as w:
        clients = [await w.connect(session=f"s{number}") for number in range(100)]
        w.log.drop_live(100)
        for number in range(100):
            w.put(1, f"s{number}")
        before = w.log.calls["newer"]
        for client in clients:
            await arrived(client, 1, within=3)
        assert w.log.calls["newer"] - before <= 3
