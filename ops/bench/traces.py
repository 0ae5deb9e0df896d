"""What traces cost, as ratios to none: ``python -m ops.bench.traces [--rounds N] [--events N] [--readers N]``.

Publishes over HTTP, one event a request, first without readers, then to many readers of one session. Each round
runs all ways of tracing one after the other on fresh stacks; the table has the medians. A collector that takes
everything runs here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp

from .rig import RINGMERE, BenchError, Contender, Reader, Tools, build_tools, stack

IN_FLIGHT = 16
"""Requests under way at once."""
PATIENCE = 60.0
SESSION = "bench-0"
"""What the load reader calls its first session."""
TRACED = replace(RINGMERE, arguments=(*RINGMERE.arguments, "--traces", "otlp"))
WAYS: dict[str, tuple[Contender, dict[str, str]]] = {
    "off": (RINGMERE, {}),
    "1 %": (TRACED, {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}),
    "always": (TRACED, {"OTEL_TRACES_SAMPLER": "parentbased_always_on"}),
}


class Collector(BaseHTTPRequestHandler):
    """Takes everything and keeps nothing."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def measure(tools: Tools, way: str, events: int, readers: int) -> tuple[float, float]:
    """Return events/s and the gateway's CPU time per event in µs."""
    contender, variables = WAYS[way]
    os.environ.update(variables)
    with stack(tools, contender) as on:
        asyncio.run(_publish(on.port, "warm", events // 10))
        reader = Reader(on, readers, 1) if readers else None
        if reader is not None:
            reader.wait_ready()
        before, begin = _cpu(on.gateway.pid), time.monotonic()
        asyncio.run(_publish(on.port, SESSION, events))
        seconds = time.monotonic() - begin
        if reader is not None:
            report = reader.expect(events, PATIENCE)
            if report["lost"] or report["duplicated"]:
                raise BenchError(f"events were lost or came twice: {report}")
        return events / seconds, (_cpu(on.gateway.pid) - before) / events * 1e6


async def _publish(port: int, session: str, events: int) -> None:
    numbers = iter(range(1, events + 1))
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector) as http:

        async def work() -> None:
            for number in numbers:
                data = {"n": number, "ts": time.monotonic_ns(), "pad": "x" * 100}
                body = json.dumps({"type": "t", "data": data}, separators=(",", ":"))
                url = f"http://127.0.0.1:{port}/session/{session}/events"
                async with http.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
                    assert answer.status == 201, await answer.text()

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.bench.traces", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=5000)
    parser.add_argument("--readers", type=int, default=500)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    tools = build_tools()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
    print("| readers | traces | events/s | ratio | gateway CPU, µs per event | ratio |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for readers in (0, options.readers):
        runs: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way, found in runs.items():
                found.append(measure(tools, way, options.events, readers))
        base = runs["off"]
        for way, found in runs.items():
            rate, cpu = (statistics.median(run[at] for run in found) for at in (0, 1))
            # Paired: each run is held against its own round's.
            ratios = [
                statistics.median(run[at] / off[at] for run, off in zip(found, base, strict=True)) for at in (0, 1)
            ]
            print(f"| {readers} | {way} | {rate:,.0f} | {ratios[0]:.2f} | {cpu:.0f} | {ratios[1]:.2f} |", flush=True)
    server.shutdown()


if __name__ == "__main__":
    main()
