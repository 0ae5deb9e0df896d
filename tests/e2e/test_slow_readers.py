"""Readers that read on, only slowly, through real kernel buffers (contract 6.7, 6.8)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ringmere.core.decoder import Decoder
from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection as NatsConnection
from ringmere.log.connect import ConnectOptions
from support.gateway import GatewayProcess, gateway
from support.raw_http import Connection, request_bytes

MIB = 1024 * 1024
SUBJECT = "ringmere.events.0."
BODY = "x" * 2048
CATCHUP = "?overflow=catchup"


class Seen(NamedTuple):
    """One frame: ``id`` is None for a control frame, ``data`` the envelope's."""

    id: int | None
    type: str
    data: Any


class SlowReader:
    """Takes so many bytes a second from its socket and keeps what they say."""

    def __init__(self, connection: Connection, bytes_per_second: float) -> None:
        self._connection = connection
        self._rate = bytes_per_second
        self.seen: list[Seen] = []
        self.ended = False
        self.changed = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()

    async def run(self) -> None:
        decoder = Decoder()
        async for blob in self._connection.chunks():
            for event in decoder.feed(blob):
                envelope = json.loads(event.data)
                self.seen.append(Seen(envelope.get("id"), event.type, envelope["data"]))
            self.changed.set()
            await asyncio.sleep(len(blob) / self._rate)
            await self.reading.wait()
        self.ended = True
        self.changed.set()

    def of(self, type: str) -> list[Any]:
        return [seen.data for seen in self.seen if seen.type == type]

    @property
    def ids(self) -> list[int]:
        return [seen.id for seen in self.seen if seen.id is not None]

    async def until(self, last_id: int | None, deadline: float = 90.0) -> None:
        """Wait for the event with the id ``last_id``, None for the end of the stream."""
        async with asyncio.timeout(deadline):
            while not (self.ended if last_id is None else self.ids[-1:] == [last_id]):
                assert not self.ended or last_id is None, f"ended early: {self.seen[-1]}"
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def slow_reader(process: GatewayProcess, query: str, rate: float) -> AsyncIterator[SlowReader]:
    """Run a live reader of session ``s`` whose own buffers are small."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sock.setblocking(False)
    parts = urlsplit(process.url)
    await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
    connection = Connection(*await asyncio.open_connection(sock=sock))
    await connection.send(request_bytes("GET", f"/session/s/events{query}"))
    assert (await connection.head()).status == 200
    reader = SlowReader(connection, rate)
    task = asyncio.create_task(reader.run())
    try:
        yield reader
    finally:
        task.cancel()
        await asyncio.wait([task])
        connection.close()


@asynccontextmanager
async def publisher(server: EmbeddedServer) -> AsyncIterator[NatsConnection]:
    connection = await NatsConnection.open(ConnectOptions(servers=(server.url,)))
    try:
        yield connection
    finally:
        await connection.close()


async def publish(connection: NatsConnection, count: int, data: Any = BODY, type: str = "t") -> None:
    """Publish as fast as the log takes it, 200 at a time."""
    payload = json.dumps({"type": type, "data": data}).encode()
    for start in range(0, count, 200):
        part = range(start, min(start + 200, count))
        await asyncio.gather(*(connection.request(SUBJECT + "s", payload, timeout=10) for _ in part))


async def metrics(process: GatewayProcess) -> dict[str, float]:
    """Return an instance's metrics by their lines."""
    parts = urlsplit(process.url)
    connection = Connection(*await asyncio.open_connection(parts.hostname, parts.port))
    await connection.send(request_bytes("GET", "/metrics", {"Connection": "close"}))
    rows = (await connection.answer()).body.decode().splitlines()
    connection.close()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in rows if not line.startswith("#")}


def fall_backs(numbers: dict[str, float]) -> float:
    return sum(value for line, value in numbers.items() if line.startswith("ringmere_catchups_total{"))


