"""How each fault is put in and ended: context managers over a site."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from ops.gameday.crowd import Crowd, come_back, flood
from ops.gameday.site import Site

from ringmere.core.limits import MIB
from ringmere.fleet.gateways import Gateway
from ringmere.log.api import call
from ringmere.log.shards import event_subject, stream_name

WITHIN, LOOK = 60.0, 0.05
"""Seconds in which an installation must show what a fault does to it, and between two looks."""
LOADED = "gameday-0"
"""A session that the load publishes to and reads."""
QUEUED = 'ringmere_backlog_bytes{of="all"}'


async def _say(gateways: Sequence[Gateway], status: str) -> None:
    """Wait until the health of each of the gateways is ``status``."""
    async with aiohttp.ClientSession() as http, asyncio.timeout(WITHIN):
        for gateway in gateways:
            while True:
                if await _health(http, gateway.url) == status:
                    break
                await asyncio.sleep(LOOK)


async def _health(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(f"{url}/healthz") as answer:
        return str((await answer.json())["status"])


@asynccontextmanager
async def one_node_away(site: Site) -> AsyncIterator[None]:
    """Kill the node of three that does not lead the stream, and wait as long as any alert would take."""
    nodes = site.fleet.nodes
    leader = await nodes.leader()
    node = next(node for node in nodes.nodes if node is not leader)
    await node.kill()
    await asyncio.sleep(600 / site.factor)
    yield
    await nodes.start_again(node)
    await nodes.settled()


@asynccontextmanager
async def no_quorum(site: Site) -> AsyncIterator[None]:
    """Kill two of three nodes."""
    nodes = site.fleet.nodes
    away = nodes.nodes[1:]
    for node in away:
        await node.kill()
    yield
    for node in away:
        await nodes.start_again(node)


@asynccontextmanager
async def nats_away(site: Site) -> AsyncIterator[None]:
    """Kill all nodes."""
    nodes = site.fleet.nodes
    await asyncio.gather(*(node.kill() for node in nodes.nodes))
    yield
    await asyncio.gather(*(nodes.start_again(node) for node in nodes.nodes))


@asynccontextmanager
async def disk_full(site: Site) -> AsyncIterator[None]:
    """Fill the disk up; make room and restart the server."""
    ballast = site.disk / "ballast"
    await asyncio.to_thread(_fill, ballast)
    yield
    ballast.unlink()
    [node] = site.fleet.nodes.nodes
    await node.kill()
    await site.fleet.nodes.start_again(node)


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            return


@asynccontextmanager
async def nats_stalls(site: Site) -> AsyncIterator[None]:
    """Stop a single server four times, until a gateway finds that nothing is stored."""
    [node] = site.fleet.nodes.nodes
    first = site.fleet.gateways[:1]
    for _ in range(4):
        node.send_signal(signal.SIGSTOP)
        trying = [asyncio.create_task(_publish_once(site.door)) for _ in range(8)]
        try:
            await _say(first, "degraded")
        finally:
            node.send_signal(signal.SIGCONT)
            await asyncio.gather(*trying)
        await _say(site.fleet.gateways, "ok")
    yield


async def _publish_once(url: str) -> None:
    """Publish like somebody who takes any answer for one."""
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/session/tried/events", json={"type": "t", "data": 1}) as answer,
    ):
        await answer.read()


@asynccontextmanager
async def stream_deleted(site: Site) -> AsyncIterator[None]:
    """Delete the stream; start an instance that makes it anew."""
    connection = await site.nats()
    try:
        await call(connection, f"STREAM.DELETE.{stream_name(0)}")
    finally:
        await connection.close()
    yield
    await site.another_gateway()


@asynccontextmanager
async def gateway_killed(site: Site) -> AsyncIterator[None]:
    """Kill a gateway."""
    gateway = site.fleet.gateways[0]
    await gateway.kill()
    yield
    await gateway.start()


@asynccontextmanager
async def gateway_frozen(site: Site) -> AsyncIterator[None]:
    """Stop a gateway for longer than NATS waits before it cuts a slow client off."""
    gateway = site.fleet.gateways[0]
    gateway.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(13)
        yield
    finally:
        gateway.signal(signal.SIGCONT)


@asynccontextmanager
async def slow_link(site: Site) -> AsyncIterator[None]:
    """Hold back what NATS sends to the gateways."""
    site.link.delay = 1.5
    yield
    site.link.delay = 0.0


@asynccontextmanager
async def readers_take_nothing(site: Site) -> AsyncIterator[None]:
    """Flood a session whose readers read nothing."""
    crowd = Crowd(site.door, ["crowd"], 40, sits=10)
    site.names["SESSION"] = "crowd"
    await crowd.come()
    flooding = asyncio.create_task(_again_and_again(site.door))
    try:
        yield
        if flooding.done():
            flooding.result()
    finally:
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        await crowd.go()


async def _again_and_again(url: str) -> None:
    while True:
        await flood(url, ["crowd"], 40_000, 20)
        await asyncio.sleep(1)


@asynccontextmanager
async def proxy_stands_still(site: Site) -> AsyncIterator[None]:
    """Have many readers take nothing until their backlogs are large, then read on."""
    sessions = [f"crowd-{number}" for number in range(4)]
    crowd = Crowd(site.door, sessions, 60, sits=600)
    await crowd.come()
    try:
        async with asyncio.timeout(WITHIN):
            while await site.counted(QUEUED) < 300 * MIB:
                await flood(site.door, sessions, 40_000, 10)
                # A scrape later it is seen.
                await asyncio.sleep(1)
        yield
        crowd.read_on()
        await site.until(lambda queued: queued < MIB, QUEUED, WITHIN)
    finally:
        await crowd.go()


@asynccontextmanager
async def away_too_long(site: Site) -> AsyncIterator[None]:
    """Come back with the id of an event that the ring does not hold any more."""
    site.names["SESSION"] = LOADED
    # Until the ring does not hold the first event any more.
    await asyncio.sleep(15)
    await come_back(site.door, LOADED, 1, 30)
    yield


@asynccontextmanager
async def foreign_publisher(site: Site) -> AsyncIterator[None]:
    """Store what is no event."""
    connection = await site.nats()
    try:
        await connection.request(event_subject(0, LOADED), b"temperature=21.5")
    finally:
        await connection.close()
    yield


@asynccontextmanager
async def worker_killed(site: Site) -> AsyncIterator[None]:
    """Kill a worker."""
    pid = site.fleet.gateways[0].pid
    children = await asyncio.to_thread(Path(f"/proc/{pid}/task/{pid}/children").read_text)
    os.kill(int(children.split()[0]), signal.SIGKILL)
    yield
