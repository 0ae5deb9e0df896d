"""An installation under a load that shows something on every panel, watched by a Prometheus.

Two gateways on one NATS, each with a data centre's name; next to it a NATS server with a gateway and a leaf node, so
that there is something between data centres.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from ops.jobs import run_for
from ops.prometheus.nats_exporter import exporter
from ops.prometheus.process import running

from ringmere.core.errors import LogUnavailable
from ringmere.embedded import EmbeddedServer, free_port, server_binary
from ringmere.log.connect import Connection, ConnectOptions

SCRAPE_EVERY = 2
SESSIONS = 6
EVENTS_A_SECOND = 150
READERS = 60
GATEWAY = (
    "serve", "--listen", "127.0.0.1:0", "--ring-size", "300", "--drain-grace", "4s", "--coalesce", "chunk=/data/text",
    "--write-timeout", "20s", "--breaker-pause", "0.5s", "--log-level", "error", "--max-queued-bytes", "256KiB",
)  # fmt: skip


class Gateway:
    """One instance that can be started again at the same address."""

    def __init__(self, nats_url: str, workers: int) -> None:
        self._command = [sys.executable, "-m", "ringmere", *GATEWAY, "--nats-url", nats_url, "--workers", str(workers)]
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""

    async def start(self) -> None:
        """Start it and return when its door is open."""
        if self.url:
            self._command[self._command.index("--listen") + 1] = self.url.removeprefix("http://")
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        self.url = line.split()[2]

    async def stop(self) -> None:
        """Let it say goodbye and wait for its end."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


@asynccontextmanager
async def linked(directory: Path, leaf: int) -> AsyncIterator[str]:
    """Run a server that takes leaf nodes at port ``leaf`` and has a gateway to another one; yield its monitoring."""
    near, far, monitor = free_port(), free_port(), free_port()
    configs = {
        "near": f"""
            accounts {{ SYS {{ users: [{{ user: system, password: system }}] }} }}
            system_account: SYS
            leafnodes {{ listen: "127.0.0.1:{leaf}" }}
            http: "127.0.0.1:{monitor}"
            gateway {{ name: near, listen: "127.0.0.1:{near}" }}""",
        "far": f"""
            gateway {{ name: far, listen: "127.0.0.1:{far}"
              gateways: [{{ name: near, urls: ["nats://127.0.0.1:{near}"] }}] }}""",
    }
    processes = []
    try:
        for name, text in configs.items():
            config = directory / f"{name}.conf"
            config.write_text(f'listen: "127.0.0.1:-1"\nserver_name: {name}\n{text}\n')
            command = (server_binary(), "-c", str(config), "-l", str(directory / f"{name}.log"))
            processes.append(await asyncio.create_subprocess_exec(*command))
        yield f"http://127.0.0.1:{monitor}"
    finally:
        for process in processes:
            process.kill()
            await process.wait()


@asynccontextmanager
async def loaded_prometheus(seconds: float) -> AsyncIterator[tuple[str, float]]:
    """Load an installation for ``seconds``; yield the address of the Prometheus that saw it, and when it began."""
    async with AsyncExitStack() as house:
        directory = Path(house.enter_context(tempfile.TemporaryDirectory()))
        monitor, leaf = f"127.0.0.1:{free_port()}", free_port()
        links = await house.enter_async_context(linked(directory, leaf))
        extra = f'http: "{monitor}"\nleafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{leaf}" }}] }}'
        nats = EmbeddedServer(directory / "nats", extra=extra)
        house.push_async_callback(nats.stop)
        await nats.start()
        exported = await house.enter_async_context(exporter(f"http://{monitor}", links))
        gateways = [Gateway(nats.url, 1), Gateway(nats.url, 2)]
        for each in gateways:
            house.push_async_callback(each.stop)
            await each.start()
        targets = {"ringmere": [each.url.removeprefix("http://") for each in gateways], "nats": [exported]}
        url = await house.enter_async_context(running(directory / "prometheus", _scraping(targets)))
        began = time.time()
        await _load(seconds, [each.url for each in gateways], nats, gateways[1])
        yield url, began


def _scraping(targets: dict[str, list[str]]) -> dict[str, Any]:
    """Return the configuration of a Prometheus in which each target of a job is a data centre."""
    sites = ("east", "west")
    return {
        "global": {"scrape_interval": f"{SCRAPE_EVERY}s", "scrape_timeout": f"{SCRAPE_EVERY}s"},
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [
                    {"targets": [each], "labels": {"datacentre": site}}
                    for each, site in zip(found, sites, strict=False)
                ],
            }
            for job, found in targets.items()
        ],
    }


