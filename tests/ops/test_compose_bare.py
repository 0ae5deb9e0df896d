"""docker-compose.yml in motion: its commands, files, users and health checks, without an engine.

Grafana and the exporters are left out: no package here has them.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from support.compose import Stack
from support.jail import needs_jail
from support.nats import eventually
from support.prometheus import Prometheus, alerts, needs_prometheus
from support.raw_http import Connection, Stream, request_bytes

LONG = 60.0
CLIENT = "127.0.0.77"
"""Where readers come from."""
LEFT_OUT = {"grafana", "exporter-1", "exporter-2", "exporter-3"}
pytestmark = [needs_jail, needs_prometheus, pytest.mark.timeout(300)]


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """All that can run, each on an address of its own."""
    services = Stack(tmp_path, LEFT_OUT)
    try:
        await services.start()
        yield services
    finally:
        await services.kill()


async def publish(http: aiohttp.ClientSession, url: str, first: int, count: int) -> list[int]:
    events = [{"type": "t", "data": {"n": number}} for number in range(first, first + count)]
    async with http.post(f"{url}/session/s/events", json=events) as answer:
        assert answer.status == 201, await answer.text()
        return [row["id"] for row in (await answer.json())["results"]]


async def follow(address: str, cursor: int | None = None) -> Stream:
    """Read the session's stream at port 8080 of an address, coming from :data:`CLIENT`."""
    connection = Connection(*await asyncio.open_connection(address, 8080, local_addr=(CLIENT, 0)))
    headers = {} if cursor is None else {"Last-Event-ID": str(cursor)}
    target = "/session/s/events" + ("?from=start" if cursor is None else "")
    await connection.send(request_bytes("GET", target, headers))
    answer = await connection.head()
    assert answer.status == 200, answer
    return Stream(connection, answer)


async def reading(http: aiohttp.ClientSession, stack: Stack, names: list[str]) -> dict[str, list[str]]:
    """Return the addresses of the session's readers by gateway."""
    found = {}
    for name in names:
        async with http.get(f"http://{stack.addresses[name]}:8080/session/s") as answer:
            found[name] = [reader["client"] for reader in (await answer.json())["readers"]]
    return found


async def test_a_stream_through_the_proxy_outlives_its_gateway_and_prometheus_sees_both(stack: Stack) -> None:
    proxy = f"http://{stack.addresses['proxy']}:8080"
    async with aiohttp.ClientSession() as http:
        await watched_by_prometheus(Prometheus(f"http://{stack.addresses['prometheus']}:9090", http))
        ids = await publish(http, proxy, 1, 10)
        stream = await follow(stack.addresses["proxy"])
        assert [frame.id for frame in await stream.take(10)] == ids
        ids += await publish(http, proxy, 11, 1)
        assert [frame.id for frame in await stream.take(1)] == ids[10:]

        gateways = ["gateway-1", "gateway-2"]
        [(lost, clients)] = [(name, found) for name, found in (await reading(http, stack, gateways)).items() if found]
        assert clients == [CLIENT]
        assert await stack.services[lost].end(signal.SIGKILL) != 0
        with pytest.raises(asyncio.IncompleteReadError):
            await stream.frame()

        # Nobody has told the proxy, so its first tries may meet the dead one: it goes on to the other by itself.
        ids += await publish(http, proxy, 12, 3)
        stream = await follow(stack.addresses["proxy"], ids[10])
        assert [frame.id for frame in await stream.take(3)] == ids[11:]
        [left] = [name for name in gateways if name != lost]
        assert (await reading(http, stack, [left]))[left] == [CLIENT]

        # `docker compose stop` as pid 1 hears it.
        ending = asyncio.create_task(stack.services[left].end(signal.SIGTERM))
        assert (await stream.all())[-1].type == "server_draining"
        assert await ending == 0


async def watched_by_prometheus(prometheus: Prometheus) -> None:
    """Wait until both gateways are scraped; every alert is loaded."""

    async def both() -> bool:
        return await prometheus.ask('up{job="ringmere"}') == [1.0, 1.0]

    await eventually(both, "Prometheus has both gateways", LONG)
    loaded = [rule["name"] for group in (await prometheus.get("rules"))["groups"] for rule in group["rules"]]
    assert loaded == [rule["alert"] for rule in alerts()]
    assert await prometheus.ask("ringmere_log_connected") == [1.0, 1.0]


async def test_a_gateway_that_is_gone_or_has_no_log_is_not_well(stack: Stack) -> None:
    for name in ("nats-1", "nats-2", "nats-3"):
        await stack.services[name].end(signal.SIGKILL)
    gateway = stack.services["gateway-1"]

    async def ill() -> bool:
        return not await gateway.well()

    await eventually(ill, "a gateway without NATS is not well", LONG)
    assert await gateway.end(signal.SIGTERM) == 0
    with pytest.raises(AssertionError, match="gateway-1"):
        await gateway.well()
