"""Redis streams copied into sessions by the shipped script, from a real redis-server."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis.asyncio

from ringmere.client.stream import Control, Event, follow
from ringmere.embedded import free_port
from support.command import Done, python
from support.gateway import GatewayProcess, gateway
from support.nats import eventually

SCRIPT = Path(__file__).resolve().parents[2] / "ops" / "migrate" / "redis_streams.py"
BINARY = shutil.which("redis-server")
pytestmark = pytest.mark.skipif(
    BINARY is None and os.environ.get("CI") != "true", reason="redis-server is missing; .ci/run installs it"
)


class Source:
    """A redis-server, and a client of it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = redis.asyncio.from_url(url)

    async def add(self, key: str, *entries: dict[str, str], id: str = "*") -> list[str]:
        """Append entries as a publisher of such a system does, and return their ids."""
        return [(await self.client.xadd(key, entry, id=id, maxlen=5000)).decode() for entry in entries]  # type: ignore[arg-type]

    async def answers(self) -> bool:
        try:
            return bool(await self.client.ping())
        except redis.exceptions.RedisError:
            return False


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Source]:
    port = free_port()
    flags = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path), "--logfile", "redis.log"]
    process = await asyncio.create_subprocess_exec(BINARY or "redis-server", *flags)
    made = Source(f"redis://127.0.0.1:{port}")
    try:
        await eventually(made.answers, "redis answers", 30)
        yield made
    finally:
        await made.client.aclose()
        process.kill()
        await process.wait()


@pytest.fixture
async def instance(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    async with gateway(tmp_path) as running:
        yield running


def copying(
    source: Source, instance: GatewayProcess, *flags: str
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return python(str(SCRIPT), "--redis", source.url, "--server", instance.url, *flags)


async def copy(source: Source, instance: GatewayProcess, *flags: str) -> Done:
    async with copying(source, instance, *flags) as process:
        out, err = await asyncio.wait_for(process.communicate(), 60)
        return Done(process.returncode or 0, out.decode(), err.decode())


async def stored(instance: GatewayProcess, session: str) -> list[Event]:
    """Return what the session holds."""
    found = []
    async with asyncio.timeout(30), follow(instance.url, session, 0) as stream:
        async for item in stream:
            if isinstance(item, Event):
                found.append(item)
            elif isinstance(item, Control) and item.type == "replay_complete":
                break
    return found


def redis_ids(events: list[Event]) -> list[str]:
    return [event.envelope["_meta"]["redisId"] for event in events]


def token(number: int) -> dict[str, str]:
    return {"type": "token", "data": f'{{"n":{number}}}'}


async def test_entries_become_events_in_their_order_with_type_data_time_and_end(
    source: Source, instance: GatewayProcess
) -> None:
    ids = await source.add("events:a", token(1), {"type": "token", "data": "no JSON"}, {"who": "x", "what": "y"})
    ids += await source.add("events:a", {"type": "error", "data": "null"}, {"type": "done", "data": "1e999"})
    await source.add("events:b", *(token(number) for number in range(250)))
    await source.client.set("events:text", "is no stream")
    done = await copy(source, instance, "--rename", "error=task_error", "--terminal", "done")
    assert (done.code, done.out, done.err) == (0, "255 copied, 0 skipped, 2 streams\n", "")
    found = await stored(instance, "a")
    assert [(event.type, event.data) for event in found] == [
        ("token", {"n": 1}),
        ("token", "no JSON"),
        ("message", {"who": "x", "what": "y"}),
        ("task_error", None),
        ("done", "1e999"),
    ]
    assert redis_ids(found) == ids
    assert [event.envelope["_meta"]["serverTimestamp"] for event in found] == [int(i.split("-")[0]) for i in ids]
    assert [event.terminal for event in found] == [False, False, False, False, True]
    assert [event.data["n"] for event in await stored(instance, "b")] == list(range(250))


async def test_run_again_it_copies_what_is_new_and_nothing_twice(source: Source, instance: GatewayProcess) -> None:
    ids = await source.add("events:a", *(token(number) for number in range(5)))
    assert (await copy(source, instance)).out.startswith("5 copied")
    assert (await copy(source, instance)).out.startswith("0 copied")
    ids += await source.add("events:a", token(5))
    assert (await copy(source, instance)).out.startswith("1 copied")
    assert redis_ids(await stored(instance, "a")) == ids


async def test_what_no_session_may_hold_is_skipped_and_told_and_the_rest_is_copied(
    source: Source, instance: GatewayProcess
) -> None:
    ids = await source.add("events:a", token(1), {"type": "replay_complete", "data": "1"}, token(2))
    await source.add("events:a/b", token(1))
    large = {"type": "token", "data": f'"{"x" * 900_000}"'}
    too_large = {"type": "token", "data": f'"{"x" * 1_100_000}"'}
    many = await source.add("events:large", *[large] * 12, too_large, token(3))
    done = await copy(source, instance)
    assert done.code == 1
    assert done.out == "15 copied, 3 skipped, 2 streams\n"
    assert f"a {ids[1]}: invalid_event" in done.err
    assert f"large {many[12]}: event_too_large" in done.err
    assert "events:a/b" in done.err
    assert redis_ids(await stored(instance, "a")) == [ids[0], ids[2]]
    assert redis_ids(await stored(instance, "large")) == [*many[:12], many[13]]


async def test_while_it_follows_it_can_be_killed_and_a_new_one_goes_on(
    source: Source, instance: GatewayProcess
) -> None:
    ids = await source.add("events:a", token(0))

    async def arrived() -> bool:
        return len(await stored(instance, "a")) == len(ids)

    async with copying(source, instance, "--follow") as process:
        await eventually(arrived, "the first entry is copied", 30)
        ids += await source.add("events:a", token(1), token(2))
        await source.add("events:later", token(7))
        await eventually(arrived, "what is added is copied", 30)
        process.kill()
    ids += await source.add("events:a", token(3))
    async with copying(source, instance, "--follow") as process:
        await eventually(arrived, "another one goes on", 30)

        async def taken_up() -> bool:
            return [event.data for event in await stored(instance, "later")] == [{"n": 7}]

        await eventually(taken_up, "a key that came later is copied", 30)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    assert redis_ids(await stored(instance, "a")) == ids


async def test_without_a_redis_it_says_so_and_ends_with_1(source: Source, instance: GatewayProcess) -> None:
    done = await copy(source, instance, "--redis", f"redis://127.0.0.1:{free_port()}")
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert "skipped the rest" in done.err


async def test_a_cursor_of_redis_degrades_to_live_only_and_says_so(instance: GatewayProcess) -> None:
    async with aiohttp.ClientSession() as http:
        url = f"{instance.url}/session/a/events"
        event: dict[str, Any] = {"type": "t", "data": 1}
        async with http.post(url, json=event) as answer:
            assert answer.status == 201
        async with http.get(url, headers={"Last-Event-ID": "1767225600000-0"}) as stream:
            assert stream.status == 200
            assert stream.headers["X-Cursor-Ignored"] == "malformed"
            assert stream.headers["X-Start-Event-Id"] == "1"
