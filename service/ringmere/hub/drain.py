"""Saying goodbye: every stream gets its own time to come back, paced so that no storm arises (contract 8.3)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from ringmere.core.frames import control_frame, with_retry
from ringmere.core.limits import Limits
from ringmere.core.reasons import CloseReason
from ringmere.hub.lifetime import Lifetime

GOODBYES_PER_SECOND = 100
"""Pace when there are few streams; many are spread over the whole grace."""


async def goodbyes(readers: Sequence[Lifetime], limits: Limits) -> None:
    """Send each reader ``server_draining`` with a jittered ``retry`` and end it, over ``drain_grace`` at most."""
    span = min(limits.drain_grace, len(readers) / GOODBYES_PER_SECOND)
    now = asyncio.get_running_loop().time
    began = now()
    for index, reader in enumerate(readers):
        due = began + span * index / max(1, len(readers))
        pause = due - now()
        if pause > 0:
            await asyncio.sleep(pause)
        retry_ms = round(limits.retry_ms * random.uniform(0.1, 1.0))
        frame = control_frame("server_draining", {"retryMs": retry_ms}, time.time_ns() // 1_000_000)
        reader.finish(CloseReason.DRAINING, with_retry(retry_ms, frame))
