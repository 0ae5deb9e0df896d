"""Pacing of bulk writes: replays share the loop with live events and admissions."""

from __future__ import annotations

import asyncio
from collections import deque


class Pace:
    """Lets at most ``per_turn`` bulk writes happen in one turn of the loop, first come, first served.

    A page of a replay takes the loop as long as the kernel takes to copy it. A storm of readers that all
    got their page at once would otherwise hold up everybody else for the sum of that.
    """

    def __init__(self, per_turn: int) -> None:
        self._per_turn = per_turn
        self._left = per_turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Return when one bulk write may be made."""
        loop = asyncio.get_running_loop()
        if self._left == self._per_turn:
            loop.call_soon(self._refill)
        if self._left:
            self._left -= 1
            return
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        await future

    def _refill(self) -> None:
        self._left = self._per_turn
        while self._waiting and self._left:
            future = self._waiting.popleft()
            if not future.done():
                self._left -= 1
                future.set_result(None)
        if self._left < self._per_turn:
            asyncio.get_running_loop().call_soon(self._refill)
