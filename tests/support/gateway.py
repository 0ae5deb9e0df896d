"""A real ``ringmere serve`` in its own process, for tests that need signals, restarts or several instances."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

_LISTENING = re.compile(r"listening on (http://\S+)")


class GatewayProcess:
    """One instance. ``url`` is known once :meth:`start` has returned; ``output`` is all it has printed so far."""

    def __init__(self, arguments: list[str], log: Path, env: Mapping[str, str]) -> None:
        self.arguments = arguments
        self.log = log
        self.env = env
        self.url = ""
        self.process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    async def start(self, *, ready: bool = True, deadline: float = 30.0) -> None:
        """Start the process; return when its door is open and, with ``ready``, when ``/readyz`` says 200."""
        with self.log.open("ab") as sink:
            begin = sink.tell()
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ringmere", "serve", *self.arguments,
                stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, env=dict(self.env),
            )  # fmt: skip
        await self.wait_for(lambda: _LISTENING.search(self.output[begin:]), deadline, "an open door")
        found = _LISTENING.search(self.output[begin:])
        assert found is not None
        self.url = found[1]
        if ready:
            await self.wait_status("/readyz", 200, deadline)

    async def wait_for(self, condition: Callable[[], object], deadline: float, what: str) -> None:
        """Wait until ``condition()`` is true; fail with the output when the process ends or time is over."""
        assert self.process is not None
        end = time.monotonic() + deadline
        while not condition():
            if self.process.returncode is not None:
                raise AssertionError(f"exit code {self.process.returncode} before {what}:\n{self.output}")
            if time.monotonic() > end:
                raise AssertionError(f"no {what} in {deadline} s:\n{self.output}")
            await asyncio.sleep(0.02)

    async def status(self, path: str) -> int:
        """Return the status of a GET, 0 when nothing answers."""
        try:
            timeout = aiohttp.ClientTimeout(total=5)
            async with aiohttp.ClientSession(timeout=timeout) as http, http.get(self.url + path) as response:
                return response.status
        except (aiohttp.ClientError, TimeoutError):
            return 0

    async def wait_status(self, path: str, status: int, deadline: float = 30.0) -> None:
        """Wait until a GET of ``path`` is answered with ``status``."""
        end = time.monotonic() + deadline
        while (seen := await self.status(path)) != status:
            assert self.process is not None
            if self.process.returncode is not None or time.monotonic() > end:
                raise AssertionError(f"{path} is {seen}, not {status}:\n{self.output}")
            await asyncio.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    async def wait(self, deadline: float = 30.0) -> int:
        """Return the exit code once the process has ended."""
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), deadline)

    async def stop(self, deadline: float = 30.0) -> int:
        """End it with SIGTERM and return the exit code."""
        self.signal(signal.SIGTERM)
        return await self.wait(deadline)

    async def kill(self) -> None:
        """End it with SIGKILL; no code of the process runs any more."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


def clean_env(**extra: str) -> dict[str, str]:
    """Return the environment without anything that Ringmere or NATS would read, plus ``extra``."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RINGMERE_", "NATS_"))}
    return {**kept, **extra}


def _new_log(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"gateway-{len(list(directory.glob('gateway-*.log')))}.log"


@asynccontextmanager
async def gateway(
    directory: Path,
    *flags: str,
    nats_url: str | None = None,
    listen: str = "127.0.0.1:0",
    ready: bool = True,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[GatewayProcess]:
    """Run ``ringmere serve`` for a test: with its own embedded NATS in ``directory``, or on ``nats_url``.

    ``directory`` also takes the log ``gateway-N.log``. The process is gone when the block ends.
    """
    log = _new_log(directory)
    where = ["--nats-url", nats_url] if nats_url else ["--embedded", "--data-dir", str(directory / "data")]
    arguments = ["--listen", listen, "--drain-grace", "1", *where, *flags]
    process = GatewayProcess(arguments, log, clean_env(**(env or {})))
    try:
        await process.start(ready=ready)
        yield process
    finally:
        if process.process is not None and process.process.returncode is None:
            try:
                await process.stop(deadline=10.0)
            except TimeoutError:
                await process.kill()