async def _load(seconds: float, urls: list[str], nats: EmbeddedServer, restarted: Gateway) -> None:
    connection = await Connection.open(ConnectOptions(servers=(nats.url,)))
    limits, patience = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    try:
        async with aiohttp.ClientSession(connector=limits, timeout=patience) as http:
            jobs: list[Coroutine[Any, Any, None]] = [
                _publish(http, urls), _spoil(connection), _trouble(seconds, nats, restarted),
                *(_follow(http, urls, _session()) for _ in range(READERS)),
                *(_dawdle(urls, query) for query in SLOW for _ in range(3)),
                *(_come_back(http, urls) for _ in range(5)),
            ]  # fmt: skip
            await run_for(seconds, jobs)
    finally:
        await connection.close()


SLOW = ("", "?maxQueued=16", "?overflow=catchup&maxQueued=16", "?coalesce=1&maxQueued=64")


def _session() -> str:
    return f"sheet-{random.randrange(SESSIONS)}"


async def _publish(http: aiohttp.ClientSession, urls: list[str]) -> None:
    while True:
        kind, size = random.choice((("note", 50), ("note", 400), ("chunk", 30), ("chunk", 30), ("blob", 30_000)))
        events = [{"type": kind, "data": {"text": "x" * size}}] * 5
        with contextlib.suppress(aiohttp.ClientError):
            headers = {"Degraded": "allow"}
            async with http.post(f"{random.choice(urls)}/session/{_session()}/events", json=events, headers=headers):
                pass
        await asyncio.sleep(5 / EVENTS_A_SECOND)


async def _spoil(connection: Connection) -> None:
    """Store now and then what is no event."""
    while True:
        with contextlib.suppress(LogUnavailable):
            await connection.request(f"ringmere.events.0.{_session()}", b"no event")
        await asyncio.sleep(5)


async def _trouble(seconds: float, nats: EmbeddedServer, restarted: Gateway) -> None:
    """Restart a gateway after a third of the time, and freeze NATS for a moment after two thirds."""
    await asyncio.sleep(seconds / 3)
    await restarted.stop()
    await restarted.start()
    await asyncio.sleep(seconds / 3)
    nats.send_signal(signal.SIGSTOP)
    await asyncio.sleep(7)
    nats.send_signal(signal.SIGCONT)
    await asyncio.Event().wait()


async def _follow(http: aiohttp.ClientSession, urls: list[str], session: str) -> None:
    """Read like a good client: from the last id on, at any gateway."""
    last = ""
    while True:
        with contextlib.suppress(aiohttp.ClientError):
            headers = {"Last-Event-ID": last} if last else {}
            async with http.get(f"{random.choice(urls)}/session/{session}/events", headers=headers) as answer:
                async for line in answer.content:
                    if line.startswith(b"id: "):
                        last = line[4:].strip().decode()
        await asyncio.sleep(random.uniform(0.2, 1.5))


async def _come_back(http: aiohttp.ClientSession, urls: list[str]) -> None:
    """Return after too long, with a cursor from the beginning, or with one that is none."""
    while True:
        cursor = random.choice(("1", "0", "1099511627776000", "x"))
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(random.uniform(1, 3)):
                async with http.get(
                    f"{random.choice(urls)}/session/{_session()}/events?last_event_id={cursor}"
                ) as answer:
                    async for _ in answer.content:
                        pass


async def _dawdle(urls: list[str], query: str) -> None:
    """Read nothing for a while, then a lot, and go."""
    loop = asyncio.get_running_loop()
    while True:
        host, port = random.choice(urls).removeprefix("http://").split(":")
        with socket.socket() as sock, contextlib.suppress(OSError, TimeoutError):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
            await loop.sock_connect(sock, (host, int(port)))
            request = f"GET /session/{_session()}/events{query} HTTP/1.1\r\nHost: sheet\r\n\r\n"
            await loop.sock_sendall(sock, request.encode())
            await asyncio.sleep(random.uniform(10, 30))
            async with asyncio.timeout(10):
                while await loop.sock_recv(sock, 65536):
                    pass
        await asyncio.sleep(1)
