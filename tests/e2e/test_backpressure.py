"""Slow readers on real sockets (contract 6): bounded, told, gone within the grace, and nobody else's trouble."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from ringmere.core.decoder import Decoder
from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection, ConnectOptions
from support.doors import running
from support.gateway import GatewayProcess, gateway
from support.raw_http import Stream, connect, request_bytes

MIB = 1024 * 1024
SUBJECT = "ringmere.events.0."
KERNEL_AND_TRANSPORT = 12 * MIB
"""What one stalled connection may pin: socket buffers of both ends do not count to the process, its transport does."""


def rss(process: GatewayProcess) -> int:
    """Return the resident memory of an instance in bytes."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * 4096


async def metric(process: GatewayProcess, line: str) -> float:
    """Return the value of one metric line of an instance, 0 when it has none."""
    async with aiohttp.ClientSession() as http, http.get(process.url + "/metrics") as response:
        for row in (await response.text()).splitlines():
            if row.startswith(line + " "):
                return float(row.split()[-1])
    return 0.0


async def until_metric(process: GatewayProcess, line: str, value: float, deadline: float = 15.0) -> None:
    """Wait for a metric line to show a value."""
    end = time.monotonic() + deadline
    while (seen := await metric(process, line)) != value:
        assert time.monotonic() < end, f"{line} is {seen}, not {value}"
        await asyncio.sleep(0.05)


async def open_stream(process: GatewayProcess, session: str, query: str = "") -> Stream:
    """Open a raw stream; nothing reads it unless the test does."""
    port = urlsplit(process.url).port
    assert port is not None
    connection = await connect(port)
    await connection.send(request_bytes("GET", f"/session/{session}/events{query}", None))
    return Stream(connection, await connection.head())


class HealthyReader:
    """Reads one session as fast as it can and keeps the numbers in the data, and the longest delay in seconds."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.control: list[str] = []
        self.longest_delay = 0.0
        self.changed = asyncio.Event()

    async def run(self, url: str, started: asyncio.Event) -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        decoder = Decoder()
        async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url) as response:
            started.set()
            async for data in response.content.iter_any():
                for event in decoder.feed(data):
                    self._take(event.type, event.data)
                self.changed.set()

    def _take(self, type: str, text: str) -> None:
        envelope = json.loads(text)
        if type != "t":
            self.control.append(type)
            return
        self.numbers.append(envelope["data"]["n"])
        sent = envelope["data"].get("at")
        if sent is not None:
            self.longest_delay = max(self.longest_delay, time.time() - sent)

    async def until(self, count: int, deadline: float = 60.0) -> None:
        async with asyncio.timeout(deadline):
            while len(self.numbers) < count:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def reading(process: GatewayProcess, session: str, query: str = "") -> AsyncIterator[HealthyReader]:
    """Run a healthy reader; it is live when the block begins."""
    reader, started = HealthyReader(), asyncio.Event()
    task = asyncio.create_task(reader.run(f"{process.url}/session/{session}/events{query}", started))
    await asyncio.wait({task, asyncio.ensure_future(started.wait())}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield reader
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def publisher(server: EmbeddedServer) -> AsyncIterator[Connection]:
    connection = await Connection.open(ConnectOptions(servers=(server.url,)))
    try:
        yield connection
    finally:
        await connection.close()


def event(n: int, size: int) -> bytes:
    return json.dumps({"type": "t", "data": {"n": n, "at": time.time(), "pad": "x" * size}}).encode()


async def publish_all(connection: Connection, session: str, numbers: range, size: int, burst: int = 200) -> None:
    """Publish numbered events straight to the log, ``burst`` at a time, each acknowledged."""
    for start in range(numbers.start, numbers.stop, burst):
        part = range(start, min(start + burst, numbers.stop))
        await asyncio.gather(*(connection.request(SUBJECT + session, event(n, size), timeout=10) for n in part))


async def test_bpr_1_a_reader_that_never_reads_is_evicted_and_gone_within_grace(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """BPR-1, BPR-2: bounded memory, the healthy reader sees all, the socket is closed though nobody reads it."""
    async with (
        gateway(tmp_path, "--evict-grace", "1", nats_url=nats_server.url) as process,
        publisher(nats_server) as connection,
        reading(process, "s") as healthy,
    ):
        stalled = await open_stream(process, "s")
        await until_metric(process, 'ringmere_subscribers{transport="sse"}', 2)
        before = rss(process)
        await publish_all(connection, "s", range(10_000), 2048)
        await healthy.until(10_000)
        assert healthy.numbers == list(range(10_000))
        assert healthy.control == []
        await until_metric(process, 'ringmere_subscribers{transport="sse"}', 1)
        assert rss(process) - before < 3 * MIB + KERNEL_AND_TRANSPORT
        evicted = await metric(process, 'ringmere_evictions_total{reason="queue_overflow"}')
        evicted += await metric(process, 'ringmere_evictions_total{reason="queue_bytes_overflow"}')
        assert evicted == 1
        warned = [
            await metric(process, f'ringmere_slow_client_warnings_total{{threshold="{threshold}"}}')
            for threshold in ("frames", "bytes", "frames_and_bytes")
        ]
        assert sum(warned) == 1
        assert await metric(process, 'ringmere_backlog_bytes{of="all"}') == 0
        stalled.close()


async def test_bpr_6_an_evicted_reader_that_reads_again_sees_what_was_queued_the_reason_and_the_end(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It resumes behind ``droppedAfter`` and has lost nothing."""
    async with (
        gateway(tmp_path, "--evict-grace", "60", nats_url=nats_server.url) as process,
        publisher(nats_server) as connection,
    ):
        slow = await open_stream(process, "s")
        await publish_all(connection, "s", range(9000), 2048)
        await until_metric(process, 'ringmere_evictions_total{reason="queue_overflow"}', 1)
        frames = await slow.all()
        assert [frame.type for frame in frames[-2:]] == ["t", "client_evicted"]
        evicted, ids = frames[-1].data, [frame.id for frame in frames if frame.type == "t"]
        assert [frame.type for frame in frames].count("slow_client_warning") == 1
        assert ids == list(range(1, len(ids) + 1))
        assert evicted["droppedAfter"] == ids[-1]
        assert (evicted["reason"], evicted["queueSize"], evicted["maxQueued"]) == ("queue_overflow", 256, 256)
        async with reading(process, "s", f"?last_event_id={evicted['droppedAfter']}") as again:
            await again.until(9000 - len(ids))
            assert again.numbers == list(range(len(ids), 9000))
            assert again.control[:1] in ([], ["replay_complete"])


