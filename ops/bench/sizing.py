"""What readers, sessions, rates and shards cost: ``python -m ops.bench.sizing [--only readers,…] [--quick]``.

Prints the tables of `service/docs/sizing.md`. Memory is that of one instance and its server; rates belong to the
machine, which gateway, servers, publisher and readers share.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from . import machine
from .cases import measure
from .rig import (
    CACHE,
    HERE,
    RING_SIZE,
    RINGMERE,
    BenchError,
    Contender,
    Reader,
    Service,
    Stack,
    Tools,
    build_tools,
    publish,
    stack,
)

PATIENCE = 120.0
CLUSTER_IS_UP = re.compile(r"n1 at nats://127\.0\.0\.1:([0-9]+)")


def sharded(shards: int, *flags: str) -> Contender:
    """Return the gateway with ``shards`` streams, and a server that finds the one of each session."""
    target = f"ringmere.events.{{{{partition({shards},1)}}}}.{{{{wildcard(1)}}}}"
    return replace(
        RINGMERE,
        subject="ringmere.publish.",
        arguments=(*RINGMERE.arguments, "--shards", str(shards), *flags),
        server=f'mappings {{ "ringmere.publish.*": "{target}" }}\n',
    )


def readers(tools: Tools, quick: bool) -> None:
    """Open streams that are silent: all in one session, and each in one of its own."""
    head(
        "readers",
        "sessions",
        "MiB before",
        "MiB after",
        "KiB a reader",
        "open files",
        "nats-server MiB",
        "cores when idle",
    )
    for count in (20, 50) if quick else (100, 1000, 5000, 10_000):
        for sessions in (1, count):
            with stack(tools, RINGMERE) as on:
                before = machine.settled_rss_kib(on.gateway.pid, 1.0)
                with opened(on, count, sessions):
                    after = machine.settled_rss_kib(on.gateway.pid, 2.0)
                    files = sum(1 for _ in Path(f"/proc/{on.gateway.pid}/fd").iterdir())
                    cpu, begin = machine.cpu_seconds(on.gateway.pid), time.monotonic()
                    time.sleep(1 if quick else 10)
                    idle = (machine.cpu_seconds(on.gateway.pid) - cpu) / (time.monotonic() - begin)
                    server = machine.rss_kib(on.nats.pid)
                each = (after - before) / count
                row(count, sessions, before >> 10, after >> 10, f"{each:.1f}", files, server >> 10, f"{idle:.3f}")


def windows(tools: Tools, quick: bool) -> None:
    """Sessions that are followed while a ring full of events goes through them."""
    head("live sessions", "events each", "MiB before", "MiB after", "KiB a session", "nats-server MiB")
    for sessions in (2, 5) if quick else (10, 100, 200):
        rounds = 100 if quick else RING_SIZE
        with stack(tools, RINGMERE) as on:
            with opened(on, sessions, sessions):
                before = machine.settled_rss_kib(on.gateway.pid, 1.0)
                publish(on, sessions, prefix="bench-", rounds=rounds)
                after = machine.settled_rss_kib(on.gateway.pid, 2.0)
                server = machine.rss_kib(on.nats.pid)
            each = (after - before) / sessions
            row(sessions, rounds, before >> 10, after >> 10, f"{each:.0f}", server >> 10)


def replays(tools: Tools, quick: bool) -> None:
    """One reader replays one full ring out of streams that many sessions share."""
    head(
        "sessions",
        "shards",
        "events stored",
        "disk MiB",
        "bytes an event",
        "replay s",
        "nats-server CPU s",
        "nats-server MiB",
    )
    rounds = 50 if quick else RING_SIZE
    for sessions in (1, 5) if quick else (1, 10, 100, 500):
        for shards in (1, 2) if quick else (1, 4, 10):
            with stack(tools, sharded(shards)) as on:
                published = publish(on, sessions, prefix="bench-", rounds=rounds)
                disk = used_bytes(on.store)
                on.start_gateway()
                before = machine.cpu_seconds(on.nats.pid)
                with opened(on, 1, 1, cursor=0, events=rounds, limit=PATIENCE) as reader:
                    report = reader.result(2 * PATIENCE)
                cpu = machine.cpu_seconds(on.nats.pid) - before
                if report["lost"] or report["incomplete"]:
                    raise BenchError(f"the replay was not complete: {report}")
                stored = published["rounds"] * sessions
                seconds = f"{report['complete_s']:.2f}"
                server = machine.rss_kib(on.nats.pid) >> 10
                row(sessions, shards, stored, disk >> 20, f"{disk / stored:.0f}", seconds, f"{cpu:.2f}", server)


def disks(tools: Tools, quick: bool) -> None:
    """Fill rings, and go on until everything in them has been replaced some times."""
    head(
        "sessions", "event bytes", "events published each", "disk MiB", "bytes an event of the rings", "nats-server MiB"
    )
    for sessions, size in ((5, 200),) if quick else ((50, 200), (50, 2000)):
        for times in (1, 3):
            with stack(tools, RINGMERE) as on:
                rounds = times * (50 if quick else RING_SIZE)
                publish(on, sessions, prefix="bench-", rounds=rounds, bytes=size)
                time.sleep(1 if quick else 10)
                disk = used_bytes(on.store)
                each = disk / (sessions * min(rounds, RING_SIZE))
                row(sessions, size, rounds, disk >> 20, f"{each:.0f}", machine.rss_kib(on.nats.pid) >> 10)


def rates(tools: Tools, quick: bool) -> None:
    """A reader or more in each of some sessions at a steady rate, with one copy and with three."""
    head(
        "copies",
        "shards",
        "sessions",
        "readers",
        "events/s",
        "cores: gateway",
        "nats-server",
        "others",
        "p50 ms",
        "p99 ms",
    )
    grid = [(1, 1), (1, 100), (10, 10), (100, 100), (1000, 1000)]
    if quick:
        grid = [(2, 4)]
    for copies in (1, 3):
        for shards in (1,) if copies == 3 or quick else (1, 4, 10):
            for sessions, count in grid if shards == 1 else grid[-1:]:
                for rate in (200,) if quick else (1000, 10_000):
                    if rate * (count / sessions) <= 100_000:
                        rated(tools, copies, shards, sessions, count, rate, 1 if quick else 10)


def rated(tools: Tools, copies: int, shards: int, sessions: int, count: int, rate: int, seconds: int) -> None:
    """Measure one point of :func:`rates`."""
    where = cluster(tools) if copies == 3 else stack(tools, sharded(shards))
    with where as on:
        done = measure(on, count, sessions, PATIENCE, rate=rate, seconds=seconds)
    if done.faults:
        raise BenchError("; ".join(done.faults))
    cores = [f"{done.cpu[name] / done.seconds:.2f}" for name in ("gateway", "nats-server", "others")]
    kept = f"{done.published['rate']:.0f}"
    row(copies, shards, sessions, count, kept, *cores, f"{done.read['p50_ms']:.1f}", f"{done.read['p99_ms']:.0f}")


class ClusterStack(Stack):
    """Three servers with three copies, and one gateway on them."""

    def __init__(self, tools: Tools, directory: Path) -> None:
        self.tools = tools
        self.directory = directory
        self.contender = sharded(1, "--replicas", "3", "--max-bytes", "1GiB")
        command = ["env", "-C", str(directory), f"PYTHONPATH={HERE.parents[1]}"]
        self.nats = Service("cluster", [*command, sys.executable, "-m", "ops.nats.cluster", "--port", "0"], directory)
        self._gateway = None
        self.nats_port = self.port = 0

    @property
    def servers(self) -> list[int]:
        """The three."""
        children = Path(f"/proc/{self.nats.pid}/task/{self.nats.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def start(self) -> None:
        """Start the gateway once the three have found a leader."""
        self.nats_port = int(self.nats.wait_output(CLUSTER_IS_UP, 60.0)[1])
        self.start_gateway()


@contextmanager
def cluster(tools: Tools) -> Iterator[Stack]:
    """Run a fresh cluster; its stores go when the block ends."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=CACHE) as name:
        made = ClusterStack(tools, Path(name))
        try:
            made.start()
            yield made
        finally:
            made.stop()


