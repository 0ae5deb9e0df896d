"""The publishing side of a load run: requests at a rate or flat out, a bounded number under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from ringmere.client.errors import ClientError, Refused
from ringmere.client.publish import Publisher
from ringmere.verify.load import LOAD_TYPE, LoadPlan, Sent


class Pump:
    """Publishes to all sessions in turn, each request at the next of ``doors``: publishers without patience."""

    def __init__(self, plan: LoadPlan, doors: Sequence[Publisher], sent: Sent) -> None:
        self._plan = plan
        self._doors = doors
        self._sent = sent
        self._padding = plan.padding()
        self._requests = 0

    async def run(self, begin: float, over: asyncio.Event) -> None:
        """Publish from ``begin`` on until ``over``, then wait for what is under way."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._plan.in_flight):
                group.create_task(self._lane(begin, over))

    async def _lane(self, begin: float, over: asyncio.Event) -> None:
        while not over.is_set():
            number = self._requests
            self._requests += 1
            if self._plan.rate and not await self._due(begin + number * self._plan.batch / self._plan.rate, over):
                return
            await self._send(number)

    async def _due(self, due: float, over: asyncio.Event) -> bool:
        """Wait until a request is due; False when the run ends before."""
        wait = due - time.monotonic()
        if wait <= 0:
            self._sent.behind = max(self._sent.behind, -wait)
            return True
        try:
            async with asyncio.timeout(wait):
                await over.wait()
        except TimeoutError:
            return True
        return False

    async def _send(self, number: int) -> None:
        session = self._plan.session(number % self._plan.sessions)
        door = self._doors[number % len(self._doors)]
        begin = time.monotonic()
        data = {"n": number, "t": begin, "pad": self._padding}
        event: dict[str, Any] = {"type": LOAD_TYPE, "data": data}
        stored = 0
        try:
            if self._plan.batch == 1:
                await door.publish(session, event)
                stored = 1
            else:
                for result in await door.publish_batch(session, [event] * self._plan.batch):
                    if isinstance(result, Refused):
                        self._sent.errors[result.code] += 1
                    else:
                        stored += 1
        except ClientError as error:
            self._sent.errors[error.code] += self._plan.batch
            return
        self._sent.until = time.monotonic()
        self._sent.latency.add(self._sent.until - begin)
        self._sent.acknowledged[session] += stored
