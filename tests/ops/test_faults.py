"""Real faults at a real gateway, a real Prometheus with the shipped alerts in a shorter time: the right one fires."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import yaml

from ringmere.embedded import EmbeddedServer
from support.gateway import GatewayProcess, gateway
from support.nats import api, append, connected, eventually
from support.processes import children
from support.prometheus import ALERTS, Prometheus, needs_prometheus, prometheus

pytestmark = needs_prometheus


def in_a_second(directory: Path) -> Path:
    """Write the shipped alerts so that they wait a second instead of minutes; return where."""
    rules = yaml.safe_load(ALERTS.read_text())
    for rule in rules["groups"][0]["rules"]:
        if "for" in rule:
            rule["for"] = "1s"
    path = directory / "alerts.yml"
    path.write_text(yaml.safe_dump(rules))
    return path


@asynccontextmanager
async def watched(
    directory: Path, nats: EmbeddedServer, *flags: str
) -> AsyncIterator[tuple[GatewayProcess, Prometheus]]:
    """Run a gateway and a Prometheus that has seen it and fires nothing."""
    async with gateway(directory / "gateway", *flags, nats_url=nats.url) as instance:
        targets = {"ringmere": urlsplit(instance.url).netloc}
        async with prometheus(directory / "prometheus", targets, in_a_second(directory)) as ask:
            await eventually(lambda: seen(ask), "the gateway has been scraped", 30.0)
            await fires(ask, set())
            yield instance, ask


async def seen(ask: Prometheus) -> bool:
    return len(await ask.ask("ringmere_log_connected == 1 and on () count_over_time(up[1m]) > 2")) == 1


async def fires(ask: Prometheus, names: set[str]) -> None:
    """Wait until exactly these alerts fire."""

    async def does() -> bool:
        return await ask.firing() == names

    await eventually(does, f"exactly {names or 'nothing'} fires", 30.0)


async def test_the_loss_of_nats_is_told_and_its_end_and_then_the_loss_of_the_gateway(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    async with watched(tmp_path, nats_server) as (instance, ask):
        await nats_server.kill()
        await fires(ask, {"RingmereLogDisconnected"})
        await nats_server.start()
        await fires(ask, set())
        await instance.kill()
        await fires(ask, {"RingmereDown"})


async def test_publishes_that_fail_and_a_message_that_is_no_event_are_told(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    async with watched(tmp_path, nats_server) as (instance, ask), aiohttp.ClientSession() as http:
        events = f"{instance.url}/session/s1/events"
        async with http.post(events, json={"type": "note", "data": 1}) as answer:
            assert answer.status == 201
        async with connected(nats_server) as nats:
            await append(nats, "ringmere.events.0.s1", b"no JSON")
        async with http.get(f"{events}?from=start") as stream:
            assert await stream.content.readuntil(b"\n\n")
            await fires(ask, {"RingmereSkippedMessages"})
            await nats_server.kill()
            await instance.wait_status("/readyz", 503)
            for _ in range(20):
                async with http.post(events, json={"type": "note", "data": 1}) as answer:
                    assert answer.status == 503
            await fires(ask, {"RingmereSkippedMessages", "RingmereLogDisconnected", "RingmerePublishFailing"})


async def test_clients_that_were_away_too_long_and_a_worker_that_dies_are_told(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    flags = ("--workers", "2", "--ring-size", "20")
    async with watched(tmp_path, nats_server, *flags) as (instance, ask), aiohttp.ClientSession() as http:
        events = f"{instance.url}/session/s1/events"
        batch = [{"type": "note", "data": number} for number in range(40)]
        async with http.post(events, json=batch) as answer:
            assert answer.status == 201
        for _ in range(15):
            async with http.get(f"{events}?last_event_id=1") as stream:
                assert b"state_resync_required" in await stream.content.readuntil(b"\n\n")
        await fires(ask, {"RingmereResyncsHigh"})
        os.kill((await children(instance.pid))[0], signal.SIGKILL)
        await fires(ask, {"RingmereResyncsHigh", "RingmereWorkersDying"})


async def test_a_shard_whose_stream_is_gone_is_told_and_the_epoch_of_the_next_one(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    async with watched(tmp_path, nats_server) as (instance, ask), aiohttp.ClientSession() as http:
        events = f"{instance.url}/session/s1/events"
        async with connected(nats_server) as nats:
            assert (await api(nats, "STREAM.DELETE.RINGMERE_0"))["success"]
        for _ in range(10):
            async with http.post(events, json={"type": "note", "data": 1}) as answer:
                assert answer.status == 503
        await fires(ask, {"RingmereLogDegraded", "RingmerePublishFailing"})
        async with gateway(tmp_path / "another", nats_url=nats_server.url):
            await fires(ask, {"RingmereEpochChanged", "RingmerePublishFailing"})
