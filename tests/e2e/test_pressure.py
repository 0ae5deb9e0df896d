"""Many connections, rude clients, slow readers, foreign ids: an instance keeps its word and its memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from ringmere.core.limits import Limits
from ringmere.embedded import EmbeddedServer
from ringmere.log.shards import head_name, stream_name
from support.doors import Gateway
from support.gateway import GatewayProcess, gateway
from support.nats import api, connected, eventually
from support.raw_http import Frame, Stream, fetch
from support.talk import get, has_readers, numbers, open_stream, port_of, publish, total

Instance = Callable[..., AbstractAsyncContextManager[Gateway]]

MIB = 1024 * 1024
PAGE = 4096


@pytest.fixture
async def process(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """An instance whose windows are so small that replays come from the log."""
    async with gateway(tmp_path, "--window-bytes", "1KiB", nats_url=nats_server.url) as running:
        yield running


async def consumers(server: EmbeddedServer) -> int:
    """Return how many consumers the streams of a log have."""
    async with connected(server) as connection:
        infos = [await api(connection, f"STREAM.INFO.{name}") for name in (stream_name(0), head_name(0))]
    return sum(info["state"]["consumer_count"] for info in infos)


def resident(pid: int) -> int:
    """Return the bytes of memory a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def open_files(pid: int) -> int:
    """Return how many files and sockets a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def come_and_go(url: str, times: int) -> None:
    """Connect so many times, read one event each, and leave."""
    places = asyncio.Semaphore(20)

    async def once(number: int) -> None:
        async with places:
            stream = await open_stream(url, f"s{number % 10}", 0)
            [first] = await stream.take(1)
            assert first.data == {"n": 1}
            if number % 2:
                stream.close()
            else:
                stream.connection.reset()

    await asyncio.gather(*(once(number) for number in range(times)))


async def test_jsc_2_five_hundred_connections_leave_nothing_behind(
    process: GatewayProcess, nats_server: EmbeddedServer
) -> None:
    for session in range(10):
        await publish(process.url, f"s{session}", numbers(100))
    base = await consumers(nats_server)
    await come_and_go(process.url, 200)
    await has_readers(process.url, 0)
    files, memory = open_files(process.pid), resident(process.pid)
    await come_and_go(process.url, 500)
    await has_readers(process.url, 0)
    await eventually(lambda: open_files(process.pid) <= files + 2, "sockets are closed")

    async def as_before() -> bool:
        return await consumers(nats_server) == base

    await eventually(as_before, "consumers are gone")
    assert resident(process.pid) - memory < 8 * MIB
    assert await total(process.url, "ringmere_streams_closed_total", reason="client_gone") == 700
    assert await total(process.url, "ringmere_replayed_events_total", source="log") > 0


async def test_jsc_2_readers_leave_no_task_behind(instance: Instance) -> None:
    async with instance(Limits(window_bytes=1024)) as gateway:
        url = f"http://127.0.0.1:{gateway.port}"
        for session in range(10):
            await publish(url, f"s{session}", numbers(100))
        await come_and_go(url, 40)
        await gateway.until(lambda: gateway.readers() == 0, "all readers are gone")
        base = len(asyncio.all_tasks())
        await come_and_go(url, 400)
        await gateway.until(lambda: gateway.readers() == 0, "all readers are gone")
        await eventually(lambda: len(asyncio.all_tasks()) <= base, "no task is left")


async def test_lif_4_a_storm_of_resets_leaves_no_error(process: GatewayProcess) -> None:
    sessions = ("a", "b")
    streams = [await open_stream(process.url, sessions[number % 2]) for number in range(100)]

    async def leave(stream: Stream, after: int) -> None:
        await stream.take(after)
        stream.connection.reset()

    async def flow(session: str) -> None:
        for _ in range(20):
            await publish(process.url, session, numbers(50))

    leaving = [leave(stream, 1 + 9 * number) for number, stream in enumerate(streams)]
    await asyncio.gather(*leaving, *(flow(session) for session in sessions))
    await has_readers(process.url, 0)
    assert await total(process.url, "ringmere_streams_closed_total", reason="client_gone") == 100
    assert await total(process.url, "ringmere_streams_closed_total") == 100
    lines = [json.loads(line) for line in process.output.splitlines() if line.startswith("{")]
    assert lines
    assert [line for line in lines if line["level"] not in ("debug", "info")] == []
    assert "Traceback" not in process.output


async def test_lif_5_a_full_instance_says_so_and_keeps_working(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    async with gateway(tmp_path, "--max-connections", "20", nats_url=nats_server.url) as instance:
        streams = [await open_stream(instance.url, f"s{number}") for number in range(20)]
        for _ in range(30):
            refused = await open_stream(instance.url, "late")
            [frame] = await refused.all()
            assert frame.type == "stream_error"
            assert (frame.data["errorKind"], frame.data["retryAfterMs"]) == ("subscriber_limit_exceeded", 5000)
            assert frame.retry is not None
            assert frame.retry >= 5000
        [id_] = await publish(instance.url, "s0", numbers(1))
        [frame] = await streams[0].take(1)
        assert frame.id == id_
        assert await total(instance.url, "ringmere_subscribers") == 20
        assert (await get(instance.url, "/readyz")).status == 200
        streams.pop().close()
        await has_readers(instance.url, 19)
        streams.append(await open_stream(instance.url, "late", 0))
        [frame] = await streams[-1].take(1)
        assert frame.type == "replay_complete"
        for stream in streams:
            stream.close()


async def test_res_4_a_replay_that_retention_overtakes_tells_every_jump(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    large = [{"type": "t", "data": "x" * 65536}] * 50
    async with gateway(tmp_path, "--ring-size", "50", nats_url=nats_server.url) as instance:
        ids = await publish(instance.url, "s", large)
        stream = await open_stream(instance.url, "s", 0)
        frames = await stream.take(1)
        for _ in range(4):
            ids += await publish(instance.url, "s", large)
        notices: list[Frame] = []
        while frames[-1].id != ids[-1]:
            frame = await stream.frame()
            if frame is None:
                # Put out: it goes on where it stands, as a client would.
                assert notices[-1].type == "client_evicted"
                assert notices[-1].data["droppedAfter"] == frames[-1].id
                stream = await open_stream(instance.url, "s", frames[-1].id)
            elif frame.id is None:
                notices.append(frame)
            else:
                whole = frame.id == frames[-1].id + 1
                assert whole or told(notices[-1], frames[-1].id or 0, frame.id), (frames[-1].id, frame.id)
                frames.append(frame)
        stream.close()
    seen = [frame.id for frame in frames]
    assert seen == sorted(set(seen), key=lambda id_: id_ or 0)
    assert "state_resync_required" in [notice.type for notice in notices]


def told(notice: Frame, before: int, after: int) -> bool:
    """Say whether a notice is the verdict about the jump between two ids."""
    return notice.type == "state_resync_required" and notice.data == {
        "reason": "ring_evicted", "lastDeliveredId": before, "earliestAvailableId": after,
    }  # fmt: skip


BAD = (
    "*",
    "%3E",
    ">",
    "a.b",
    "%2e%2e",
    "%2A",
    "a%20b",
    "a%0D%0APUB%20x%200%0D%0A",
    "%00",
    "a" * 129,
    "%C3%A9",
    "a%2Fb",
)


async def test_sid_1_no_route_takes_what_is_no_session_id(process: GatewayProcess, nats_server: EmbeddedServer) -> None:
    await publish(process.url, "s", numbers(2))
    paths = json.loads((await get(process.url, "/openapi.json")).body)["paths"]
    routes = [
        (method.upper(), path)
        for path, methods in paths.items()
        if "/session/{id}" in path
        for method in methods
        if method in ("get", "head", "post", "put", "delete", "patch")
    ]
    assert {("GET", "/session/{id}/events"), ("POST", "/session/{id}/events"), ("DELETE", "/session/{id}")} < set(
        routes
    )
    headers = {"Content-Type": "application/json", "Last-Event-ID": "0"}
    body = json.dumps(numbers(1)[0]).encode()
    for bad in BAD:
        for method, path in routes:
            target = path.replace("{id}", bad).replace("{task}", "t")
            answer = await fetch(port_of(process.url), method, target, headers, body if method == "POST" else None)
            assert answer.status == 400, (method, target, answer)
            assert method == "HEAD" or answer.code == "invalid_session_id"
    async with connected(nats_server) as connection:
        state = (await api(connection, f"STREAM.INFO.{stream_name(0)}"))["state"]
    assert (state["messages"], state["num_subjects"]) == (2, 1)
    assert await publish(process.url, "s", numbers(1, 3)) == [3]
