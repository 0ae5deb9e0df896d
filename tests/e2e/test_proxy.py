"""Behind nginx with its default settings: HTTP/1.0 to the instance, responses buffered unless told otherwise."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ringmere.embedded import free_port
from support.gateway import GatewayProcess, gateway
from support.nats import eventually
from support.raw_http import fetch
from support.talk import get, has_readers, numbers, open_stream, port_of, publish

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(
    NGINX is None and os.environ.get("CI") != "true", reason="there is no nginx; .ci/run installs it"
)

CONFIGURATION = """
daemon off;
{user}
worker_processes 1;
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass {target}; {more} }}
    }}
}}
"""
USER = "user root;" if os.geteuid() == 0 else ""
"""Workers of a root's nginx would run as somebody who may not write into the test's directory."""
IMPATIENT = "proxy_read_timeout 1s;"
"""nginx waits a minute for the next byte by default; a test waits less."""


@pytest.fixture
async def instance(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """An instance whose heartbeats come quicker than :data:`IMPATIENT` gives up."""
    async with gateway(tmp_path, "--heartbeat", "0.2s", "--retry-ms", "100") as running:
        yield running


@pytest.fixture
async def proxy(instance: GatewayProcess, tmp_path: Path) -> AsyncIterator[str]:
    """The address of an nginx before the instance."""
    async with nginx(tmp_path, instance.url) as url:
        yield url


@asynccontextmanager
async def nginx(place: Path, target: str) -> AsyncIterator[str]:
    """Run an nginx in the directory ``place`` before ``target``."""
    assert NGINX is not None
    port = free_port()
    file = place / "nginx.conf"
    file.write_text(CONFIGURATION.format(user=USER, place=place, port=port, target=target, more=IMPATIENT))
    process = await asyncio.create_subprocess_exec(
        NGINX, "-e", str(place / "error.log"), "-c", str(file), stdin=asyncio.subprocess.DEVNULL
    )
    try:
        await eventually(lambda: answers(port), "nginx answers")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def answers(port: int) -> bool:
    """Say whether the instance is reached through the proxy."""
    try:
        return (await fetch(port, "GET", "/livez")).status == 200
    except OSError:
        return False


async def test_prx_1_events_pass_a_buffering_proxy_as_they_come(instance: GatewayProcess, proxy: str) -> None:
    stream = await open_stream(proxy, "s")
    assert stream.answer.headers["content-type"] == "text/event-stream"
    assert stream.answer.headers["cache-control"] == "no-cache, no-transform"
    assert "content-length" not in stream.answer.headers
    for number in range(1, 4):
        # The next is published only when the one before is here: nothing can be waiting for a buffer to fill.
        [id_] = await publish(proxy, "s", numbers(1, number))
        [frame] = await stream.take(1)
        assert (frame.id, frame.data) == (id_, {"n": number})
    stream.close()
    await has_readers(instance.url, 0)


async def test_prx_1_a_stream_over_http_1_0_is_the_same_bytes_without_chunk_framing(
    instance: GatewayProcess, proxy: str
) -> None:
    ids = await publish(instance.url, "s", numbers(300))
    await fetch(port_of(instance.url), "DELETE", "/session/s")
    streams = [await open_stream(url, "s", ids[9]) for url in (instance.url, proxy)]
    frames = [[frame.raw.split("\n") for frame in await stream.all()] for stream in streams]
    for one, other in zip(*frames, strict=True):
        assert same(one) == same(other)
    assert [line[0] for line in frames[1][1:-1]] == [f"id: {id_}" for id_ in [*ids[11:], ids[-1] + 1]]
    ended = await get(proxy, "/session/s/events", **{"Last-Event-ID": str(ids[-1] + 1)})
    assert (ended.status, ended.body) == (204, b"")


def same(lines: list[str]) -> list[str]:
    """Return what two streams of one session have in common: not the jittered time, nor a control frame's clock."""
    shown = [line for line in lines if not line.startswith((":", "retry: "))]
    return shown if shown[0].startswith("id: ") else shown[:1]


async def test_prx_2_heartbeats_keep_a_quiet_stream_open_through_an_impatient_proxy(
    instance: GatewayProcess, proxy: str
) -> None:
    stream = await open_stream(proxy, "s", query="?from=start")
    first = await stream.block()
    assert first is not None
    assert first.raw.startswith(":")
    for _ in range(5):
        beat = await stream.block()
        assert beat is not None
        assert beat.raw.startswith(":")
    [id_] = await publish(instance.url, "s", numbers(1))
    [frame] = await stream.take(1)
    assert frame.id == id_
    stream.close()


async def test_prx_2_without_heartbeats_that_proxy_does_cut_a_quiet_stream(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, "--heartbeat", "1h") as instance,
        nginx(tmp_path, instance.url) as proxy,
        asyncio.timeout(10),
    ):
        stream = await open_stream(proxy, "s")
        await stream.block()
        with pytest.raises(asyncio.IncompleteReadError):
            await stream.block()