def assert_told_of_every_jump(reader: SlowReader) -> None:
    """The session is alone in its stream, so its ids are 1, 2, 3…: a jump without its verdict is a loss.

    Each verdict names the event really before it. One that follows another before any event came says that the loss
    has grown.
    """
    last, earliest = 0, 1
    for seen in reader.seen:
        if seen.type == "state_resync_required":
            assert seen.data["reason"] == "ring_evicted"
            assert seen.data["lastDeliveredId"] == last
            assert seen.data["earliestAvailableId"] > earliest
            earliest = seen.data["earliestAvailableId"]
        elif seen.id is not None:
            assert seen.id == earliest
            last, earliest = seen.id, seen.id + 1


async def test_a_reader_at_2_mib_a_second_of_a_full_speed_session_gets_each_event_once_in_order(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with (
        gateway(tmp_path, nats_url=nats_server.url) as process,
        publisher(nats_server) as connection,
        slow_reader(process, CATCHUP, 2 * MIB) as slow,
    ):
        await publish(connection, 7000)
        await slow.until(7000)
        assert slow.ids == [*range(1, 7001)]
        assert {seen.type for seen in slow.seen} == {"t", "slow_client_warning"}
        numbers = await metrics(process)
        assert fall_backs(numbers) >= 1
        assert sum(value for line, value in numbers.items() if line.startswith("ringmere_evictions_total{")) == 0
        assert numbers['ringmere_backlog_bytes{of="all"}'] == 0
        await publish(connection, 10)
        await slow.until(7010)
        assert slow.ids == [*range(1, 7011)]


async def test_a_reader_that_the_ring_overtakes_is_told_exactly_where_and_reads_on(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with (
        gateway(tmp_path, "--ring-size", "300", nats_url=nats_server.url) as process,
        publisher(nats_server) as connection,
        slow_reader(process, CATCHUP, 2 * MIB) as slow,
    ):
        await publish(connection, 10)
        await slow.until(10)
        slow.reading.clear()
        await publish(connection, 4990)
        slow.reading.set()
        await slow.until(5000)
        assert_told_of_every_jump(slow)
        assert len(slow.of("state_resync_required")) == 1
        assert slow.ids[-300:] == [*range(4701, 5001)]
        assert not slow.of("replay_complete")
        assert not slow.ended


async def test_a_reader_that_the_ring_overtakes_again_and_again_is_evicted_as_too_slow(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with (
        gateway(tmp_path, "--ring-size", "300", nats_url=nats_server.url) as process,
        publisher(nats_server) as connection,
        slow_reader(process, CATCHUP, 2 * MIB) as slow,
    ):

        async def publish_for_ever() -> None:
            while True:
                await publish(connection, 1000)

        publishing = asyncio.create_task(publish_for_ever())
        try:
            await slow.until(None)
        finally:
            publishing.cancel()
        assert_told_of_every_jump(slow)
        # Three losses, whoever was overtaken; one that grew before any event came behind it is told once more.
        assert len({verdict["lastDeliveredId"] for verdict in slow.of("state_resync_required")}) == 3
        assert slow.seen[-1].type == "client_evicted"
        assert slow.seen[-1].data["reason"] == "too_slow"
        assert slow.seen[-1].data["droppedAfter"] == slow.ids[-1]
        assert (await metrics(process))['ringmere_evictions_total{reason="too_slow"}'] == 1


async def test_a_slow_reader_of_texts_gets_them_merged_and_whole_where_the_operator_allows_it(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It stands still while more texts are published than its backlog could hold as events of their own."""
    async with (
        gateway(tmp_path, "--coalesce", "chunk=/data/text", nats_url=nats_server.url) as process,
        publisher(nats_server) as connection,
        slow_reader(process, "?coalesce=1", MIB) as slow,
    ):
        sent = 0
        while not (await metrics(process))['ringmere_backlog_events{of="all"}']:
            await publish(connection, 100)
            sent += 100
        await publish(connection, 3000, {"text": "ab", "by": "agent"}, "chunk")
        await slow.until(sent + 3000)
        merged = slow.of("chunk")
        assert "".join(data["text"] for data in merged) == 3000 * "ab"
        assert len(merged) < 3000
        assert not slow.of("client_evicted")
        numbers = await metrics(process)
        assert numbers["ringmere_coalesced_events_total"] == 3000 - len(merged)
        assert numbers['ringmere_backlog_bytes{of="all"}'] == 0
