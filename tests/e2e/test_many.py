"""Many sessions on one connection over a real NATS: instances that die, sessions that come and go, one that floods."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from e2e.conftest import Instance
from ringmere.client.backoff import Backoff
from ringmere.client.items import Event
from ringmere.client.many import follow_many
from ringmere.client.publish import Publisher
from ringmere.core.limits import Limits
from ringmere.embedded import EmbeddedServer
from ringmere.hub.many import Many
from ringmere.log.shards import shard_of
from support.following import take as next_events
from support.gateway import gateway
from support.nats import eventually

FAST = Backoff(retry=0.01, first=0.01, widest=0.05)
DEADLINE = 60.0
take = partial(next_events, deadline=DEADLINE)


def of(events: Sequence[Event], session: str) -> list[Any]:
    return [event.data for event in events if event.session == session]


async def test_a_killed_instance_costs_a_reader_of_many_no_event_and_brings_none_twice(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    names = [f"run-{number}" for number in range(8)]
    settings = ("--shards", "2", "--log-level", "warning")
    async with (
        gateway(tmp_path / "a", *settings, nats_url=nats_server.url) as first,
        gateway(tmp_path / "b", *settings, nats_url=nats_server.url) as second,
        Publisher(second.url) as to,
    ):
        got: list[Event] = []
        async with follow_many(first.url, *names, from_="start", backoff=FAST) as stream:
            for number in range(40):
                await to.publish(names[number % 8], {"type": "n", "data": number})
            got += await take(stream, 25)
            await first.kill()
            cursor = stream.cursor
        assert isinstance(cursor, str)
        async with follow_many(second.url, match="run-*", from_=cursor, backoff=FAST) as stream:
            for number in range(40, 48):
                await to.publish(names[number % 8], {"type": "n", "data": number})
            got += await take(stream, 23)
            await to.publish("run-new", {"type": "n", "data": "new"})
            assert [event.session for event in await take(stream, 1)] == ["run-new"]
        for index, name in enumerate(names):
            assert of(got, name) == list(range(index, 48, 8))
        for shard in (0, 1):
            ids = [event.id for event in got if _shard(event) == shard]
            assert ids == sorted(ids)


def _shard(event: Event) -> int:
    return shard_of(event.session or "", 2)


async def test_a_stream_is_changed_through_an_instance_that_does_not_have_it(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with (
        gateway(tmp_path / "a", nats_url=nats_server.url) as first,
        gateway(tmp_path / "b", nats_url=nats_server.url) as second,
        Publisher(first.url) as to,
        follow_many(first.url, "a", from_="start", backoff=FAST) as stream,
    ):
        await to.publish("a", {"type": "n", "data": 1})
        await to.publish("c", {"type": "n", "data": 2})
        await take(stream, 1)
        stream._url = second.url
        await stream.change(add=["c"], from_start=True)
        assert [event.data for event in await take(stream, 1)] == [2]
        await stream.change(drop=["a"])
        await to.publish("a", {"type": "n", "data": 3})
        await to.publish("c", {"type": "n", "data": 4})
        assert [event.data for event in await take(stream, 1)] == [4]


async def test_five_hundred_sessions_share_a_connection_with_one_that_floods(instance: Instance) -> None:
    limits = Limits(max_sessions_per_stream=500)
    names = [f"s{number}" for number in range(499)]
    flood, rounds, size = 3000, 4, 1000
    async with instance(limits) as one, instance(limits) as two:
        got: list[Event] = []
        held: list[int] = []
        at = f"http://127.0.0.1:{one.port}"

        async def write(name: str, count: int, size: int) -> None:
            rows = [{"type": "n", "data": {"n": n, "pad": "x" * size}} for n in range(count)]
            async with Publisher(f"http://127.0.0.1:{two.port}") as to:
                for start in range(0, count, 100):
                    await to.publish_batch(name, rows[start : start + 100])

        async def others() -> None:
            async with Publisher(f"http://127.0.0.1:{two.port}") as to:
                for number in range(rounds):
                    for name in names:
                        await to.publish(name, {"type": "n", "data": {"n": number}})

        def look() -> None:
            streams = one.hub.many.streams.values()
            held.extend(sum(merge.bytes for merge in many._flow._merges) for many in streams)

        half = rounds * len(names) // 2
        async with follow_many(at, "flood", *names, backoff=FAST) as stream:
            reading = asyncio.ensure_future(take(stream, half))
            await eventually(lambda: _live(one.hub.many.streams), "the stream is live", 30)
            await eventually(lambda: stream.cursor is not None, "the client knows where it began", 30)
            writing = asyncio.gather(write("flood", flood, size), others())
            while not reading.done():
                look()
                await asyncio.sleep(0.01)
            got += reading.result()
            cursor = str(stream.cursor)
            assert one.readers() == 1
        await writing
        async with follow_many(f"http://127.0.0.1:{two.port}", "flood", *names, from_=cursor, backoff=FAST) as stream:
            got += await take(stream, flood + rounds * len(names) - half)
        assert [data["n"] for data in of(got, "flood")] == list(range(flood))
        for name in names:
            assert [data["n"] for data in of(got, name)] == list(range(rounds)), name
        assert [event.id for event in got] == sorted(event.id for event in got)
        assert max(held) <= limits.parked_bytes + 2 * size


def _live(streams: dict[str, Many]) -> bool:
    return any(many.live for many in streams.values())
