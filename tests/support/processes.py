"""Looking at processes from outside: whose children they are, and whether they are gone."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path


async def children(pid: int) -> list[int]:
    """Return the processes that ``pid`` started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in (await asyncio.to_thread(path.read_text)).split()]


def command(pid: int) -> str:
    """Return the command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()


def state(pid: int) -> str:
    """Return the kernel's letter for what a process does: ``T`` stopped, ``Z`` ended; nothing when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and waits for its parent does not."""
    return state(pid) not in ("", "Z")


async def gone(pid: int, deadline: float = 10.0) -> bool:
    """Wait until a process is gone; say whether it went in time."""
    end = time.monotonic() + deadline
    while alive(pid):
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True
