"""What a flooding session costs the others on its connection: ``python -m ops.bench.many [--rounds N] [--seconds N]``.

One reader follows 500 sessions on one connection. 499 of them get a steady trickle, one event a request over HTTP; the
500th is flooded with batches by a process of its own. Measured is the delay of the 499, from before the publish request
to the frame at the reader: without the flood, with it on a connection of its own (what it costs whoever shares the
gateway and the machine), and with it on theirs. Ratios are between the runs of a round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import socket
import statistics
import time
from dataclasses import replace

import aiohttp

from .rig import RINGMERE, BenchError, build_tools, stack

SESSIONS = 500
RATE = 200
"""Events a second over the 499 sessions."""
HERE, ELSEWHERE, NONE = "on theirs", "on its own", "none"
FIRST = asyncio.FIRST_COMPLETED
FLOOD = "flood"
BATCH = 100
_OF_FLOOD = b'"sessionId":"flood"'
CONTENDER = replace(RINGMERE, arguments=(*RINGMERE.arguments, "--max-sessions-per-stream", str(SESSIONS)))


def _flood(port: int, per_second: int, stop: float) -> None:
    asyncio.run(_flooding(port, per_second, stop))


def _drain(port: int) -> None:
    """Follow the flood on a connection of its own, until it is ended."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /session/%b/events HTTP/1.1\r\nHost: bench\r\n\r\n" % FLOOD.encode())
        while connection.recv(1 << 20):
            continue


async def _flooding(port: int, per_second: int, stop: float) -> None:
    rows = json.dumps([{"type": "t", "data": {"pad": "x" * 200}}] * BATCH)
    url = f"http://127.0.0.1:{port}/session/{FLOOD}/events"
    due = time.monotonic()
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as http:
        while time.monotonic() < stop:
            async with http.post(url, data=rows) as answer:
                assert answer.status == 201, await answer.text()
            due += BATCH / per_second
            await asyncio.sleep(max(0.0, due - time.monotonic()))


class Reading:
    """The one reader: delays of the trickle in seconds, and how much of the flood came."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.flooded = 0
        self.cursors: list[int] = []
        self._more = asyncio.Event()

    async def has(self, delays: int) -> None:
        """Return when so many events of the trickle have come."""
        while len(self.delays) < delays:
            self._more.clear()
            await self._more.wait()

    async def run(self, http: aiohttp.ClientSession, url: str, ready: asyncio.Event) -> None:
        async with http.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            assert answer.status == 200, await answer.text()
            if "X-Start-Event-Id" not in answer.headers:
                # Not all sessions were open in time; those that are stay so for a while.
                await asyncio.sleep(1)
                await self.run(http, url, ready)
                return
            ready.set()
            rest = b""
            async for chunk in answer.content.iter_any():
                now = time.monotonic_ns()
                *blocks, rest = (rest + chunk).split(b"\n\n")
                for block in blocks:
                    self._take(block, now)

    def _take(self, block: bytes, now: int) -> None:
        head, _, body = block.partition(b"\ndata: ")
        if b"client_evicted" in head or b"state_resync_required" in head:
            raise BenchError(body.decode())
        if not body.startswith(b'{"id"'):
            return
        self.cursors.append(int(head[head.index(b"id: ") + 4 :].split(b"\n")[0]))
        if _OF_FLOOD in body:
            self.flooded += 1
        else:
            self.delays.append((now - json.loads(body)["data"]["ts"]) / 1e9)
            self._more.set()


async def _trickle(http: aiohttp.ClientSession, port: int, stop: float) -> int:
    sent, due = 0, time.monotonic()
    tasks: set[asyncio.Task[None]] = set()

    async def publish(name: str) -> None:
        body = json.dumps({"type": "t", "data": {"ts": time.monotonic_ns()}})
        async with http.post(f"http://127.0.0.1:{port}/session/{name}/events", data=body) as answer:
            assert answer.status == 201, await answer.text()

    while time.monotonic() < stop:
        task = asyncio.create_task(publish(f"s{sent % (SESSIONS - 1)}"))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        sent += 1
        due += 1 / RATE
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    await asyncio.gather(*tasks)
    return sent


async def _measure(port: int, flood: int, where: str, seconds: float) -> Reading:
    reading, ready = Reading(), asyncio.Event()
    others = [f"s{number}" for number in range(SESSIONS - 1)]
    names = ",".join([FLOOD, *others] if where == HERE else others)
    draining = multiprocessing.Process(target=_drain, args=(port,), daemon=True) if where == ELSEWHERE else None
    if draining is not None:
        draining.start()
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers, read_bufsize=1 << 20) as http:
        following = asyncio.create_task(reading.run(http, f"http://127.0.0.1:{port}/events?session={names}", ready))
        await asyncio.wait({following, asyncio.ensure_future(ready.wait())}, return_when=FIRST)
        stop = time.monotonic() + seconds
        flooding = multiprocessing.Process(target=_flood, args=(port, flood, stop)) if flood else None
        if flooding is not None:
            flooding.start()
        sent = await _trickle(http, port, stop)
        if flooding is not None:
            await asyncio.to_thread(flooding.join)
        await asyncio.wait({following, asyncio.ensure_future(reading.has(sent))}, timeout=30, return_when=FIRST)
        if following.done():
            raise BenchError(f"the stream ended: {following.exception()}")
        following.cancel()
        if draining is not None:
            draining.kill()
        if len(reading.delays) != sent or reading.cursors != sorted(set(reading.cursors)):
            raise BenchError(f"{sent} were sent and {len(reading.delays)} came, or not in order")
        return reading


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.bench.many", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--floods", default="500,2000", help="events/s of the flooding session")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    multiprocessing.set_start_method("spawn")
    tools = build_tools()
    ways = [(0, NONE)] + [(int(flood), where) for flood in options.floods.split(",") for where in (ELSEWHERE, HERE)]
    runs: dict[tuple[int, str], list[Reading]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for (flood, where), found in runs.items():
            with stack(tools, CONTENDER) as on:
                found.append(asyncio.run(_measure(on.port, flood, where, options.seconds)))
    print("| flood, events/s | connection | delay, median ms | to none | to its own | p99 ms | to none | to its own |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for (flood, where), found in runs.items():
        cells = []
        for share in (0.5, 0.99):
            mine = [_quantile(one.delays, share) for one in found]
            cells.append(f"{statistics.median(mine) * 1e3:.1f}")
            for base in (ways[0], (flood, ELSEWHERE)):
                other = [_quantile(one.delays, share) for one in runs.get(base, found)]
                cells.append(f"{statistics.median(a / b for a, b in zip(mine, other, strict=True)):.2f}")
        print(f"| {flood:,} | {where} | {' | '.join(cells)} |", flush=True)


def _quantile(delays: list[float], share: float) -> float:
    return sorted(delays)[int(share * (len(delays) - 1))]


if __name__ == "__main__":
    main()
