"""What a stream costs over WebSocket, as ratios to SSE: ``python -m ops.bench.websocket [--rounds N] [--readers N]``.

One session, many readers of one kind; batches over HTTP at a steady pace, so that each is about a turn of the loop.
Each round runs both kinds on fresh stacks; the table has the medians. Readers count events by their marks.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import time
from pathlib import Path

import aiohttp

from . import machine
from .rig import RINGMERE, BenchError, Tools, build_tools, stack

MARK = b'"type":"t"'
PATIENCE = 120.0
SESSION = "bench-0"
REQUESTS = {
    "sse": f"GET /session/{SESSION}/events HTTP/1.1\r\nHost: x\r\n\r\n",
    "websocket": f"GET /session/{SESSION}/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
}


class Counter(asyncio.Protocol):
    """Counts the marks in what it gets; a mark may be cut in two."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.events = 0
        self.begun = False
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(REQUESTS[self.kind].encode())  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.begun = True
        data = self._rest + data
        self.events += data.count(MARK)
        self._rest = data[-len(MARK) + 1 :]


async def _run(port: int, pid: int, kind: str, readers: int, batches: int, size: int) -> tuple[float, float]:
    """Return the gateway's CPU time per delivery in µs, and its memory per idle stream in KiB."""
    loop = asyncio.get_running_loop()
    before = _resident(pid)
    counters = []
    for _ in range(readers):
        _, counter = await loop.create_connection(lambda: Counter(kind), "127.0.0.1", port)
        counters.append(counter)
    await _until(lambda: all(counter.begun for counter in counters))
    await asyncio.sleep(1)
    memory = (_resident(pid) - before) / readers
    url = f"http://127.0.0.1:{port}/session/{SESSION}/events"
    rows = [{"type": "t", "data": {"pad": "x" * 150}} for _ in range(size)]
    cpu = machine.cpu_seconds(pid)
    async with aiohttp.ClientSession() as http:
        for _ in range(batches):
            async with http.post(url, json=rows) as answer:
                assert answer.status == 201, await answer.text()
            await asyncio.sleep(0.02)
    await _until(lambda: all(counter.events >= batches * size for counter in counters))
    if any(counter.events != batches * size for counter in counters):
        raise BenchError("events came twice")
    return (machine.cpu_seconds(pid) - cpu) / (batches * size * readers) * 1e6, memory


async def _until(condition: object) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end:
            raise BenchError("not all events came")
        await asyncio.sleep(0.05)


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1024


def measure(tools: Tools, kind: str, readers: int, batches: int, size: int) -> tuple[float, float]:
    """Run one kind on a fresh stack."""
    with stack(tools, RINGMERE) as on:
        return asyncio.run(_run(on.port, on.gateway.pid, kind, readers, batches, size))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.bench.websocket", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--readers", type=int, default=500)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    tools = build_tools()
    print("| events a turn | kind | gateway CPU, µs per delivery | ratio | KiB per idle stream |")
    print("| ---: | --- | ---: | ---: | ---: |")
    for size, batches in ((1, 100), (50, 20)):
        runs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in REQUESTS}
        for _ in range(options.rounds):
            for kind, found in runs.items():
                found.append(measure(tools, kind, options.readers, batches, size))
        for kind, found in runs.items():
            cpu, memory = (statistics.median(run[at] for run in found) for at in (0, 1))
            # Paired: each run is held against its own round's.
            ratio = statistics.median(run[0] / sse[0] for run, sse in zip(found, runs["sse"], strict=True))
            print(f"| {size} | {kind} | {cpu:.2f} | {ratio:.2f} | {memory:.1f} |", flush=True)


if __name__ == "__main__":
    main()
