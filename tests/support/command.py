"""The ``ringmere`` command as a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

from support.gateway import clean_env


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON lines it printed."""
        return [json.loads(line) for line in self.out.splitlines()]


@asynccontextmanager
async def python(*arguments: str, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the interpreter with pipes; the process is gone when the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=clean_env(**environ), limit=1 << 24,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def running(*arguments: str, server: str = "") -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Run ``ringmere`` with pipes; it is gone when the block ends."""
    return python("-m", "ringmere", *arguments, RINGMERE_SERVER=server)


async def ringmere(*arguments: str, server: str = "", stdin: bytes = b"", deadline: float = 60.0) -> Done:
    """Run ``ringmere`` to its end."""
    async with running(*arguments, server=server) as process:
        out, err = await asyncio.wait_for(process.communicate(stdin), deadline)
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), err.decode())


async def json_lines(process: asyncio.subprocess.Process, count: int, deadline: float = 30.0) -> list[Any]:
    """Return the next ``count`` JSON lines of a running command."""
    assert process.stdout is not None
    async with asyncio.timeout(deadline):
        return [json.loads(await process.stdout.readline()) for _ in range(count)]
