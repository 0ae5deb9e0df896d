"""A nats-server on one of the repository's own configuration files; only ports and places are the test's."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ringmere.embedded import die_with, free_port, server_binary
from support.nats import eventually

ROOT = Path(__file__).resolve().parents[2]
PASSWORDS = {"RINGMERE_GATEWAY_PASSWORD": "gateway-secret", "RINGMERE_PUBLISHER_PASSWORD": "publisher-secret"}

_TRACED = re.compile(r"<<- \[(?:H?PUB|SUB) (\S+)")
_VIOLATION = re.compile(r'user:(\w+)" - (Publish|Subscription) Violation - Subject "([^"]+)"')


class Configured:
    """The server. Its log holds every line of the protocol; it may be killed and started again."""

    def __init__(self, file: Path, directory: Path) -> None:
        self.file = file
        self.directory = directory
        self.port = free_port()
        self.log = directory / "server.log"
        self.process: asyncio.subprocess.Process | None = None

    def url(self, user: str) -> str:
        """Return the address with the user's name and password."""
        return f"nats://{user}:{PASSWORDS[f'RINGMERE_{user.upper()}_PASSWORD']}@127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it and return when it takes clients; relative paths of the file lie below the directory."""
        begin = len(self._text())
        self.process = await asyncio.create_subprocess_exec(
            server_binary(), "-c", str(self.file), "-p", str(self.port), "-m", str(free_port()), "-l", str(self.log),
            "-V", cwd=self.directory, env={**os.environ, **PASSWORDS}, preexec_fn=die_with(os.getpid(), signal.SIGKILL),
        )  # fmt: skip
        await eventually(lambda: "Server is ready" in self._text()[begin:], "a server that is ready")

    async def kill(self) -> None:
        """Kill it, if it runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def used(self) -> set[str]:
        """Return the subjects that clients have published and subscribed to."""
        return set(_TRACED.findall(self._text()))

    def violations(self) -> set[tuple[str, str, str]]:
        """Return what was refused: the user, ``Publish`` or ``Subscription``, the subject."""
        return set(_VIOLATION.findall(self._text()))

    def _text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@asynccontextmanager
async def configured(file: Path, directory: Path) -> AsyncIterator[Configured]:
    """Run nats-server with ``file``, everything it stores below ``directory``."""
    server = Configured(file, directory)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()
