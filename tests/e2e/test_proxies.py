"""The shipped proxies, each in front of two instances that share a log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ringmere.embedded import EmbeddedServer
from support.gateway import GatewayProcess, gateway
from support.proxies import NAMES, Proxy, needs_proxies, proxy
from support.talk import numbers, publish
from support.versions import reading

pytestmark = needs_proxies


@pytest.fixture
async def instances(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[list[GatewayProcess]]:
    """Two instances that believe a proxy on this machine."""
    flags = ("--trusted-proxy", "127.0.0.0/8", "--retry-ms", "100")
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(gateway(tmp_path, *flags, nats_url=nats_server.url)) for _ in range(2)]


@pytest.fixture(params=NAMES)
async def front(
    request: pytest.FixtureRequest, instances: list[GatewayProcess], tmp_path: Path
) -> AsyncIterator[Proxy]:
    """Each of the proxies before the instances."""
    async with proxy(request.param, tmp_path, [each.url for each in instances]) as running:
        yield running


async def test_prx_1_events_pass_each_proxy_as_they_come_over_each_version_of_http(front: Proxy) -> None:
    versions = ("1.1", "2", "3") if front.name == "caddy" else ("1.1", "2")
    for version in versions:
        session = f"v{version[0]}"
        async with reading(front, version, f"/session/{session}/events", {"Accept-Encoding": "gzip"}) as stream:
            assert stream.headers["content-type"] == "text/event-stream"
            assert "content-encoding" not in stream.headers
            for number in range(1, 4):
                # The next is published only when the one before is here: nothing can be waiting for a buffer to fill.
                [id_] = await publish(front.url, session, numbers(1, number))
                event = await stream.next()
                assert (event["id"], event["data"]) == (id_, {"n": number})
