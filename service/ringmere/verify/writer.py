"""One publisher: numbered events of one session at a steady rate, each tried with its key until its fate is clear."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from ringmere.client.backoff import Backoff
from ringmere.client.errors import ClientError, Refused, Unreachable
from ringmere.client.publish import Published, Publisher
from ringmere.verify.ledger import Ledger
from ringmere.verify.plan import END_TYPE, EVENT_TYPE, Plan

BATCH = 100
"""Most events of one request: a publisher that has fallen behind catches up in batches."""


class Writer:
    """Publishes to the ledger's session, one request at a time, each try at another gateway.

    ``doors`` are publishers without patience of their own: one call, one try.
    """

    def __init__(self, plan: Plan, ledger: Ledger, doors: Sequence[Publisher], first: int, roll: random.Random) -> None:
        self._plan = plan
        self._ledger = ledger
        self._doors = doors
        self._turn = first
        self._roll = roll
        self._padding = plan.padding()
        self._backoff = Backoff(retry=0.0, first=0.2, widest=2.0)

    async def run(self, begin: float, over: asyncio.Event) -> None:
        """Publish from ``begin`` on at the session's rate until ``over``."""
        begin += self._roll.random() / self._plan.session_rate
        while not over.is_set():
            due = int((time.monotonic() - begin) * self._plan.session_rate) + 1 - self._ledger.sent
            if due > 0:
                await self._send(min(due, BATCH), EVENT_TYPE)
                continue
            wait = begin + self._ledger.sent / self._plan.session_rate - time.monotonic()
            try:
                async with asyncio.timeout(max(wait, 0.0)):
                    await over.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Publish the event that closes the session."""
        await self._send(1, END_TYPE)

    async def _send(self, count: int, type: str) -> None:
        """Publish the next ``count`` events and note their fates."""
        begin = time.monotonic()
        numbers = [self._ledger.send(begin) for _ in range(count)]
        events = [self._event(number, type) for number in numbers]
        maybe_stored = False
        failures = 0
        while True:
            try:
                results = await self._try(events)
            except Unreachable as error:
                maybe_stored = maybe_stored or error.maybe_done
                failures += 1
            except ClientError as error:
                for number in numbers:
                    self._ledger.refuse(number, str(error))
                return
            else:
                self._note(numbers, results)
                return
            pause = self._backoff.delay(failures, 0.0, self._roll.random())
            if time.monotonic() + pause > begin + self._plan.patience:
                for number in numbers:
                    self._ledger.give_up(number, maybe_stored)
                return
            await asyncio.sleep(pause)
            now = time.monotonic()
            for number in numbers:
                self._ledger.retry(number, now)

    def _event(self, number: int, type: str) -> dict[str, Any]:
        return {"type": type, "data": {"n": number, "pad": self._padding}, "key": str(number)}

    async def _try(self, events: list[dict[str, Any]]) -> list[Published | Refused]:
        door = self._doors[self._turn % len(self._doors)]
        self._turn += 1
        if len(events) == 1:
            return [await door.publish(self._ledger.session, events[0])]
        return await door.publish_batch(self._ledger.session, events)

    def _note(self, numbers: Sequence[int], results: Sequence[Published | Refused]) -> None:
        now = time.monotonic()
        for number, result in zip(numbers, results, strict=True):
            if isinstance(result, Published):
                self._ledger.acknowledge(number, result.id, now, result.duplicate)
            else:
                self._ledger.refuse(number, str(result))
