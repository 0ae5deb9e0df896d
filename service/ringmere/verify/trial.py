"""One round: readers first, then publishers, then the end of all sessions, then the judge."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import aiohttp

from ringmere.client.errors import ClientError
from ringmere.client.publish import Publisher
from ringmere.verify.judge import judge
from ringmere.verify.ledger import Ledger
from ringmere.verify.plan import Plan
from ringmere.verify.reader import Reader
from ringmere.verify.report import Fault, Report
from ringmere.verify.witness import Witness
from ringmere.verify.writer import Writer

CONNECT_DEADLINE = 15.0
"""Seconds until all readers must have a stream."""
TICK = 0.05
"""Interval in which verify looks whether it is late itself."""

Breaker = Callable[[asyncio.Event], Coroutine[Any, Any, Sequence[Fault]]]
"""Breaks things until the event is set, mends what it broke, and returns what it did; times are monotonic."""


class TrialFailed(ClientError):
    """The round could not begin; the text says why."""

    code = "trial_failed"


class Progress(NamedTuple):
    """Where a running round is."""

    phase: str
    seconds: float
    sent: int
    acknowledged: int
    delivered: int
    waiting: int
    """Deliveries that are due and have not happened yet."""
    connections: int


class Trial:
    """One round of ``plan`` at the gateways ``addresses``; setting ``stop`` ends the publishing early."""

    def __init__(self, plan: Plan, addresses: Sequence[str], breaker: Breaker | None = None) -> None:
        self.stop = asyncio.Event()
        self._plan = plan
        self._addresses = addresses
        self._breaker = breaker
        self._ledgers = [Ledger(plan.session(index)) for index in range(plan.sessions)]
        self._witnesses = [
            Witness(self._ledgers[number % plan.sessions], f"{plan.session(number % plan.sessions)} reader {number}")
            for number in range(plan.readers)
        ]
        self._phase = "connecting"
        self._begin = 0.0
        self._late = [0.0]

    async def run(self) -> Report:
        """Run the round to its end. Raises :class:`TrialFailed` when not every reader gets a stream at first."""
        calm = asyncio.Event()
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
            ticking = asyncio.create_task(lateness(self._late))
            stack.callback(ticking.cancel)
            readers = [self._reader(number, http, calm) for number in range(self._plan.readers)]
            following = [asyncio.create_task(reader.run()) for reader in readers]
            stack.push_async_callback(cancel, following)
            await self._all_connected(readers)
            writers = await self._writers(stack, http)
            self._begin = time.monotonic()
            self._phase = "publishing"
            faults = await self._publish(writers)
            self._phase = "settling"
            calm.set()
            await asyncio.gather(*(writer.close() for writer in writers))
            ended, _ = await asyncio.wait(following, timeout=self._plan.settle)
            for task in ended:
                task.result()
            self._see_silences_to_their_end(following)
        findings = judge(self._ledgers, self._witnesses)
        return Report(self._plan, findings, time.monotonic() - self._begin, self._late[0], faults)

    def progress(self) -> Progress:
        """Return where the round is now."""
        acknowledged = sum(ledger.acknowledged for ledger in self._ledgers)
        delivered = sum(witness.delivered for witness in self._witnesses)
        due = sum(witness.ledger.acknowledged for witness in self._witnesses)
        return Progress(
            self._phase,
            time.monotonic() - self._begin if self._begin else 0.0,
            sum(ledger.sent for ledger in self._ledgers),
            acknowledged,
            delivered,
            max(0, due - delivered),
            sum(witness.connections for witness in self._witnesses),
        )

    def _dice(self, who: str) -> random.Random:
        return random.Random(f"{self._plan.seed}/{who}")

    def _reader(self, number: int, http: aiohttp.ClientSession, calm: asyncio.Event) -> Reader:
        dice = self._dice(f"reader {number}")
        return Reader(self._plan, self._witnesses[number], self._addresses, number, http, dice, calm)

    async def _writers(self, stack: AsyncExitStack, http: aiohttp.ClientSession) -> list[Writer]:
        doors = [
            await stack.enter_async_context(Publisher(address, http=http, timeout=self._plan.try_timeout, patience=0.0))
            for address in self._addresses
        ]
        return [
            Writer(self._plan, ledger, doors, index, self._dice(f"writer {index}"))
            for index, ledger in enumerate(self._ledgers)
        ]

    async def _all_connected(self, readers: Sequence[Reader]) -> None:
        """Wait until every reader has a stream: from then on it must get everything."""
        waiting = [asyncio.create_task(reader.ready.wait()) for reader in readers]
        await asyncio.wait(waiting, timeout=CONNECT_DEADLINE)
        await cancel(waiting)
        pairs = zip(readers, self._witnesses, strict=True)
        missing = [witness for reader, witness in pairs if witness.broken or not reader.ready.is_set()]
        if missing:
            told = ", ".join(sorted({kind for witness in missing for kind in witness.errors}))
            cause = missing[0].broken or (f"they were told {told}" if told else "no gateway answers")
            raise TrialFailed(f"{len(missing)} of {self._plan.readers} readers got no stream: {cause}")

    async def _publish(self, writers: Sequence[Writer]) -> Sequence[Fault]:
        """Publish for the plan's duration, with faults if asked for; return when all is mended again."""
        over = asyncio.Event()
        stopping = asyncio.create_task(self.stop.wait())
        breaking = asyncio.create_task(self._breaker(over)) if self._breaker else None
        writing = [asyncio.create_task(writer.run(self._begin, over)) for writer in writers]
        ends: list[asyncio.Future[Any]] = [stopping] if breaking is None else [stopping, breaking]
        try:
            # A breaker that ends before it is told to has failed: no reason to go on.
            await asyncio.wait(ends, timeout=self._plan.duration, return_when=asyncio.FIRST_COMPLETED)
            over.set()
            self._phase = "finishing"
            faults = await breaking if breaking is not None else []
            await asyncio.gather(*writing)
        finally:
            await cancel([*writing, *ends])
        return [fault._replace(at=fault.at - self._begin) for fault in faults]

    def _see_silences_to_their_end(self, following: Sequence[asyncio.Task[None]]) -> None:
        """Count the silence that a reader is still in."""
        now = time.monotonic()
        for task, witness in zip(following, self._witnesses, strict=True):
            if not task.done():
                witness.heard(now)


async def lateness(longest: list[float]) -> None:
    """Keep in ``longest[0]`` how late this process was at most: its own stalls look like the gateways' from inside."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(TICK)
        longest[0] = max(longest[0], time.monotonic() - before - TICK)


async def cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks and return when they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
