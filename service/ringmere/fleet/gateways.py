"""Gateway processes: real ``ringmere serve`` children on loopback ports of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from ringmere.core.errors import RingmereError
from ringmere.embedded import die_with, free_port

START_TIMEOUT = 30.0
"""Seconds until a gateway must be ready."""
STOP_TIMEOUT = 5.0
"""Seconds between SIGTERM and SIGKILL."""
LOOK = 0.05
_READY_TIMEOUT = aiohttp.ClientTimeout(total=1.0)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class FleetError(RingmereError):
    """A process of the fleet did not start, or ended by itself."""

    code = "fleet_failed"


class Gateway:
    """One ``ringmere serve`` process. Restarting it keeps the address; its log is ``log_file``."""

    def __init__(self, name: str, flags: Sequence[str], log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self.url = f"http://127.0.0.1:{free_port()}"
        self._flags = ["--listen", self.url.removeprefix("http://"), *flags]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process's number, None when there is none."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process and return when it is ready. Raises :class:`FleetError` when it does not get there."""
        with self.log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ringmere", "serve", *self._flags,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
                # A stopped process does not hear SIGTERM.
                preexec_fn=die_with(os.getpid(), signal.SIGKILL),
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT
        while not await self.ready():
            self.check()
            if time.monotonic() > deadline:
                raise FleetError(f"{self.name} is not ready after {START_TIMEOUT:g} s: {self._last_words()}")
            await asyncio.sleep(LOOK)

    async def ready(self) -> bool:
        """Ask the gateway whether it is ready."""
        try:
            async with (
                aiohttp.ClientSession(timeout=_READY_TIMEOUT) as http,
                http.get(f"{self.url}/readyz") as response,
            ):
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def check(self) -> None:
        """Raise :class:`FleetError` when the process has ended though nobody asked it to."""
        if self._process is not None and self._process.returncode is not None:
            code = self._process.returncode
            raise FleetError(f"{self.name} ended by itself with {code}: {self._last_words()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, SIGSTOP for example, to a process that is there."""
        if self._process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def kill(self) -> None:
        """Kill the process as a crash would and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def stop(self) -> None:
        """End the process: SIGTERM, twice, so that it does not wait for its readers; SIGKILL when that fails."""
        for _ in range(2):
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            await asyncio.sleep(LOOK)
        if self._process is not None and self.running:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT)
        await self.kill()

    def _last_words(self) -> str:
        lines = _COLOURS.sub("", self.log_file.read_text(errors="replace")).splitlines()
        return " / ".join(lines[-3:]) or "it printed nothing"


def _environment() -> dict[str, str]:
    """Return the environment without what would change a gateway's settings."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("RINGMERE_", "NATS_"))}
