"""What is killed, restarted or frozen costs readers nothing: each event arrives, once, in order."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from ringmere.embedded import EmbeddedServer
from ringmere.log.shards import event_subject
from support.command import running
from support.gateway import GatewayProcess, gateway
from support.logs import freeze
from support.nats import append, connected, eventually
from support.raw_http import Stream
from support.talk import get, numbers, open_stream, publish
from support.wanderer import Wanderer

QUICK = ("--retry-ms", "100", "--heartbeat", "0.2s")
SEED = 3


@pytest.fixture
async def one(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """An instance on this test's nats-server."""
    async with gateway(tmp_path / "one", *QUICK, nats_url=nats_server.url) as instance:
        yield instance


@pytest.fixture
async def two(nats_server: EmbeddedServer, tmp_path: Path, one: GatewayProcess) -> AsyncIterator[GatewayProcess]:
    """Another instance on the same server; it starts after the first, which makes the streams."""
    async with gateway(tmp_path / "two", *QUICK, nats_url=nats_server.url) as instance:
        yield instance


@asynccontextmanager
async def flow(url: str, directory: Path, count: int, rate: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Publish ``count`` numbered events to the session ``s`` at a rate; all must be stored when the block ends."""
    lines = directory / "events.ndjson"
    lines.write_text("".join(json.dumps(event) + "\n" for event in numbers(count)))
    async with running("publish", "s", "--file", str(lines), "--rate", str(rate), server=url) as publishing:
        yield publishing
        out, err = await asyncio.wait_for(publishing.communicate(), 60)
        assert publishing.returncode == 0, (out, err)


async def read_numbers(stream: Stream, count: int) -> list[tuple[int, int]]:
    """Return the (id, number) of the next frames, which must all be events."""
    frames = await stream.take(count)
    assert all(frame.id for frame in frames), [frame.raw for frame in frames if not frame.id]
    return [(frame.id or 0, frame.data["n"]) for frame in frames]


async def beats(stream: Stream, count: int) -> None:
    """Read so many heartbeats, and nothing else."""
    for _ in range(count):
        block = await stream.block()
        assert block is not None
        assert block.raw.startswith(":"), block.raw


async def test_a_killed_instance_costs_its_readers_nothing_they_resume_on_another(
    one: GatewayProcess, two: GatewayProcess, tmp_path: Path
) -> None:
    count = 800
    readers = [Wanderer(SEED + n, [one.url, two.url], "s", stay=60) for n in range(10)]
    async with flow(two.url, tmp_path, count, rate=400), asyncio.timeout(60), asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(reader.read(lambda reader=reader: len(reader.events) >= count))
        await eventually(lambda: all(len(reader.events) > 200 for reader in readers), "all readers in mid-stream")
        assert min(len(reader.events) for reader in readers) < count
        await one.kill()
    assert {reader.connections for reader in readers} == {1, 2}
    for reader in readers:
        assert [event["data"]["n"] for event in reader.events] == list(range(1, count + 1))
        assert {control["type"] for control in reader.controls} <= {"replay_complete"}


async def test_open_streams_live_through_a_killed_nats_server_while_events_flow(
    one: GatewayProcess, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    count = 600
    streams = [await open_stream(one.url, "s") for _ in range(5)]
    streams.append(await open_stream(one.url, "s", query="?from=start"))
    async with flow(one.url, tmp_path, count, rate=300):
        before = [await read_numbers(stream, 100) for stream in streams]
        await nats_server.kill()
        await one.wait_status("/readyz", 503)
        await nats_server.start()
        after = [await read_numbers(stream, count - 100) for stream in streams]
    assert await one.status("/readyz") == 200
    for first, rest in zip(before, after, strict=True):
        assert [number for _, number in first + rest] == list(range(1, count + 1))
        assert (ids := [id_ for id_, _ in first + rest]) == sorted(set(ids))
    for stream in streams:
        stream.close()


async def test_hov_3_jsc_3_quiet_streams_get_what_was_published_while_the_log_was_away(
    one: GatewayProcess, nats_server: EmbeddedServer
) -> None:
    untouched = await open_stream(one.url, "empty")
    live = await open_stream(one.url, "s")
    ids = await publish(one.url, "s", numbers(5))
    assert [number for _, number in await read_numbers(live, 5)] == [1, 2, 3, 4, 5]
    resumed = await open_stream(one.url, "s", ids[2])
    assert [number for _, number in await read_numbers(resumed, 2)] == [4, 5]
    assert [frame.type for frame in await resumed.take(1)] == ["replay_complete"]
    streams = (untouched, live, resumed)
    for _ in range(2):
        await nats_server.kill()
        await one.wait_status("/readyz", 503)
        for stream in streams:
            await beats(stream, 2)
        await nats_server.start()
        async with connected(nats_server) as direct:
            # Stored before the instance is back: no live message tells of it.
            late = await append(direct, event_subject(0, "s"), json.dumps(numbers(1, len(ids) + 1)[0]).encode())
            first = await append(direct, event_subject(0, "empty"), json.dumps(numbers(1, 1)[0]).encode())
        ids.append(late)
        assert await read_numbers(live, 1) == await read_numbers(resumed, 1) == [(late, len(ids))]
        assert await read_numbers(untouched, 1) == [(first, 1)]
    await one.wait_status("/readyz", 200)
    [last] = await publish(one.url, "s", numbers(1, len(ids) + 1))
    for stream in (live, resumed):
        assert await read_numbers(stream, 1) == [(last, len(ids) + 1)]
        await beats(stream, 2)
    for stream in streams:
        stream.close()


async def test_pub_8_a_publish_that_failed_while_nats_was_away_is_stored_once_when_it_is_repeated(
    one: GatewayProcess, nats_server: EmbeddedServer
) -> None:
    event = {"type": "t", "data": {"n": 1}}
    await publish(one.url, "other", numbers(1))
    await nats_server.kill()
    await one.wait_status("/readyz", 503)
    async with aiohttp.ClientSession() as http:
        async with http.post(f"{one.url}/session/s/events", json=event) as answer:
            assert (answer.status, (await answer.json())["code"]) == (503, "log_unavailable")
            assert int(answer.headers["Retry-After"]) > 0
        await nats_server.start()
        await one.wait_status("/readyz", 200)
        async with http.post(f"{one.url}/session/s/events", json=event) as answer:
            assert answer.status == 201
            stored = (await answer.json())["id"]
    reader = await open_stream(one.url, "s", 0)
    assert await read_numbers(reader, 1) == [(stored, 1)]
    [complete] = await reader.take(1)
    assert complete.data == {"replayedCount": 1, "lastReplayedEventId": stored}
    reader.close()


async def test_pub_8_a_publish_of_unknown_fate_says_so_and_its_key_makes_the_retry_safe(
    one: GatewayProcess, nats_server: EmbeddedServer
) -> None:
    event = {"type": "t", "data": {"n": 1}}
    headers = {"Idempotency-Key": "k"}
    async with aiohttp.ClientSession() as http:
        await freeze(nats_server)
        try:
            async with http.post(f"{one.url}/session/s/events", json=event, headers=headers) as answer:
                assert (answer.status, (await answer.json())["code"]) == (504, "publish_unconfirmed")
        finally:
            nats_server.send_signal(signal.SIGCONT)
        await one.wait_status("/readyz", 200)
        async with http.post(f"{one.url}/session/s/events", json=event, headers=headers) as answer:
            assert answer.status in (200, 201)
            stored = (await answer.json())["id"]
    reader = await open_stream(one.url, "s", 0)
    assert await read_numbers(reader, 1) == [(stored, 1)]
    assert [frame.type for frame in await reader.take(1)] == ["replay_complete"]
    reader.close()


async def test_mdc_4_two_instances_number_a_session_together_and_readers_of_both_see_one_order(
    one: GatewayProcess, two: GatewayProcess
) -> None:
    readers = [await open_stream(instance.url, "s", 0) for instance in (one, two)]
    for reader in readers:
        assert [frame.type for frame in await reader.take(1)] == ["replay_complete"]
    answers: dict[int, int] = {}

    async def send(http: aiohttp.ClientSession, url: str, number: int) -> None:
        async with http.post(f"{url}/session/s/events", json=numbers(1, number)[0]) as answer:
            assert answer.status == 201, await answer.text()
            answers[(await answer.json())["id"]] = number

    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
        for number in range(1000):
            group.create_task(send(http, (one, two)[number % 2].url, number))
    seen_by = [await read_numbers(reader, 1000) for reader in readers]
    assert seen_by[0] == seen_by[1] == sorted(answers.items())
    assert [id_ for id_, _ in seen_by[0]] == list(range(1, 1001))
    for reader in readers:
        reader.close()


async def test_mdc_5_the_publishing_instance_delivers_no_event_twice(one: GatewayProcess, two: GatewayProcess) -> None:
    readers = [await open_stream(instance.url, "s") for instance in (one, one, two)]
    ids = []
    for number in range(1, 11):
        ids += await publish(one.url, "s", numbers(1, number))
    ids += await publish(two.url, "s", numbers(1, 11))
    for reader in readers:
        assert await read_numbers(reader, 11) == list(zip(ids, range(1, 12), strict=True))
        await beats(reader, 2)
        reader.close()


async def test_hov_1_connections_at_random_moments_of_a_flow_have_no_seam(one: GatewayProcess, tmp_path: Path) -> None:
    count = 2000
    chance = random.Random(SEED)

    async def read() -> list[tuple[int, int]]:
        await asyncio.sleep(chance.uniform(0, 2))
        stream = await open_stream(one.url, "s", 0)
        frames = [frame for frame in await stream.take(count + 1) if frame.type != "replay_complete"]
        stream.close()
        return [(frame.id or 0, frame.data["n"]) for frame in frames]

    async with flow(one.url, tmp_path, count, rate=1000):
        seen_by = await asyncio.gather(*(read() for _ in range(20)))
    for events in seen_by:
        assert events == list(zip(range(1, count + 1), range(1, count + 1), strict=True))


async def test_an_instance_that_starts_before_nats_recovers_without_a_restart(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "nats")
    async with gateway(tmp_path, *QUICK, nats_url=server.url, ready=False) as instance:
        assert (await get(instance.url, "/readyz")).status == 503
        stream = await open_stream(instance.url, "s")
        [refusal] = await stream.all()
        assert (refusal.type, refusal.data["errorKind"]) == ("stream_error", "log_unavailable")
        assert refusal.retry is not None
        await server.start()
        try:
            await instance.wait_status("/readyz", 200)
            [id_] = await publish(instance.url, "s", numbers(1))
            stream = await open_stream(instance.url, "s", 0)
            assert await read_numbers(stream, 1) == [(id_, 1)]
            stream.close()
        finally:
            await server.kill()


async def test_hov_1_readers_that_come_and_go_among_bursts_larger_than_the_window_miss_nothing(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A burst that pushes out of memory what a joining reader is still due must not be a seam."""
    burst, bursts = 200, 15
    async with gateway(tmp_path, *QUICK, "--window-bytes", "16KiB", nats_url=nats_server.url) as instance:
        readers = [Wanderer(SEED + n, [instance.url], "s", stay=0.1) for n in range(30)]
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.read(lambda reader=reader: reader.cursor >= burst * bursts))
            for number in range(bursts):
                before = sum(reader.connections for reader in readers)
                await eventually(
                    lambda before=before: sum(reader.connections for reader in readers) > before + 60,
                    "the readers come again",
                )
                await publish(instance.url, "s", numbers(burst, number * burst + 1))
    for reader in readers:
        assert reader.ids == list(range(1, burst * bursts + 1))
