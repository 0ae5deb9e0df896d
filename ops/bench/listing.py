"""What lists of sessions cost: ``python -m ops.bench.listing [--sessions N] [--repeats N]``.

Fills a log with sessions, then asks for pages one after the other while a second connection asks ``/livez`` all the
time: its longest wait is the longest that the gateway's loop was held, the machine's other work included.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import machine
from .rig import RINGMERE, BenchError, Stack, build_tools, publish, stack

PREFIX = "session-0123456789abcdef-"
"""Makes ids as long as those that people use."""
LARGEST = 1000
"""The largest page that there is."""
PAUSE = 0.002
"""Seconds between two looks of the probe."""


class Probe(threading.Thread):
    """Asks whether the process answers, all the time."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._over = threading.Event()
        self.waits: list[float] = []

    def run(self) -> None:
        while not self._over.wait(PAUSE):
            begin = time.perf_counter()
            ask(self._connection, "/livez")
            self.waits.append(time.perf_counter() - begin)

    def end(self) -> None:
        self._over.set()
        self.join()
        self._connection.close()


def ask(connection: http.client.HTTPConnection, path: str) -> dict[str, Any]:
    """Return the JSON object at a path."""
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise BenchError(f"{path} was answered {response.status}: {body[:200]!r}")
    found: dict[str, Any] = json.loads(body)
    return found


def measured(on: Stack, label: str, act: Callable[[], list[float]]) -> str:
    """Return a row about what ``act`` does: it returns the seconds of each page."""
    probe = Probe(on.port)
    probe.start()
    gateway, nats = machine.cpu_seconds(on.gateway.pid), machine.cpu_seconds(on.nats.pid)
    times = act()
    cpu = [
        (machine.cpu_seconds(pid) - before) / len(times) * 1e3
        for pid, before in ((on.gateway.pid, gateway), (on.nats.pid, nats))
    ]
    probe.end()
    took = f"{statistics.median(times) * 1e3:.0f} / {max(times) * 1e3:.0f}"
    return f"| {label} | {len(times)} | {took} | {cpu[0]:.0f} | {cpu[1]:.0f} | {max(probe.waits) * 1e3:.0f} |"


def walk(connection: http.client.HTTPConnection, sessions: int) -> list[float]:
    """Ask for all pages; each session must come once."""
    times: list[float] = []
    found: list[str] = []
    after = ""
    while True:
        begin = time.perf_counter()
        page = ask(connection, f"/sessions?limit={LARGEST}&after={after}")
        times.append(time.perf_counter() - begin)
        found += [session["sessionId"] for session in page["sessions"]]
        if "next" not in page:
            break
        after = page["next"]
    if len(found) != sessions or found != sorted(set(found)):
        raise BenchError(f"a walk found {len(set(found))} of {sessions} sessions in {len(found)} rows")
    return times


def peak_kib(pid: int) -> int:
    """Return the largest resident memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1])


def pages(connection: http.client.HTTPConnection, path: str, repeats: int) -> list[float]:
    """Ask for the same page again and again."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        ask(connection, path)
        times.append(time.perf_counter() - begin)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.bench.listing", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    with stack(build_tools(), RINGMERE) as on:
        before = machine.rss_kib(on.gateway.pid)
        publish(on, options.sessions, prefix=PREFIX, rounds=2)
        filled = machine.settled_rss_kib(on.nats.pid, 1.0)
        connection = http.client.HTTPConnection("127.0.0.1", on.port, timeout=60)
        print("| what | pages | ms: median / longest | gateway CPU, ms a page | nats-server | loop held, ms |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        kinds = {
            "first page of 100": "/sessions",
            f"first page of {LARGEST:,}": f"/sessions?limit={LARGEST}",
            "first page of 100, with a prefix": f"/sessions?prefix={PREFIX}9",
        }
        for label, path in kinds.items():
            print(measured(on, label, lambda path=path: pages(connection, path, options.repeats)), flush=True)
        print(measured(on, f"walk in pages of {LARGEST:,}", lambda: walk(connection, options.sessions)))
        print(
            f"\nMemory in MiB: gateway {before / 1024:.0f} before, {peak_kib(on.gateway.pid) / 1024:.0f} at its peak; "
            f"nats-server {filled / 1024:.0f} after the fill, {peak_kib(on.nats.pid) / 1024:.0f} at its peak."
        )


if __name__ == "__main__":
    main()
