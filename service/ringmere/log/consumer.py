"""Pages by ordered consumers.

A consumer is cheap to read from and dear to make (in a cluster it takes the meta leader), so the first
page of a replay is a direct get, and most replays end there. A consumer is made when somebody comes back
for the second page. It is kept between consecutive pages, and removed at the end or when nobody asks
for more. When it is lost, reading goes on with a new one from where the page begins.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict

from ringmere.core.errors import LogRefused, LogUnavailable
from ringmere.log.connect import Connection, Subscription
from ringmere.log.places import Place
from ringmere.log.port import Page, Stored
from ringmere.log.pull import ConsumerLost, Pull
from ringmere.log.reader import BATCH, DirectReader

KEPT = 16
"""Consumers kept between pages at most; the one idle for longest goes first."""
BEGUN = 1024
"""First pages remembered, so that a second one is known as such."""
IDLE = 2.0
"""Seconds that a consumer is kept for the next page of its replay."""
SHUN = 5.0
"""Seconds without further tries after a consumer could not be made."""


class ConsumerReader:
    """Reads pages by ordered consumers, and by direct gets while consumers cannot be made."""

    def __init__(self, connection: Connection, direct: DirectReader, timeout: float = 2.0) -> None:
        self._connection = connection
        self._direct = direct
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._subscribing = asyncio.Lock()
        self._pulls: dict[bytes, Pull] = {}
        self._kept: OrderedDict[tuple[str, int], Pull] = OrderedDict()
        self._begun: OrderedDict[tuple[str, int], bool] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._shunned = 0.0

    async def page(self, place: Place, start: int, max_bytes: int) -> Page:
        """Read one page; see :class:`~ringmere.log.reader.Reader`."""
        pull = self._resume(place, start)
        if pull is None and self._begun.pop((place.subject, start), None) is None:
            return await self._first_page(place, start, max_bytes)
        first = [pull.last] if pull is not None and pull.last is not None and pull.last.seq == start else []
        for _ in range(2):
            if pull is None:
                pull = await self._open(place, start)
            if pull is None:
                break
            try:
                messages, more = await self._fetch(pull, start, max_bytes)
            except ConsumerLost:
                # It may have gone with its stream: what is remembered of it is read again, too.
                self._drop(pull)
                pull, first = None, []
                continue
            except BaseException:
                self._drop(pull)
                raise
            self._keep_or_drop(pull, more)
            return Page(first + messages, more)
        return await self._direct.page(place, start, max_bytes)

    async def close(self) -> None:
        """Remove all consumers."""
        if self._timer is not None:
            self._timer.cancel()
        for pull in list(self._pulls.values()):
            self._drop(pull)
        self._kept.clear()
        if self._subscription is not None:
            self._subscription.close()

    async def _first_page(self, place: Place, start: int, max_bytes: int) -> Page:
        page = await self._direct.page(place, start, max_bytes)
        if page.more:
            last = page.messages[-1].seq
            self._begun[place.subject, last] = self._begun[place.subject, last + 1] = True
            while len(self._begun) > BEGUN:
                self._begun.popitem(last=False)
        return page

    async def _fetch(self, pull: Pull, start: int, max_bytes: int) -> tuple[list[Stored], bool]:
        messages, more = await pull.fetch(BATCH, max(max_bytes, 1))
        if more and (not messages or messages[-1].seq <= start):
            # The next message alone is larger than a page.
            further, more = await pull.fetch(1 if messages else 2, 0)
            messages += further
        return messages, more

    async def _open(self, place: Place, start: int) -> Pull | None:
        """Return a new consumer, None when there are none to be had now."""
        if self._loop.time() < self._shunned:
            return None
        try:
            await self._listen()
            pull = Pull(self._connection, place, secrets.token_hex(10), self._inbox, self._timeout)
            await pull.create(start)
        except (LogUnavailable, LogRefused):
            self._shunned = self._loop.time() + SHUN
            return None
        self._pulls[pull.name.encode()] = pull
        return pull

    async def _listen(self) -> None:
        """Subscribe, once, to where all pulls are answered."""
        async with self._subscribing:
            if self._subscription is None:
                inbox = self._connection.inbox(_nothing)
                inbox.close()
                # A message keeps its own subject, so the common inbox could not tell whose it is.
                self._inbox = f"{inbox.subject}.pull"
                self._subscription = await self._connection.subscribe(f"{self._inbox}.*", self._take)

    def _take(self, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        if reply:
            fields = reply.split(b".")
            # $JS.ACK.<stream>.<consumer>.…, or with domain and account before the stream and a token at the end.
            at = 3 if len(fields) == 9 else 5
            pull = self._pulls.get(fields[at]) if len(fields) > at + 5 else None
            if pull is not None:
                pull.message(fields[at + 1 : at + 6], payload)
            return
        name, _, number = subject[len(self._inbox) + 1 :].partition(b"-")
        pull = self._pulls.get(name)
        if pull is not None:
            pull.status(number, block)

    def _resume(self, place: Place, start: int) -> Pull | None:
        """Return the consumer that stands where the page begins."""
        return self._kept.pop((place.subject, start), None) or self._kept.pop((place.subject, start - 1), None)

    def _keep_or_drop(self, pull: Pull, more: bool) -> None:
        if not more or pull.last is None:
            self._drop(pull)
            return
        replaced = self._kept.pop((pull.place.subject, pull.last.seq), None)
        if replaced is not None:
            self._drop(replaced)
        pull.expires = self._loop.time() + IDLE
        self._kept[pull.place.subject, pull.last.seq] = pull
        if len(self._kept) > KEPT:
            self._drop(self._kept.popitem(last=False)[1])
        if self._timer is None:
            self._timer = self._loop.call_later(IDLE, self._tidy)

    def _tidy(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._kept and next(iter(self._kept.values())).expires <= now:
            self._drop(self._kept.popitem(last=False)[1])
        if self._kept:
            self._timer = self._loop.call_later(IDLE, self._tidy)

    def _drop(self, pull: Pull) -> None:
        if self._pulls.pop(pull.name.encode(), None) is not None:
            pull.remove()


def _nothing(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
    """Take no answers: only the subject of the inbox is wanted."""
