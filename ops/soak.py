"""Churn readers and sessions for a long time, and see that an instance ends as it was after the warm-up.

    python -m ops.soak [--minutes 30] [--visitors 100] [--seed 1]

Starts a NATS server and one instance of its own in a temporary directory. Visitors come to sessions that
nobody visits again later, with and without a cursor; they leave politely, by reset, or after not having read at
all. The instance's memory and its tasks are looked at every second. Ends with 1 when either has grown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ops.jobs import run_for

from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection, ConnectOptions

GROWTH_ALLOWED = 0.10
GROWTH_FLOOR = 16 * 1024 * 1024
TASKS_ALLOWED = 8
SESSIONS_AT_A_TIME = 50
EVENTS_A_SECOND = 400


@dataclass
class Samples:
    """What was seen of the instance: seconds since the start, memory in bytes, tasks."""

    at: list[float] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)

    def medians(self, begin: float, end: float) -> tuple[float, float]:
        rows = [index for index, at in enumerate(self.at) if begin <= at <= end]
        return (
            statistics.median(self.rss[index] for index in rows),
            statistics.median(self.tasks[index] for index in rows),
        )


class Soak:
    """One run on one instance."""

    def __init__(self, url: str, pid: int, nats: Connection, seed: int) -> None:
        self.host, self.port = urlsplit(url).hostname, urlsplit(url).port
        self.url, self.pid, self.nats = url, pid, nats
        self.random = random.Random(seed)
        self.generation = 0
        self.visits = 0
        self.events = 0
        self.samples = Samples()
        self.began = time.monotonic()

    def session(self) -> str:
        return f"soak-{self.generation}-{self.random.randrange(SESSIONS_AT_A_TIME)}"

    async def turn_over(self) -> None:
        """Leave all sessions for new ones now and then."""
        while True:
            await asyncio.sleep(2)
            self.generation += 1

    async def publish(self) -> None:
        while True:
            size = self.random.choice((50, 200, 200, 2000, 20_000))
            payload = json.dumps({"type": "t", "data": "x" * size}).encode()
            await self.nats.request(f"ringmere.events.0.{self.session()}", payload, timeout=10)
            self.events += 1
            await asyncio.sleep(1 / EVENTS_A_SECOND)

    async def visit(self) -> None:
        """Come, stay a while, and leave in one of the ways in which people leave."""
        while True:
            cursor = self.random.choice(("", "", "Last-Event-ID: 0\r\n", "Last-Event-ID: 1\r\n"))
            reader, writer = await asyncio.open_connection(self.host, self.port)
            request = f"GET /session/{self.session()}/events HTTP/1.1\r\nHost: soak\r\n{cursor}\r\n"
            writer.write(request.encode())
            end = time.monotonic() + self.random.uniform(0.05, 3)
            reads = self.random.random() < 0.8
            while (left := end - time.monotonic()) > 0:
                if not reads:
                    await asyncio.sleep(left)
                    break
                try:
                    if not await asyncio.wait_for(reader.read(65536), left):
                        break
                except (TimeoutError, ConnectionError):
                    break
            if self.random.random() < 0.5:
                writer.transport.abort()
            else:
                writer.close()
            self.visits += 1

    async def watch(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(1)

    async def sample(self) -> None:
        health = await asyncio.to_thread(fetch_json, self.url + "/healthz")
        self.samples.at.append(time.monotonic() - self.began)
        self.samples.rss.append(resident(self.pid))
        self.samples.tasks.append(health["tasks"])

    async def run(self, seconds: float, visitors: int) -> None:
        """Churn for the time given."""
        jobs = [self.turn_over(), self.publish(), self.watch(), *(self.visit() for _ in range(visitors))]
        await run_for(seconds, jobs)


def resident(pid: int) -> int:
    """Return a process's resident memory in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def fetch_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def judge(samples: Samples, seconds: float, idle_tasks: int, end_tasks: int) -> tuple[list[str], dict[str, float]]:
    """Compare the time after the warm-up with the last of it; return the faults and the figures."""
    warm, width = seconds / 10, seconds / 10
    rss_then, tasks_then = samples.medians(warm, warm + width)
    rss_now, tasks_now = samples.medians(seconds - width, seconds)
    figures = {
        "rss_then": rss_then, "rss_now": rss_now, "tasks_then": tasks_then, "tasks_now": tasks_now,
        "idle_tasks": idle_tasks, "end_tasks": end_tasks,
    }  # fmt: skip
    faults = []
    if rss_now - rss_then > max(GROWTH_FLOOR, rss_then * GROWTH_ALLOWED):
        faults.append(f"memory grew from {rss_then / 1e6:.1f} to {rss_now / 1e6:.1f} MB")
    if tasks_now - tasks_then > TASKS_ALLOWED:
        faults.append(f"tasks grew from {tasks_then:g} to {tasks_now:g}")
    if end_tasks > idle_tasks + TASKS_ALLOWED:
        faults.append(f"{end_tasks} tasks are left without readers, {idle_tasks} were there before the first")
    return faults, figures


async def start_instance(nats_url: str) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ringmere", "serve", "--listen", "127.0.0.1:0", "--nats-url", nats_url,
        "--ring-size", "200", "--log-level", "error", "--drain-grace", "1s",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    url = line.split()[2]
    end = time.monotonic() + 30
    while (await asyncio.to_thread(ready, url)) is False:
        if time.monotonic() > end:
            raise RuntimeError(f"the instance did not get ready: {line}")
        await asyncio.sleep(0.1)
    return process, url


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


async def until_empty(url: str, seconds: float = 30) -> int:
    """Return the number of tasks once no session is live any more."""
    end = time.monotonic() + seconds
    while True:
        health = await asyncio.to_thread(fetch_json, url + "/healthz")
        if health["sessionsLive"] == 0 or time.monotonic() > end:
            return int(health["tasks"])
        await asyncio.sleep(0.25)


async def soak(seconds: float, visitors: int, seed: int) -> tuple[list[str], dict[str, float]]:
    """Run everything and return the faults and the figures."""
    with tempfile.TemporaryDirectory() as directory:
        server = EmbeddedServer(Path(directory))
        await server.start()
        process, url = await start_instance(server.url)
        nats = await Connection.open(ConnectOptions(servers=(server.url,)))
        try:
            idle = int((await asyncio.to_thread(fetch_json, url + "/healthz"))["tasks"])
            run = Soak(url, process.pid, nats, seed)
            await run.run(seconds, visitors)
            end_tasks = await until_empty(url)
            faults, figures = judge(run.samples, seconds, idle, end_tasks)
            return faults, {**figures, "visits": run.visits, "events": run.events, "seconds": seconds}
        finally:
            await nats.close()
            process.terminate()
            await process.wait()
            await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--visitors", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    faults, figures = asyncio.run(soak(arguments.minutes * 60, arguments.visitors, arguments.seed))
    for name, value in figures.items():
        print(f"{name:12} {value:,.0f}")
    for fault in faults:
        print(f"fault: {fault}")
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
