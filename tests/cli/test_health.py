"""``ringmere doctor --health``: what a container's health check needs, and no more than that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ringmere.core.address import local_url, split_address
from ringmere.embedded import EmbeddedServer, free_port
from support.command import ringmere
from support.gateway import clean_env, gateway

HEAVY = ("aiohttp", "msgspec", "nats", "rich", "structlog", "typer")


def health(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it as an orchestrator would."""
    command = [sys.executable, "-m", "ringmere", "doctor", "--health", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=clean_env(**env), check=False)


async def test_an_instance_that_is_ready_is_healthy_and_one_that_stops_is_not(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance:
        done = await ringmere("doctor", "--health", "--server", instance.url)
        assert (done.code, done.out, done.err) == (0, f"ok {instance.url}/readyz: 200 ok\n", "")
        done = await ringmere("doctor", "--health", "--live", "--json", "--server", instance.url)
        assert done.code == 0
        assert done.lines == [{"level": "ok", "code": "health", "text": f"{instance.url}/livez: 200 ok"}]
        await instance.stop()
        done = await ringmere("doctor", "--health", "--server", instance.url)
        assert done.code == 1
        assert "refused" in done.out


async def test_without_nats_an_instance_is_alive_and_not_ready(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    async with gateway(tmp_path, nats_url=nats_server.url) as instance:
        await nats_server.kill()
        await instance.wait_status("/readyz", 503)
        done = await ringmere("doctor", "--health", "--server", instance.url)
        assert (done.code, done.out) == (1, f"bad {instance.url}/readyz: 503 unavailable\n")
        done = await ringmere("doctor", "--health", "--live", "--server", instance.url)
        assert done.code == 0


async def test_it_finds_the_instance_by_the_variable_that_serve_reads(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance:
        port = instance.url.rpartition(":")[2]
        assert health(RINGMERE_LISTEN=f"0.0.0.0:{port}").returncode == 0
        assert health(RINGMERE_LISTEN=f":{port}").returncode == 0
        assert health("--listen", f"127.0.0.1:{port}", RINGMERE_LISTEN="127.0.0.1:1").returncode == 0
    assert health(RINGMERE_LISTEN=f"127.0.0.1:{free_port()}").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--server", "not a url"], "no URL"),
        (["--listen", "8080"], "HOST:PORT"),
        (["--listen", "127.0.0.1:0"], "--server"),
        (["--nats-url", "nats://127.0.0.1:4222"], "--nats-url"),
    ],
)
def test_what_cannot_be_asked_is_told_in_one_line(arguments: list[str], words: str) -> None:
    done = health(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ringmere: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_it_loads_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys, json; from ringmere.cli import run; "
        "run(['doctor', '--health', '--server', 'http://127.0.0.1:1']); print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, env=clean_env())
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert {name for name in HEAVY if name in loaded} == set()


def test_an_address_of_all_interfaces_is_asked_on_the_loopback() -> None:
    assert local_url(*split_address("0.0.0.0:80")) == "http://127.0.0.1:80"
    assert local_url(*split_address("[::]:80")) == "http://[::1]:80"
    assert local_url(*split_address(":8080")) == "http://127.0.0.1:8080"
    assert local_url(*split_address("[fd00::1]:80")) == "http://[fd00::1]:80"
    assert local_url(*split_address("gateway:80")) == "http://gateway:80"
