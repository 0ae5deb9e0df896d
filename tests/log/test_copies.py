"""How far streams that copy others are: asked of a real server, head streams and mirrors alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringmere.embedded import EmbeddedServer
from ringmere.log import api
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.copies import Copies
from ringmere.log.jetstream import LogSettings, open_log
from ringmere.log.port import Copy
from ringmere.log.shape import StreamSettings
from ringmere.log.streams import ensure_streams
from support.logs import Ear
from support.nats import append, connected, eventually

SETTINGS = StreamSettings(max_bytes=256 * 1024 * 1024, ring_size=3)


class Seen:
    """What was told, the newest last."""

    def __init__(self) -> None:
        self.rounds: list[list[Copy]] = []

    def take(self, copies: Sequence[Copy]) -> None:
        self.rounds.append(list(copies))

    def last(self, stream: str, shard: int = 0) -> Copy | None:
        rows = self.rounds[-1] if self.rounds else []
        return next((row for row in rows if (row.stream, row.shard) == (stream, shard)), None)


@asynccontextmanager
async def looking(connection: Connection, shards: int = 1, heads: bool = True) -> AsyncIterator[Seen]:
    seen = Seen()
    copies = Copies(connection, shards, seen.take, heads=heads, every=0.05)
    copies.start()
    try:
        yield seen
    finally:
        await copies.close()


async def mirror(connection: Connection, name: str, origin: str) -> None:
    await api.call(connection, f"STREAM.CREATE.{name}", {"name": name, "mirror": {"name": origin}})


async def test_a_head_stream_is_a_copy_that_hears_of_its_origin_and_misses_nothing(connection: Connection) -> None:
    await ensure_streams(connection, SETTINGS)
    async with looking(connection) as seen:
        await append(connection, "ringmere.events.0.a", b"1")

        async def up_to_date() -> bool:
            found = seen.last("head")
            return found is not None and found.lag == 0 and asyncio.get_running_loop().time() - found.heard_at < 5

        await eventually(up_to_date, "the head stream has heard of its origin")
        assert seen.last("events") is None


async def test_an_event_stream_that_is_a_mirror_turns_up_by_itself(connection: Connection) -> None:
    async with looking(connection, shards=2, heads=False) as seen:
        await eventually(lambda: len(seen.rounds) > 1, "two looks")
        assert seen.rounds[-1] == []
        await api.call(connection, "STREAM.CREATE.HOME", {"name": "HOME", "subjects": ["home.>"]})
        for n in range(50):
            await append(connection, f"home.{n}", b"x")
        await mirror(connection, "RINGMERE_1", "HOME")

        async def copied() -> bool:
            found = seen.last("events", 1)
            return found is not None and found.lag == 0

        await eventually(copied, "the mirror has it all")
        assert seen.last("events", 0) is None
        await api.call(connection, "STREAM.DELETE.RINGMERE_1")
        await eventually(lambda: seen.last("events", 1) is None, "a mirror that is gone is no copy")


async def test_a_mirror_that_never_heard_of_its_origin_has_been_silent_since_the_first_look(
    connection: Connection,
) -> None:
    await api.call(connection, "STREAM.CREATE.HOME", {"name": "HOME", "subjects": ["home.>"]})
    await mirror(connection, "RINGMERE_0", "HOME")
    await api.call(connection, "STREAM.DELETE.HOME")
    async with looking(connection, heads=False) as seen:
        await eventually(lambda: seen.last("events") is not None, "the mirror is seen")
        first = seen.last("events")
        rounds = len(seen.rounds)
        await eventually(lambda: len(seen.rounds) > rounds + 4, "some more looks")
        later = seen.last("events")
        assert first is not None
        assert later is not None
        assert later.heard_at <= first.heard_at + 0.2


async def test_of_several_origins_the_worst_counts(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    async def info(_: Connection, stream: str) -> dict[str, Any]:
        sources = [{"name": "A", "lag": 3, "active": 9_000_000_000}, {"name": "B", "lag": 7, "active": 1_000_000_000}]
        return {"sources": sources} if "HEAD" in stream else {"mirror": {"name": "C", "lag": 20, "active": 0}}

    monkeypatch.setattr(api, "stream_info", info)
    async with looking(connection) as seen:
        await eventually(lambda: bool(seen.rounds), "a look")
        now = asyncio.get_running_loop().time()
        head, events = seen.last("head"), seen.last("events")
        assert head is not None
        assert events is not None
        assert (head.lag, events.lag) == (7, 20)
        assert 9 <= now - head.heard_at < 12
        assert 0 <= now - events.heard_at < 3


async def test_what_was_known_stays_while_nats_is_away(nats_server: EmbeddedServer) -> None:
    async with connected(nats_server) as connection:
        await ensure_streams(connection, SETTINGS)
        async with looking(connection) as seen:
            await eventually(lambda: seen.last("head") is not None, "the head is seen")
            await nats_server.stop()
            rounds = len(seen.rounds)
            await eventually(lambda: len(seen.rounds) > rounds + 2, "looks without an answer")
            frozen = seen.last("head")
            assert frozen is not None
            assert seen.rounds[-2][0].heard_at == frozen.heard_at
            await nats_server.start()

            async def heard_again() -> bool:
                found = seen.last("head")
                return found is not None and found.heard_at > frozen.heard_at

            await eventually(heard_again, "it is heard of again")


async def test_a_log_tells_its_listener(nats_server: EmbeddedServer) -> None:
    ear = Ear()
    options = ConnectOptions(servers=(nats_server.url,))
    log = await open_log(options, LogSettings(max_bytes=SETTINGS.max_bytes, copies_every=0.05))
    try:
        log.listen(ear)
        await eventually(lambda: bool(ear.copies), "the listener was told")
        assert (ear.copies[0].stream, ear.copies[0].shard) == ("head", 0)
    finally:
        await log.close()