async def test_bpr_3_ten_events_of_400_kb_meet_the_byte_cap(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """Behind full kernel buffers: five fit under 2 MiB, the sixth is the eviction, and it is named with its size."""
    async with (
        gateway(tmp_path, "--evict-grace", "60", nats_url=nats_server.url) as process,
        publisher(nats_server) as connection,
    ):
        slow = await open_stream(process, "s")
        sent = 0
        while not await metric(process, 'ringmere_evictions_total{reason="queue_bytes_overflow"}'):
            assert sent < 60, "never evicted"
            await connection.request(SUBJECT + "s", event(sent, 400_000), timeout=10)
            sent += 1
        frames = await slow.all()
        evicted = frames[-1].data
        assert evicted["reason"] == "queue_bytes_overflow"
        assert evicted["queueSize"] == 5
        assert evicted["maxQueuedBytes"] == 2 * MIB
        assert evicted["queuedBytes"] + evicted["eventBytes"] > 2 * MIB
        assert evicted["queuedBytes"] <= 2 * MIB
        (warning,) = [frame.data for frame in frames if frame.type == "slow_client_warning"]
        assert (warning["threshold"], warning["queueSize"]) == ("bytes", 4)


async def test_a_healthy_reader_survives_bursts_and_20000_events_a_second(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """5,000 events of 200 bytes in one go, then a stream of them as fast as the log takes it: no eviction, no hole."""
    async with (
        gateway(tmp_path, nats_url=nats_server.url) as process,
        publisher(nats_server) as connection,
        reading(process, "s") as healthy,
    ):
        await publish_all(connection, "s", range(5000), 200, burst=5000)
        await healthy.until(5000)
        await publish_all(connection, "s", range(5000, 45_000), 200, burst=1000)
        await healthy.until(45_000)
        assert healthy.numbers == list(range(45_000))
        assert healthy.control == []


async def test_5000_events_accepted_in_one_turn_of_the_loop_evict_no_reader_that_reads(tmp_path: Path) -> None:
    """curl reads in a process of its own; the instance's loop is not left while all 5,000 come in."""
    async with running() as instance:
        received = tmp_path / "received"
        url = f"http://127.0.0.1:{instance.port}/session/s/events"
        with received.open("wb") as out:
            curl = await asyncio.create_subprocess_exec("curl", "-sN", url, stdout=out)
        await instance.until(lambda: instance.hub.channels and instance.hub.channels[0].readers, "curl is live")
        feed = instance.hub.channels[0].feed
        for n in range(1, 5001):
            feed.on_live(n, n - 1, time.time_ns(), event(n, 130))
        await instance.until(lambda: b'"n": 5000' in received.read_bytes(), "the last event")
        text = received.read_text()
        curl.kill()
        await curl.wait()
        assert re.findall(r"^id: ([0-9]+)$", text, re.MULTILINE) == [str(n) for n in range(1, 5001)]
        assert "slow_client_warning" not in text


async def test_bpr_5_a_stalled_reader_slows_neither_its_session_nor_another(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with (
        gateway(tmp_path, nats_url=nats_server.url) as process,
        publisher(nats_server) as connection,
        reading(process, "s") as same,
        reading(process, "other") as other,
    ):
        stalled = await open_stream(process, "s")
        for start in range(0, 4000, 50):
            part = range(start, start + 50)
            await asyncio.gather(publish_all(connection, "s", part, 4096), publish_all(connection, "other", part, 200))
        await same.until(4000)
        await other.until(4000)
        assert same.numbers == other.numbers == list(range(4000))
        assert max(same.longest_delay, other.longest_delay) < 1
        stalled.close()


async def test_sessions_without_readers_cost_the_instance_nothing(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """100,000 sessions are published and one of them is resumed."""
    async with (
        gateway(tmp_path, nats_url=nats_server.url) as process,
        publisher(nats_server) as connection,
    ):
        async with reading(process, "warm-up"):
            await publish_all(connection, "warm-up", range(10), 100)
        before = rss(process)
        for start in range(0, 100_000, 1000):
            sessions = [f"session-{n}" for n in range(start, start + 1000)]
            await asyncio.gather(
                *(connection.request(SUBJECT + session, event(0, 100), timeout=10) for session in sessions)
            )
        await publish_all(connection, "session-77777", range(1, 4), 100)
        async with reading(process, "session-77777", "?last_event_id=0") as reader:
            await reader.until(4)
            assert reader.numbers == [0, 1, 2, 3]
        assert await metric(process, "ringmere_sessions_live") <= 2
        assert rss(process) - before < 8 * MIB
