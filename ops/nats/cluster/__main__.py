"""The three nodes in the foreground: ``python -m ops.nats.cluster``, in the directory that holds ``.data``.

Ctrl-C ends them all. A node that dies is not started again: that is what one wants to look at.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from ringmere.embedded import EmbeddedServerError, die_with, free_port, server_binary

HERE = Path(__file__).resolve().parent
DATA = Path(".data") / "cluster"
NAMES = ("n1", "n2", "n3")
FIRST_PORT = 4222
"""What the files say; monitoring is 4,000 above, routes are 2,000 above."""
START_TIMEOUT = 60.0
STOP_TIMEOUT = 10.0


@dataclass(frozen=True)
class Ports:
    """Where one node listens: for clients, for monitoring, for the other nodes."""

    client: int
    monitor: int
    route: int


class ClusterError(RuntimeError):
    """The cluster did not start; the text says why."""


def ports(first: int) -> list[Ports]:
    """Return the ports of all nodes, all of them free ones when ``first`` is 0."""
    if first == 0:
        return [Ports(free_port(), free_port(), free_port()) for _ in NAMES]
    return [Ports(first + index, first + 4000 + index, first + 2000 + index) for index in range(len(NAMES))]


def command(name: str, own: Ports, routes: str) -> list[str]:
    """Return the command that starts a node from its file; flags override only what the ports change."""
    binary = server_binary()
    words = [binary, "-c", str(HERE / f"{name}.conf"), "-l", str(DATA / f"{name}.log")]
    if own == ports(FIRST_PORT)[NAMES.index(name)]:
        return words
    overrides = ["-p", str(own.client), "-m", str(own.monitor), "--cluster_listen", f"nats://127.0.0.1:{own.route}"]
    return [*words, *overrides, "--routes", routes]


async def healthy(port: int) -> bool:
    """Ask a node's monitoring whether JetStream is there and has found its leader."""

    def ask() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return await asyncio.to_thread(ask)


async def watch(name: str, process: asyncio.subprocess.Process) -> None:
    """Say when a node ends."""
    print(f"{name} ended with {await process.wait()}", flush=True)


async def stop(processes: list[asyncio.subprocess.Process]) -> None:
    """End all nodes that still run, in order or, when that takes too long, at once."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await asyncio.gather(*(process.wait() for process in processes))


async def until_healthy(places: list[Ports], processes: list[asyncio.subprocess.Process], asked: asyncio.Event) -> None:
    """Return when all nodes are well, or when the end has been asked for. Raises :class:`ClusterError`."""
    end = asyncio.get_running_loop().time() + START_TIMEOUT
    while not all([await healthy(place.monitor) for place in places]) and not asked.is_set():
        for name, process in zip(NAMES, processes, strict=True):
            if process.returncode is not None:
                raise ClusterError(f"{name} ended with {process.returncode}: {last_words(name)}")
        if asyncio.get_running_loop().time() > end:
            raise ClusterError(f"the nodes have found no leader in {START_TIMEOUT:g} s; see {DATA}/*.log")
        await asyncio.sleep(0.1)


def last_words(name: str) -> str:
    """Return the end of a node's log."""
    log = DATA / f"{name}.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return " / ".join(lines[-2:]) or "it printed nothing"


async def run(first: int) -> None:
    """Start the nodes, say what to do with them, and wait for Ctrl-C or for the end of all of them."""
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    DATA.mkdir(parents=True, exist_ok=True)
    places = ports(first)
    routes = ",".join(f"nats://127.0.0.1:{place.route}" for place in places)
    processes: list[asyncio.subprocess.Process] = []
    try:
        for name, place in zip(NAMES, places, strict=True):
            words = command(name, place, routes)
            # It has a process group of its own, and ends when this process is killed.
            processes.append(await asyncio.create_subprocess_exec(*words, preexec_fn=die_with(os.getpid())))
        await until_healthy(places, processes, asked)
        if not asked.is_set():
            tell(places, processes)
        ended = asyncio.gather(*(watch(name, process) for name, process in zip(NAMES, processes, strict=True)))
        wait = asyncio.create_task(asked.wait())
        await asyncio.wait({ended, wait}, return_when=asyncio.FIRST_COMPLETED)
        wait.cancel()
    finally:
        await stop(processes)


def tell(places: list[Ports], processes: list[asyncio.subprocess.Process]) -> None:
    """Print where the nodes are and what to run next."""
    for name, place, process in zip(NAMES, places, processes, strict=True):
        print(f"{name} at nats://127.0.0.1:{place.client}, pid {process.pid}, log {DATA}/{name}.log")
    urls = ",".join(f"nats://127.0.0.1:{place.client}" for place in places)
    print("all three are up; kill -9 one of them to see what happens, Ctrl-C ends all. In another terminal:")
    print(f"  ringmere serve --nats-url {urls} --replicas 3", flush=True)


def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m ops.nats.cluster", description=__doc__)
    parser.add_argument(
        "--port", type=int, default=FIRST_PORT, help="the first of three ports for clients; 0: free ones"
    )
    try:
        asyncio.run(run(parser.parse_args().port))
    except (ClusterError, EmbeddedServerError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
