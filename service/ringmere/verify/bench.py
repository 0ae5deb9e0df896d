"""One load run: readers first, then events, then the end of all sessions, then the sums."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import aiohttp

from ringmere.client.errors import ClientError
from ringmere.client.publish import Publisher
from ringmere.verify.figures import Figures
from ringmere.verify.listener import Listener
from ringmere.verify.load import Heard, LoadPlan, Sent
from ringmere.verify.plan import END_TYPE
from ringmere.verify.pump import Pump
from ringmere.verify.trial import CONNECT_DEADLINE, TrialFailed, cancel, lateness

CLOSERS = 32
"""Sessions that are closed at once."""
CLOSE_PATIENCE = 10.0
"""Seconds that the end of a session is tried."""


class Bench:
    """One run of ``plan`` at the gateways ``addresses``; setting ``stop`` ends the publishing early."""

    def __init__(self, plan: LoadPlan, addresses: Sequence[str]) -> None:
        self.stop = asyncio.Event()
        self._plan = plan
        self._addresses = addresses
        self._sent = Sent()
        self._heard = [Heard(plan.session(number % plan.sessions)) for number in range(plan.readers)]
        self._begin = 0.0
        self._phase = "connecting"
        self._closed = False

    async def run(self) -> Figures:
        """Run to the end. Raises :class:`~ringmere.verify.trial.TrialFailed` when not every reader gets a stream."""
        late = [0.0]
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
            ticking = asyncio.create_task(lateness(late))
            stack.callback(ticking.cancel)
            listeners = [
                Listener(self._plan, heard, self._addresses[number % len(self._addresses)], http)
                for number, heard in enumerate(self._heard)
            ]
            following = [asyncio.create_task(listener.run()) for listener in listeners]
            stack.push_async_callback(cancel, following)
            # Whatever happens, no session stays open; runs before the readers are cancelled.
            stack.push_async_callback(self._close_sessions, http)
            await self._all_connected(listeners)
            await self._publish(stack, http)
            self._phase = "settling"
            await self._close_sessions(http)
            if following:
                await asyncio.wait(following, timeout=self._plan.settle)
        return Figures(self._plan, self._sent, self._heard, self._begin, late[0])

    def progress(self) -> str:
        """Return where the run is now, for people."""
        seconds = time.monotonic() - self._begin if self._begin else 0.0
        delivered = sum(heard.events for heard in self._heard)
        return f"{self._phase} {seconds:5.1f} s  {self._sent.acknowledged.total()} acknowledged  {delivered} delivered"

    async def _all_connected(self, listeners: Sequence[Listener]) -> None:
        waiting = [asyncio.create_task(listener.ready.wait()) for listener in listeners]
        if waiting:
            await asyncio.wait(waiting, timeout=CONNECT_DEADLINE)
        await cancel(waiting)
        missing = [each.heard for each in listeners if each.heard.broken or not each.ready.is_set()]
        if missing:
            told = ", ".join(sorted({kind for heard in missing for kind in heard.errors}))
            cause = missing[0].broken or (f"they were told {told}" if told else "no gateway answers")
            raise TrialFailed(f"{len(missing)} of {self._plan.readers} readers got no stream: {cause}")

    async def _publish(self, stack: AsyncExitStack, http: aiohttp.ClientSession) -> None:
        timeout = self._plan.try_timeout
        doors = [
            await stack.enter_async_context(Publisher(address, http=http, timeout=timeout, patience=0.0))
            for address in self._addresses
        ]
        self._begin, self._phase = time.monotonic(), "publishing"
        over = asyncio.Event()
        pumping = asyncio.create_task(Pump(self._plan, doors, self._sent).run(self._begin, over))
        try:
            async with asyncio.timeout(self._plan.duration):
                await self.stop.wait()
        except TimeoutError:
            self._phase = "finishing"
        finally:
            over.set()
            await asyncio.wait({pumping})
        pumping.result()

    async def _close_sessions(self, http: aiohttp.ClientSession) -> None:
        """Publish the last event of each session, once, if there may be events in them."""
        if self._closed or not self._begin:
            return
        self._closed = True
        turns = asyncio.Semaphore(CLOSERS)

        async def close(index: int, door: Publisher) -> None:
            async with turns:
                try:
                    await door.publish(self._plan.session(index), {"type": END_TYPE, "data": None})
                except ClientError as error:
                    self._sent.errors[f"close: {error.code}"] += 1

        async with Publisher(self._addresses[0], http=http, patience=CLOSE_PATIENCE) as door:
            await asyncio.gather(*(close(index, door) for index in range(self._plan.sessions)))
