"""Work that goes on side by side for a given time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def run_for(seconds: float, jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run jobs until the time is over; the first one that fails ends it all with its error."""
    tasks = [asyncio.create_task(job) for job in jobs]
    done, pending = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()
