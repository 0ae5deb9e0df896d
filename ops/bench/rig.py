"""The processes of one measurement: a NATS server, one gateway on it, the load reader and the publisher."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".data" / "bench"
RING_SIZE = 8000
# With its defaults (64 MiB, 10 s) the server cuts off a naive gateway that falls behind, and nats-py then loses
# events; so that its speed can be measured at all, the server is told to be patient.
SERVER_CONFIG = """
listen: 127.0.0.1:{port}
jetstream {{ store_dir: "{store}" }}
max_pending: 2GB
write_deadline: "60s"
"""
_LISTENING = re.compile(r"listening on (?:https?://[^\s/]*:)?([0-9]+)")


@dataclass(frozen=True)
class Contender:
    """A gateway under test: how it is started and where its events are published."""

    name: str
    subject: str
    arguments: tuple[str, ...]
    nats_flag: str
    readiness: str | None
    without_heads: tuple[str, ...] = ()
    """Flags that switch head streams off; empty for a gateway that has none."""
    metrics: str | None = None
    """Path of its metrics, None when it has none."""
    server: str = ""
    """What else its NATS server is configured with."""

    def command(self, nats_url: str) -> list[str]:
        return [sys.executable, *self.arguments, self.nats_flag, nats_url]


RINGMERE = Contender(
    name="Ringmere",
    subject="ringmere.events.0.",
    arguments=(
        "-m", "ringmere", "serve", "--listen", "127.0.0.1:0", "--ring-size", str(RING_SIZE),
        "--max-subscribers", "10000", "--drain-grace", "0",
    ),
    nats_flag="--nats-url",
    readiness="/readyz",
    without_heads=("--head-ttl", "0"),
    metrics="/metrics",
)  # fmt: skip
NAIVE = Contender(
    name="naive",
    subject="naive.events.",
    arguments=(str(HERE / "naive.py"), "--ring-size", str(RING_SIZE)),
    nats_flag="--nats",
    readiness=None,
)


class BenchError(RuntimeError):
    """A process of the rig failed; the text says which and holds the end of what it printed."""


@dataclass(frozen=True)
class Tools:
    """The compiled load programs and the server's binary."""

    reader: Path
    publisher: Path
    nats_server: Path


def build_tools() -> Tools:
    """Compile the load programs into the cache when they are older than their source."""
    CACHE.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CC") or shutil.which("cc") or "cc"
    built = {}
    for name in ("reader", "publisher"):
        source, target = HERE / f"{name}.c", CACHE / name
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            fresh = target.with_suffix(f".{os.getpid()}")
            subprocess.run([compiler, "-O2", "-Wall", "-o", fresh, source], check=True)
            fresh.replace(target)
        built[name] = target
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise BenchError("nats-server is neither beside python nor on PATH: install the extra 'embedded'")
    return Tools(built["reader"], built["publisher"], Path(found))


