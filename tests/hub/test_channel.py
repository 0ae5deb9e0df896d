"""The channel: one blob a turn for all, at most so many bytes a turn."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from ringmere.core.errors import LogUnavailable
from support.hub import Client, arrived, world
from support.nats import eventually


async def test_all_readers_are_handed_the_same_blob_once_a_turn() -> None:
    async with world() as w:
        writes: dict[str, list[bytes]] = {"a": [], "b": []}

        class Noting(Client):
            def __init__(self, name: str) -> None:
                super().__init__()
                self.name = name

            def write(self, data: bytes) -> None:
                super().write(data)
                writes[self.name].append(data)

        a, b = Noting("a"), Noting("b")
        for client in (a, b):
            await w.connect(client=client)
        w.put(1)
        await w.settle()
        w.put(50)
        await w.settle()
        assert len(writes["a"]) == len(writes["b"])
        assert writes["a"][-1] is writes["b"][-1]
        assert a.ids == [*range(1, 52)]


async def test_a_turn_takes_no_more_than_its_bytes_and_the_rest_comes_in_the_next() -> None:
    async with world(turn_bytes=2000) as w:
        sizes: list[int] = []

        class Noting(Client):
            def write(self, data: bytes) -> None:
                super().write(data)
                sizes.append(len(data))

        client = await w.connect(client=Noting())
        w.put(200, size=100)
        await arrived(client, 200)
        assert client.ids == [*range(1, 201)]
        assert max(sizes) < 2000 + 500
        assert len(sizes) > 20


async def test_a_reader_that_leaves_in_the_middle_of_a_fan_out_costs_no_other_an_event() -> None:
    async with world() as w:
        victim = await w.connect()

        class Killer(Client):
            def write(self, data: bytes) -> None:
                super().write(data)
                if b"id: 2\n" in data:
                    victim.leave()

        others = [await w.connect(client=Killer()) for _ in range(2)]
        others += [await w.connect() for _ in range(3)]
        for _ in range(4):
            w.put(1)
            await w.settle()
        for client in others:
            assert client.ids == [1, 2, 3, 4]


async def test_a_terminal_event_ends_every_reader_behind_it_and_the_channel_opens_again() -> None:
    async with world() as w:
        clients = [await w.connect() for _ in range(3)]
        w.put(1)
        w.put(1, type="session_died")
        await asyncio.sleep(0.1)
        for client in clients:
            assert client.ids == [1, 2]
            assert client.finished
        w.put(1)
        await w.settle()
        again = await w.connect(1)
        await arrived(again, 2)
        assert not again.over


async def test_a_read_of_the_log_that_fails_after_all_who_waited_have_gone_is_no_complaint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as w:
        client = await w.connect()
        [channel] = w.hub.channels
        began, ended = asyncio.Event(), asyncio.Event()

        async def bounds(_: str) -> Any:
            began.set()
            try:
                await ended.wait()
            finally:
                ended.clear()
            raise LogUnavailable("no answer")

        w.hub.log.bounds = bounds  # type: ignore[method-assign]
        channel._bounds = None
        waiting = asyncio.create_task(channel.bounds())
        await began.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        ended.set()
        await eventually(lambda: not ended.is_set(), "the read has failed")
        channel._bounds = None
        gc.collect()
        assert [record.message for record in caplog.records if record.name == "asyncio"] == []
        client.leave()
