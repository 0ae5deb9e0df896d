"""Checks of quiet channels: a lost last message shows in nothing else until the next one (design §4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ringmere.core.errors import LogUnavailable

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.hub import Hub

PERIOD = 0.25
"""Seconds between looks for channels that are due."""
BATCH = 256
"""Channels asked about at once."""


class Sweep:
    """One task that asks the log whether quiet channels have missed their last message."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._all = False

    def start(self) -> None:
        """Begin, on the running loop."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def all_now(self) -> None:
        """Look at every channel at once: the log was away, or has another leader."""
        self._all = True
        self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # No wait_for: it can swallow a cancellation that comes together with the event.
            alarm = loop.call_later(PERIOD, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                alarm.cancel()
            self._wake.clear()
            everything, self._all = self._all, False
            now = loop.time()
            longest = self._longest_interval()
            due = [c for c in self._hub.channels if everything or c.feed.due_for_sweep(now, longest)]
            for start in range(0, len(due), BATCH):
                try:
                    await self._ask(due[start : start + BATCH])
                except LogUnavailable:
                    self._all |= everything  # the next period asks again
                except Exception as error:
                    context = {"message": "a sweep of quiet sessions failed", "exception": error}
                    loop.call_exception_handler(context)

    def _longest_interval(self) -> float:
        """Return the longest interval; half the log's time to live, or an expiry could not be told from a loss."""
        ttl = self._hub.log.log_ttl
        longest = self._hub.limits.sweep_max
        return min(longest, ttl / 2) if ttl else longest

    async def _ask(self, channels: list[Channel]) -> None:
        asked_at = asyncio.get_running_loop().time()
        positions = [(channel.session, channel.last) for channel in channels]
        answers = await self._hub.log.newer(positions)
        for channel, (_, last), newer in zip(channels, positions, answers, strict=True):
            if channel.last == last:
                channel.feed.swept(asked_at, newer)