@contextmanager
def opened(on: Stack, count: int, sessions: int, **options: object) -> Iterator[Reader]:
    """Have streams open for as long as the block lasts."""
    reader = Reader(on, count, sessions, prefix="bench-", **options)
    try:
        reader.wait_ready(PATIENCE)
        yield reader
    finally:
        reader.kill()


def used_bytes(directory: Path) -> int:
    """Return what the files below ``directory`` take of the disk."""
    done = subprocess.run(["du", "-sk", directory], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0]) << 10


def head(*names: str) -> None:
    """Print the head of a table."""
    row(*names)
    row(*("---:" for _ in names))


def row(*cells: object) -> None:
    """Print a row of a table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


TABLES: dict[str, Callable[[Tools, bool], None]] = {
    "readers": readers,
    "windows": windows,
    "replays": replays,
    "disks": disks,
    "rates": rates,
}


def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.sizing", description=__doc__)
    parser.add_argument("--only", default=",".join(TABLES), help="tables, comma separated")
    parser.add_argument("--quick", action="store_true", help="tiny numbers: does it all run?")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    tools = build_tools()
    for name in options.only.split(","):
        busy, begin = machine.busy_seconds(), time.monotonic()
        print(f"\n{name}: {TABLES[name].__doc__}\n")
        TABLES[name](tools, options.quick)
        busy, seconds = machine.busy_seconds() - busy, time.monotonic() - begin
        print(f"\n{seconds:.0f} s; all processes together used {busy / seconds:.1f} cores.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
