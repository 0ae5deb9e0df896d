"""Behind nginx with its default settings: HTTP/1.0 to the instance, responses buffered unless told otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ringmere.embedded import free_port
from support.gateway import GatewayProcess, gateway
from support.proxies import needs_proxies, nginx_arguments, nginx_paths, process
from support.raw_http import fetch
from support.talk import get, has_readers, numbers, open_stream, port_of, publish

pytestmark = needs_proxies

CONFIGURATION = """
events {{ worker_connections 256; }}
http {{
    {paths}
    server {{
        listen 127.0.0.1:{port};
        access_log off;
        location / {{ proxy_pass {target}; }}
    }}
}}
"""


@pytest.fixture
async def instance(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """An instance."""
    async with gateway(tmp_path, "--retry-ms", "100") as running:
        yield running


@pytest.fixture
async def proxy(instance: GatewayProcess, tmp_path: Path) -> AsyncIterator[str]:
    """The address of an nginx before the instance."""
    port = free_port()
    file = tmp_path / "nginx.conf"
    file.write_text(CONFIGURATION.format(paths=nginx_paths(tmp_path), port=port, target=instance.url))

    async def answers() -> bool:
        try:
            return (await fetch(port, "GET", "/livez")).status == 200
        except OSError:
            return False

    async with process("nginx", nginx_arguments(file), tmp_path / "nginx.log", answers):
        yield f"http://127.0.0.1:{port}"


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
