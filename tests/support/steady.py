"""Publishers that repeat each event with its key until it is acknowledged, and readers that never let go."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from ringmere.core.decoder import Decoder
from support.nats import eventually

WITHIN = 90.0
"""Seconds that anything may take before a test gives up; elections and a busy machine count in."""
TRY = 8.0
PAUSE = 0.1
WAIT = {503, 504}
"""What a publisher may be told while something is broken."""


class Follower:
    """One reader on one connection. ``seen`` holds the envelopes as they came, ``end`` why no more will come."""

    def __init__(self, url: str, session: str) -> None:
        self.url = url
        self.session = session
        self.seen: list[dict[str, Any]] = []
        self.opened = asyncio.Event()
        self.end = ""

    @property
    def events(self) -> list[tuple[int, int]]:
        """The (id, number) of the events in the order they came."""
        return [(envelope["id"], envelope["data"]["n"]) for envelope in self.seen if "id" in envelope]

    @property
    def controls(self) -> list[str]:
        """The types of the control frames."""
        return [envelope["type"] for envelope in self.seen if "id" not in envelope]

    async def run(self, http: aiohttp.ClientSession) -> None:
        """Read until the stream ends."""
        try:
            async with http.get(f"{self.url}/session/{self.session}/events") as answer:
                assert answer.status == 200, answer
                self.opened.set()
                decoder = Decoder()
                async for chunk in answer.content.iter_any():
                    self.seen.extend(json.loads(message.data) for message in decoder.feed(chunk))
            self.end = "the stream ended"
        except (aiohttp.ClientError, OSError) as error:
            self.end = repr(error)


class Load:
    """Publishes to ``sessions`` at ``urls`` in turn until ``over``: ``batch`` events a request, ``pause`` s apart.

    ``stored`` is what was acknowledged: (id, number) by session. ``told`` counts the answers that were none.
    """

    def __init__(
        self, urls: Sequence[str], sessions: Sequence[str], pause: float = 0.02, batch: int = 1, pad: int = 0
    ) -> None:
        self.over = asyncio.Event()
        self.stored: dict[str, list[tuple[int, int]]] = {session: [] for session in sessions}
        self.told: Counter[int] = Counter()
        self._urls = urls
        self._pause = pause
        self._batch = batch
        self._pad = "x" * pad

    @property
    def least(self) -> int:
        """How many events of every session are stored."""
        return min(map(len, self.stored.values()))

    def due(self, session: str) -> list[tuple[int, int]]:
        """What a reader of all must have got, in the log's order."""
        return sorted(self.stored[session])

    async def run(self, http: aiohttp.ClientSession) -> None:
        """Publish to all sessions at once; no event that was begun is given up."""
        async with asyncio.TaskGroup() as group:
            for first, session in enumerate(self.stored):
                group.create_task(self._write(http, session, first))

    async def _write(self, http: aiohttp.ClientSession, session: str, first: int) -> None:
        loop = asyncio.get_running_loop()
        doors = itertools.cycle([*self._urls[first % len(self._urls) :], *self._urls[: first % len(self._urls)]])
        number, due, done = 1, loop.time(), True
        while not (done and self.over.is_set()):
            numbers = range(number, number + self._batch)
            done = await self._try(http, next(doors), session, numbers)
            if not done:
                await asyncio.sleep(PAUSE)
                continue
            number += self._batch
            # What an outage has held up is made up for.
            due += self._pause
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _try(self, http: aiohttp.ClientSession, url: str, session: str, numbers: Sequence[int]) -> bool:
        """Publish once; say whether all is acknowledged."""
        rows = [{"type": "t", "data": {"n": n, "pad": self._pad}, "key": f"k{n}"} for n in numbers]
        try:
            timeout = aiohttp.ClientTimeout(total=TRY)
            async with http.post(f"{url}/session/{session}/events", json=rows, timeout=timeout) as answer:
                body = await answer.json()
        except (aiohttp.ClientError, OSError, TimeoutError):
            self.told[0] += 1
            return False
        if answer.status in (200, 201) or (answer.status == 207 and all("id" in row for row in body["results"])):
            ids = [row["id"] for row in body["results"]]
            self.stored[session] += zip(ids, numbers, strict=True)
            return True
        self.told[answer.status] += 1
        if answer.status == 207:
            assert {row["code"] for row in body["results"] if "id" not in row} <= REPEATABLE, body
        else:
            assert answer.status in WAIT, body
        return False


REPEATABLE = {"log_unavailable", "publish_unconfirmed", "publish_overloaded"}


class Scene:
    """Readers that stay and publishers that go on, while a test breaks things between them."""

    def __init__(self, load: Load, followers: Sequence[Follower], writing: asyncio.Task[None]) -> None:
        self.load = load
        self.followers = followers
        self._writing = writing

    async def flow(self, count: int = 40) -> None:
        """Wait until so many more events of every session are acknowledged."""
        enough = self.load.least + count

        def so_many() -> bool:
            if self._writing.done():
                self._writing.result()
            return self.load.least >= enough

        try:
            await eventually(so_many, "the publishers get on", WITHIN)
        except AssertionError as error:
            raise AssertionError(f"{error}; they were told {self.load.told}") from None

    async def caught_up(self) -> None:
        """Wait until each reader has got the last event, or its stream has ended."""
        last = {session: max(events)[0] for session, events in self.load.stored.items()}

        def there(follower: Follower) -> bool:
            return bool(follower.end) or (bool(follower.seen) and _newest(follower) >= last[follower.session])

        try:
            await eventually(lambda: all(map(there, self.followers)), "the readers get everything", WITHIN)
        except AssertionError as error:
            late = [(f.url, f.session, _newest(f), last[f.session], f.controls) for f in self.followers if not there(f)]
            raise AssertionError(f"{error}: {late}") from None

    def complete(self, controls: frozenset[str] = frozenset()) -> None:
        """Hold every reader to: open, complete, in order, once, and no frame but ``controls``."""
        for follower in self.followers:
            assert follower.end == "", (follower.url, follower.end)
            due = self.load.due(follower.session)
            assert follower.events == due, _differences(follower.events, due)
            assert set(follower.controls) <= controls, follower.controls


def _newest(follower: Follower) -> int:
    return max((envelope["id"] for envelope in follower.seen if "id" in envelope), default=0)


def _differences(got: list[tuple[int, int]], due: list[tuple[int, int]]) -> str:
    missing, extra = sorted(set(due) - set(got))[:5], sorted(set(got) - set(due))[:5]
    twice = [event for event, count in Counter(got).items() if count > 1][:5]
    return f"missing {missing}, not due {extra}, twice {twice}, in order: {got == sorted(got)}"


@asynccontextmanager
async def scene(load: Load, urls: Sequence[str], readers: int = 2) -> AsyncIterator[Scene]:
    """Open ``readers`` streams of each session at ``urls`` in turn, then publish until the block ends.

    Behind the block, every reader has got the last event, or has ended.
    """
    doors = itertools.cycle(urls)
    followers = [Follower(next(doors), session) for session in load.stored for _ in range(readers)]
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    ) as http:
        reading = [asyncio.create_task(follower.run(http)) for follower in followers]
        writing = None
        try:
            await eventually(lambda: all(f.opened.is_set() for f in followers), "all streams are open", WITHIN)
            writing = asyncio.create_task(load.run(http))
            opened = Scene(load, followers, writing)
            await opened.flow()
            yield opened
            load.over.set()
            await asyncio.wait_for(writing, WITHIN)
            await opened.caught_up()
        finally:
            tasks = reading if writing is None else [*reading, writing]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
