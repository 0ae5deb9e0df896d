"""An instance whose streams do not republish: its readers are served as on one whose streams do."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection
from ringmere.log.following import HEARTBEAT
from ringmere.log.shards import event_subject
from support.gateway import GatewayProcess, gateway
from support.nats import api, append, connected
from support.raw_http import Stream
from support.talk import numbers, open_stream, publish

STREAM = "RINGMERE_0"
FLAGS = ("--tail", "consumer", "--head-ttl", "0", "--retry-ms", "100", "--heartbeat", "0.2s")


@pytest.fixture
async def one(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """An instance on this test's nats-server."""
    async with gateway(tmp_path / "one", *FLAGS, nats_url=nats_server.url) as instance:
        yield instance


async def read_numbers(stream: Stream, count: int) -> list[tuple[int, int]]:
    """Return the (id, number) of the next frames, which must all be events."""
    frames = await stream.take(count)
    assert all(frame.id for frame in frames), [frame.raw for frame in frames if not frame.id]
    return [(frame.id or 0, frame.data["n"]) for frame in frames]


async def quiet(stream: Stream) -> None:
    """Read some heartbeats, and nothing else."""
    for _ in range(3):
        block = await stream.block()
        assert block is not None
        assert block.raw.startswith(":"), block.raw


async def delete_consumer(connection: Connection) -> None:
    """Delete the consumer of the tail; there is no other."""
    [name] = (await api(connection, f"CONSUMER.NAMES.{STREAM}"))["consumers"]
    assert (await api(connection, f"CONSUMER.DELETE.{STREAM}.{name}"))["success"]


async def test_the_start_says_which_tail_it_is_and_another_instance_finds_out_by_itself(
    one: GatewayProcess, nats_server: EmbeddedServer, tmp_path: Path, connection: Connection
) -> None:
    assert "republish" not in (await api(connection, f"STREAM.INFO.{STREAM}"))["config"]
    flags = ("--head-ttl", "0")
    async with gateway(tmp_path / "two", *flags, nats_url=nats_server.url) as two:
        for instance in (one, two):
            [ready] = [json.loads(line) for line in instance.output.splitlines() if '"event": "ready"' in line]
            assert ready["tail"] == "consumer"
        streams = [await open_stream(instance.url, "s") for instance in (one, two)]
        ids = await publish(two.url, "s", numbers(5))
        for stream in streams:
            assert await read_numbers(stream, 5) == list(zip(ids, range(1, 6), strict=True))
            stream.close()


async def test_jsc_1_an_event_after_the_consumer_was_deleted_arrives_within_two_heartbeats_once(
    one: GatewayProcess, connection: Connection
) -> None:
    stream = await open_stream(one.url, "s")
    await delete_consumer(connection)
    async with asyncio.timeout(2 * HEARTBEAT):
        [first] = await publish(one.url, "s", numbers(1))
        assert await read_numbers(stream, 1) == [(first, 1)]
    await delete_consumer(connection)
    async with asyncio.timeout(2 * HEARTBEAT):
        [second] = await publish(one.url, "s", numbers(1, 2))
        assert await read_numbers(stream, 1) == [(second, 2)]
    await quiet(stream)
    stream.close()


async def test_jsc_3_after_a_restart_of_nats_the_next_event_arrives_and_nothing_twice(
    one: GatewayProcess, nats_server: EmbeddedServer
) -> None:
    ids = await publish(one.url, "s", numbers(5))
    stream = await open_stream(one.url, "s", ids[2])
    assert [number for _, number in await read_numbers(stream, 2)] == [4, 5]
    assert [frame.type for frame in await stream.take(1)] == ["replay_complete"]
    await nats_server.kill()
    await one.wait_status("/readyz", 503)
    await nats_server.start()
    await one.wait_status("/readyz", 200)
    [sixth] = await publish(one.url, "s", numbers(1, 6))
    assert await read_numbers(stream, 1) == [(sixth, 6)]
    await quiet(stream)
    stream.close()


async def test_hov_3_what_was_published_during_a_break_arrives_whether_or_not_an_event_came_before(
    one: GatewayProcess, nats_server: EmbeddedServer
) -> None:
    untouched = await open_stream(one.url, "empty")
    live = await open_stream(one.url, "s")
    [first] = await publish(one.url, "s", numbers(1))
    assert await read_numbers(live, 1) == [(first, 1)]
    await nats_server.kill()
    await one.wait_status("/readyz", 503)
    await nats_server.start()
    async with connected(nats_server) as direct:
        second = await append(direct, event_subject(0, "s"), json.dumps(numbers(1, 2)[0]).encode())
        other = await append(direct, event_subject(0, "empty"), json.dumps(numbers(1)[0]).encode())
        assert await read_numbers(live, 1) == [(second, 2)]
        assert await read_numbers(untouched, 1) == [(other, 1)]
        await delete_consumer(direct)
        third = await append(direct, event_subject(0, "s"), json.dumps(numbers(1, 3)[0]).encode())
    assert await read_numbers(live, 1) == [(third, 3)]
    for stream in (live, untouched):
        await quiet(stream)
        stream.close()


@pytest.mark.parametrize("ring", [8000, 3])
async def test_res_4_an_instance_that_stood_still_is_complete_or_shows_the_hole_where_it_is(
    nats_server: EmbeddedServer, tmp_path: Path, ring: int
) -> None:
    count = 600
    async with gateway(tmp_path, *FLAGS, "--ring-size", str(ring), nats_url=nats_server.url) as instance:
        stream = await open_stream(instance.url, "s")
        await publish(instance.url, "s", numbers(1))
        ids = [id_ for id_, _ in await read_numbers(stream, 1)]
        instance.signal(signal.SIGSTOP)
        async with connected(nats_server) as direct:
            # More than the server may have under way to an instance that does not read.
            for n in range(2, count + 1):
                event = {"type": "t", "data": {"n": n, "pad": "x" * 20_000}}
                await append(direct, event_subject(0, "s"), json.dumps(event).encode())
        instance.signal(signal.SIGCONT)
        gaps = []
        while ids[-1] < count:
            [frame] = await stream.take(1)
            if frame.id is None:
                gaps.append((ids[-1], frame.type, frame.data))
            else:
                ids.append(frame.id)
        stream.close()
    if ring > count:
        assert (ids, gaps) == (list(range(1, count + 1)), [])
    else:
        [(last, type_, data)] = gaps
        after = ids.index(last) + 1
        assert (type_, data["reason"]) == ("state_resync_required", "ring_evicted")
        assert (data["lastDeliveredId"], data["earliestAvailableId"]) == (last, ids[after])
        assert ids == [*range(1, last + 1), *range(ids[after], count + 1)]
        assert ids[after] > last + 1
