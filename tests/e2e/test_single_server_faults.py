"""One server without copies, two instances, 1,000 events a second, 50 readers: no fault costs any of them anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection
from support.gateway import GatewayProcess, gateway
from support.nats import api, eventually
from support.raw_http import Stream
from support.steady import Load, scene
from support.talk import numbers, open_stream, publish

pytestmark = pytest.mark.timeout(240)

FLAGS = ("--retry-ms", "100", "--heartbeat", "0.5s")
DEGRADED = frozenset({"log_degraded", "log_restored"})
"""What readers are told when publishers are refused for a while; it says nothing about what they got."""
WITHIN = 60.0


class WithoutJetStream(EmbeddedServer):
    """The same server, but for the one thing that Ringmere needs."""

    def configuration(self) -> str:
        return f'server_name: "{self.name}"\nlisten: "127.0.0.1:{self.port}"\n'


@pytest.fixture
async def instances(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[list[GatewayProcess]]:
    """Two instances on this test's server."""
    async with (
        gateway(tmp_path / "one", *FLAGS, nats_url=nats_server.url) as one,
        gateway(tmp_path / "two", *FLAGS, nats_url=nats_server.url) as two,
    ):
        yield [one, two]


def thousand_a_second(urls: list[str]) -> Load:
    """Publish 100 events a second to each of ten sessions."""
    return Load(urls, [f"s{n}" for n in range(10)], pause=0.1, batch=10)


async def test_the_server_is_killed_and_started_again_three_times(
    instances: list[GatewayProcess], nats_server: EmbeddedServer
) -> None:
    urls = [instance.url for instance in instances]
    async with scene(thousand_a_second(urls), urls, readers=5) as playing:
        for _ in range(3):
            await nats_server.kill()
            await instances[0].wait_status("/readyz", 503, WITHIN)
            await nats_server.start()
            await playing.flow(150)
    playing.complete(DEGRADED)


async def test_the_server_has_no_jetstream_for_a_while(
    instances: list[GatewayProcess], nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The connection is there, but nobody stores and nobody answers reads."""
    urls = [instance.url for instance in instances]
    async with scene(thousand_a_second(urls), urls, readers=5) as playing:
        await nats_server.kill()
        bare = WithoutJetStream(tmp_path / "bare", port=nats_server.port)
        await bare.start()
        try:
            refused = playing.load.told[503]
            await eventually(lambda: playing.load.told[503] > refused + 40, "publishers are refused", WITHIN)
        finally:
            await bare.kill()
        await nats_server.start()
        await playing.flow(150)
    playing.complete(DEGRADED)


async def test_all_consumers_are_deleted_again_and_again_while_readers_replay_and_events_flow(
    instances: list[GatewayProcess], connection: Connection
) -> None:
    """Replays longer than a page are read by consumers; whoever lost one goes on behind what it has."""
    count, pad = 3000, "x" * 2000
    for first in range(1, count + 1, 500):
        events = [{"type": "t", "data": {**event["data"], "pad": pad}} for event in numbers(500, first)]
        await publish(instances[0].url, "long", events)
    deleted = 0
    over = asyncio.Event()

    async def delete() -> None:
        nonlocal deleted
        while not over.is_set():
            for name in (await api(connection, "CONSUMER.NAMES.RINGMERE_0"))["consumers"] or []:
                answer = await api(connection, f"CONSUMER.DELETE.RINGMERE_0.{name}")
                deleted += bool(answer.get("success"))

    async def replay(stream: Stream) -> None:
        for n in range(1, count + 1):
            [frame] = await stream.take(1)
            assert (frame.type, frame.data["n"]) == ("t", n), frame.raw[:200]
        assert [frame.type for frame in await stream.take(1)] == ["replay_complete"]
        stream.close()

    urls = [instance.url for instance in instances]
    async with scene(thousand_a_second(urls), urls, readers=2) as playing:
        deleting = asyncio.create_task(delete())
        for _ in range(6):
            await asyncio.gather(*[replay(await open_stream(url, "long", 0)) for url in urls])
        over.set()
        await deleting
    assert deleted > 0, "there was nothing to delete"
    playing.complete()