class Service:
    """A background process that says when it listens; its output goes to a file."""

    def __init__(self, name: str, command: list[str], directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RINGMERE_", "NATS_"))}
        with self.log.open("ab") as sink:
            self._begin = sink.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=kept)
        self.pid = self._process.pid

    def wait_output(self, pattern: re.Pattern[str], deadline: float = 30.0) -> re.Match[str]:
        end = time.monotonic() + deadline
        while True:
            found = pattern.search(self.output())
            if found:
                return found
            self.check()
            if time.monotonic() > end:
                raise BenchError(
                    f"{self.name} did not say {pattern.pattern!r} in {deadline} s:\n{self.output()[-2000:]}"
                )
            time.sleep(0.02)

    def output(self) -> str:
        with self.log.open("rb") as source:
            source.seek(self._begin)
            return source.read().decode(errors="replace")

    def check(self) -> None:
        """Raise when the process has ended by itself."""
        if self._process.poll() is not None:
            raise BenchError(f"{self.name} ended with {self._process.returncode}:\n{self.output()[-2000:]}")

    def stop(self) -> None:
        """End it; a gateway that is overloaded by a measurement gets no time to say goodbye."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Stack:
    """A NATS server with an empty store and one contender on it."""

    def __init__(self, tools: Tools, contender: Contender, directory: Path) -> None:
        self.tools = tools
        self.contender = contender
        self.directory = directory
        self.nats_port = _free_port()
        self.store = directory / "store"
        config = directory / "nats.conf"
        config.write_text(SERVER_CONFIG.format(port=self.nats_port, store=self.store) + contender.server)
        self.nats = Service("nats-server", [str(tools.nats_server), "-c", str(config)], directory)
        self._gateway: Service | None = None
        self.port = 0

    @property
    def gateway(self) -> Service:
        if self._gateway is None:
            raise BenchError("the gateway is not running")
        return self._gateway

    @property
    def servers(self) -> list[int]:
        """The processes that are NATS."""
        return [self.nats.pid]

    def start(self) -> None:
        self.nats.wait_output(re.compile("Server is ready"))
        self.start_gateway()

    def start_gateway(self) -> None:
        """Start the gateway, or start it again: it comes back cold, the log stays."""
        if self._gateway is not None:
            self._gateway.stop()
        command = self.contender.command(f"nats://127.0.0.1:{self.nats_port}")
        self._gateway = Service(self.contender.name, command, self.directory)
        self.port = int(self._gateway.wait_output(_LISTENING)[1])
        if self.contender.readiness:
            self._wait_ready(self.contender.readiness)

    def _wait_ready(self, path: str, deadline: float = 30.0) -> None:
        end = time.monotonic() + deadline
        while _status(self.port, path) != 200:
            self.gateway.check()
            if time.monotonic() > end:
                raise BenchError(
                    f"{self.gateway.name} is not ready after {deadline} s:\n{self.gateway.output()[-2000:]}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        if self._gateway is not None:
            self._gateway.stop()
        self.nats.stop()


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def stack(tools: Tools, contender: Contender) -> Iterator[Stack]:
    """Run a fresh stack; its store and logs go when the block ends."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=CACHE) as name:
        made = Stack(tools, contender, Path(name))
        try:
            made.start()
            yield made
        finally:
            made.stop()


class Reader:
    """The running load reader."""

    def __init__(self, on: Stack, readers: int, sessions: int, **options: object) -> None:
        self._readers = readers
        command = [
            str(on.tools.reader),
            "--port",
            str(on.port),
            "--readers",
            str(readers),
            "--sessions",
            str(sessions),
        ]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def wait_ready(self, deadline: float = 60.0) -> None:
        """Return when every stream has its response headers."""
        ready = self._line(deadline)
        if ready["ready"] < self._readers:
            raise BenchError(f"only {ready['ready']} of {self._readers} streams opened: {self.quit()}")

    def expect(self, events: int, patience: float) -> dict[str, Any]:
        """Return the result once every reader holds ``events`` events, at the latest after ``patience`` seconds."""
        self._tell(f"expect {events} {patience}\n")
        return self.result(patience + 30.0)

    def result(self, deadline: float) -> dict[str, Any]:
        """Return the final line, and reap the process."""
        line = self._line(deadline)
        self._process.wait(10)
        return line

    def quit(self) -> dict[str, Any]:
        """End the run now."""
        self._tell("quit\n")
        return self.result(30.0)

    def kill(self) -> None:
        """End the process when something has failed before it could report."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _tell(self, text: str) -> None:
        assert self._process.stdin is not None
        # A reader whose streams have all ended has reported and gone; its report is still in the pipe.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(text.encode())

    def _line(self, deadline: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], deadline)
        line = self._process.stdout.readline() if readable else b""
        if not line:
            self.kill()
            raise BenchError(f"the load reader said nothing for {deadline} s")
        result: dict[str, Any] = json.loads(line)
        return result


def publish(on: Stack, sessions: int, **options: object) -> dict[str, Any]:
    """Run the publisher to its end and return what it reports; raise when the log refused or lost an append."""
    command = [str(on.tools.publisher), "--port", str(on.nats_port), "--subject", on.contender.subject]
    command += ["--sessions", str(sessions)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise BenchError(f"publisher ended with {done.returncode}: {done.stdout}{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
