"""An instance as a process: how it starts, when it refuses to, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from ringmere.embedded import EmbeddedServer, free_port
from support.command import ringmere
from support.gateway import gateway
from support.processes import children, gone

NOTE = {"type": "note", "data": 1}


class WithoutJetStream(EmbeddedServer):
    """A nats-server that has no JetStream."""

    def configuration(self) -> str:
        return f'server_name: "{self.name}"\nlisten: "127.0.0.1:{self.port}"\n'


@asynccontextmanager
async def nats(server: EmbeddedServer) -> AsyncIterator[EmbeddedServer]:
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


async def post(url: str, session: str, event: dict[str, Any]) -> tuple[int, dict[str, Any], str | None]:
    async with aiohttp.ClientSession() as http, http.post(f"{url}/session/{session}/events", json=event) as answer:
        return answer.status, await answer.json(), answer.headers.get("Retry-After")


async def refused(*flags: str) -> str:
    """Run ``serve`` that must refuse to start; return its one line."""
    done = await ringmere("serve", "--listen", "127.0.0.1:0", *flags, deadline=30.0)
    lines = [line for line in done.err.splitlines() if line.startswith("ringmere: ")]
    assert done.code == 2, done
    assert len(lines) == 1, done.err
    assert "Traceback" not in done.err
    return lines[0]


async def test_it_prints_the_port_it_took_and_its_event_loop(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance:
        assert await instance.status("/livez") == 200
        assert "uvloop" in instance.output
        assert not instance.url.endswith(":0")
        assert instance.url in instance.output


async def test_sigterm_ends_it_with_0_and_its_nats_server_with_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance:
        [child] = await children(instance.pid)
        assert await instance.stop() == 0
        assert await gone(child)


async def test_ctrl_c_ends_it_with_0(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance:
        instance.signal(signal.SIGINT)
        assert await instance.wait() == 0


async def test_a_killed_instance_leaves_no_nats_server_behind(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance:
        [child] = await children(instance.pid)
        await instance.kill()
        assert await gone(child)


async def test_events_survive_a_kill_and_a_new_start(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance:
        assert (await post(instance.url, "s", NOTE))[1]["id"] == 1
        await instance.kill()
        await instance.start()
        assert (await post(instance.url, "s", NOTE))[1]["id"] == 2
        seen = await ringmere("tail", "s", "--from", "start", "--count", "2", "--json", server=instance.url)
        assert [line["id"] for line in seen.lines if "id" in line] == [1, 2]


async def test_its_nats_server_is_started_again_when_it_dies(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance:
        await post(instance.url, "s", NOTE)
        [child] = await children(instance.pid)
        os.kill(child, signal.SIGKILL)
        await instance.wait_status("/readyz", 503)
        await instance.wait_status("/readyz", 200)
        assert (await post(instance.url, "s", NOTE))[1]["id"] == 2


async def read_to_end(http: aiohttp.ClientSession, url: str, opened: asyncio.Semaphore) -> str:
    async with http.get(url) as stream:
        opened.release()
        return (await stream.read()).decode()


async def test_lif_3_ten_open_streams_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance, aiohttp.ClientSession() as http:
        opened = asyncio.Semaphore(0)
        streams = [
            asyncio.create_task(read_to_end(http, f"{instance.url}/session/s{n}/events", opened)) for n in range(10)
        ]
        for _ in streams:
            await asyncio.wait_for(opened.acquire(), 10)
        instance.signal(signal.SIGTERM)
        assert await instance.wait(deadline=5.0) == 0
        bodies = await asyncio.gather(*streams)
        assert all("event: server_draining" in body for body in bodies)
        assert "destroyed" not in instance.output
        assert "Traceback" not in instance.output


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, "--drain-grace", "10m") as instance, aiohttp.ClientSession() as http:
        opened = asyncio.Semaphore(0)
        streams = [
            asyncio.create_task(read_to_end(http, f"{instance.url}/session/s/events", opened)) for _ in range(20)
        ]
        for _ in streams:
            await asyncio.wait_for(opened.acquire(), 10)
        instance.signal(signal.SIGTERM)
        await instance.wait_status("/readyz", 503)
        instance.signal(signal.SIGTERM)
        assert await instance.wait(deadline=10.0) == 0
        await asyncio.gather(*streams, return_exceptions=True)


async def first_block(url: str) -> str:
    async with aiohttp.ClientSession() as http, http.get(url) as stream:
        assert stream.status == 200
        return (await asyncio.wait_for(stream.read(), 10)).decode()


async def test_without_nats_the_door_is_open_and_says_so_until_nats_is_there(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "nats", port=free_port())
    async with gateway(tmp_path, nats_url=server.url, ready=False) as instance:
        assert await instance.status("/livez") == 200
        assert await instance.status("/readyz") == 503
        status, problem, retry_after = await post(instance.url, "s", NOTE)
        assert (status, problem["code"]) == (503, "log_unavailable")
        assert retry_after is not None
        body = await first_block(f"{instance.url}/session/s/events")
        assert "event: stream_error" in body
        assert "retry: " in body
        assert json.loads(body.split("data: ", 1)[1].splitlines()[0])["data"]["errorKind"] == "log_unavailable"
        await instance.wait_for(lambda: "waiting_for_nats" in instance.output, 15.0, "line about NATS")
        assert server.url in instance.output
        async with nats(server):
            await instance.wait_status("/readyz", 200)
            assert (await post(instance.url, "s", NOTE))[0] == 201


async def test_wrong_credentials_are_refused_with_code_2(tmp_path: Path) -> None:
    extra = 'authorization { user: "right", password: "secret" }'
    async with nats(EmbeddedServer(tmp_path, extra=extra)) as server:
        line = await refused("--nats-url", server.url.replace("//", "//wrong:hunter2@"))
        assert "credentials" in line.lower() or "authorization" in line.lower()
        assert "hunter2" not in line


async def test_a_server_without_jetstream_is_refused_with_code_2(tmp_path: Path) -> None:
    async with nats(WithoutJetStream(tmp_path)) as server:
        assert "JetStream" in await refused("--nats-url", server.url)


async def test_streams_of_another_shape_are_refused_and_changed_only_when_asked(tmp_path: Path) -> None:
    async with nats(EmbeddedServer(tmp_path / "nats")) as server:
        async with gateway(tmp_path, "--ring-size", "5", nats_url=server.url):
            pass
        line = await refused("--nats-url", server.url, "--ring-size", "6")
        assert "another shape" in line
        assert "--reconcile" in line
        async with gateway(tmp_path, "--ring-size", "6", "--reconcile", nats_url=server.url):
            pass


async def test_another_number_of_shards_is_always_refused(tmp_path: Path) -> None:
    async with nats(EmbeddedServer(tmp_path / "nats")) as server:
        async with gateway(tmp_path, "--shards", "2", nats_url=server.url):
            pass
        assert "shards" in await refused("--nats-url", server.url, "--shards", "3")
        assert "shards" in await refused("--nats-url", server.url, "--shards", "1", "--reconcile")


async def test_a_taken_port_is_refused_with_code_2(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance:
        done = await ringmere(
            "serve", "--listen", instance.url.removeprefix("http://"), "--embedded", "--data-dir", str(tmp_path / "b")
        )
        assert done.code == 2
        assert "--listen" in done.err.splitlines()[-1]


async def test_a_data_directory_that_cannot_be_one_is_refused_with_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "embedded NATS" in await refused("--embedded", "--data-dir", str(tmp_path / "file"))


async def test_a_data_directory_in_use_is_refused_with_code_2(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance:
        assert "another instance uses" in await refused("--embedded", "--data-dir", str(tmp_path / "data"))
        assert (await post(instance.url, "s", NOTE))[0] == 201


async def test_a_context_that_does_not_exist_is_refused_with_code_2() -> None:
    assert "nowhere" in await refused("--nats-context", "nowhere")


def test_the_file_limit_is_raised_to_what_is_allowed() -> None:
    program = "from ringmere.process import raise_file_limit; print(raise_file_limit())"
    command = f"ulimit -Sn 300 && ulimit -Hn 900 && exec {sys.executable} -c '{program}'"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "900\n"
