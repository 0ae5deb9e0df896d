"""Pages by an ordered consumer: ephemeral, pulled page by page, never trusted.

The server pushes nothing: each page is one pull with a size limit, which is the flow control. What a
consumer delivers is checked here: its own sequence must step by one, and a silence ends it. After
either, reading goes on behind the last good sequence with a new consumer.

A consumer is cheap to read from and dear to make (in a cluster it takes the meta leader), so the first
page of a replay is a direct get, and most replays end there. A consumer is made when somebody comes back
for the second page. It is kept between consecutive pages, and removed at the end or when nobody asks
for more.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict

import msgspec

from ringmere.core.errors import LogRefused, LogUnavailable
from ringmere.log.connect import Connection, Subscription
from ringmere.log.places import Place
from ringmere.log.port import Page, Stored
from ringmere.log.reader import BATCH, NOT_FOUND, DirectReader
from ringmere.log.stamps import status

KEPT = 16
"""Consumers kept between pages at most; the one idle for longest goes first."""
BEGUN = 1024
"""First pages remembered, so that a second one is known as such."""
IDLE = 2.0
"""Seconds that a consumer is kept for the next page of its replay."""
INACTIVE_NS = 10_000_000_000
"""The server removes a consumer that nobody pulls from for this long: when this process dies."""
SHUN = 5.0
"""Seconds without further tries after a consumer could not be made."""
CONFLICT = 409
"""Status of a pull that ended early: its size limit is reached, or the consumer is gone."""

_encode = msgspec.json.Encoder().encode


class ConsumerLost(Exception):
    """A consumer is gone, silent, or has skipped something."""


class Pull:
    """One ordered consumer, from a sequence on."""

    def __init__(self, connection: Connection, place: Place, name: str, inbox: str, timeout: float) -> None:
        self._connection = connection
        self.place = place
        self.name = name
        self._inbox = inbox
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._fetches = 0
        self._batch = 0
        self._messages: list[Stored] = []
        self._done: asyncio.Future[bool] | None = None
        self._heard = 0.0
        self._watch: asyncio.TimerHandle
        self.last: Stored | None = None
        self.expires = 0.0

    async def create(self, start: int) -> None:
        """Make the consumer on the server. Raises ``LogUnavailable``."""
        place = self.place
        config = {
            "name": self.name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(start, 1),
            "ack_policy": "none",
            "replay_policy": "instant",
            "filter_subject": place.subject,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_NS,
        }
        body = {"stream_name": place.stream, "config": config, "action": "create"}
        operation = f"CONSUMER.CREATE.{place.stream}.{self.name}.{place.subject}"
        reply = await self._connection.request(
            f"{self._connection.api}.{operation}", _encode(body), timeout=self._timeout
        )
        if b'"error"' in reply.payload[:200]:
            raise LogUnavailable(f"no consumer on {place.stream}: {reply.payload[:200].decode(errors='replace')}")

    async def fetch(self, batch: int, max_bytes: int) -> tuple[list[Stored], bool]:
        """Pull once; return what came and whether there is more. Raises :class:`ConsumerLost` when nothing did."""
        self._fetches += 1
        self._batch = batch
        self._messages = []
        self._done = self._loop.create_future()
        self._heard = self._loop.time()
        request: dict[str, object] = {"batch": batch, "no_wait": True}
        if max_bytes:
            request["max_bytes"] = max_bytes
        subject = f"{self._connection.api}.CONSUMER.MSG.NEXT.{self.place.stream}.{self.name}"
        self._connection.send(subject, _encode(request), f"{self._inbox}.{self.name}-{self._fetches}")
        self._watch = self._loop.call_later(self._timeout, self._look)
        try:
            more = await self._done
        except ConsumerLost:
            if not self._messages:
                raise
            more = True
        finally:
            self._watch.cancel()
            self._done = None
        if self._messages:
            self.last = self._messages[-1]
        return self._messages, more

    def message(self, fields: list[bytes], payload: bytes) -> None:
        """Take one message; ``fields`` are the last five of its acknowledgement subject."""
        if self._done is None or self._done.done():
            return
        seq, count, time_ns, pending = int(fields[1]), int(fields[2]), int(fields[3]), int(fields[4])
        if count != self._count + 1:
            self._done.set_exception(ConsumerLost(f"{self.name} went from {self._count} to {count}"))
            return
        self._count = count
        self._heard = self._loop.time()
        self._messages.append(Stored(seq, time_ns, payload))
        if not pending:
            self._done.set_result(False)
        elif len(self._messages) >= self._batch:
            self._done.set_result(True)

    def status(self, number: bytes, block: bytes) -> None:
        """Take a status of the pull that ``number`` names."""
        if self._done is None or self._done.done() or number != b"%d" % self._fetches:
            return
        code = status(block)
        if code == NOT_FOUND:
            self._done.set_result(False)
        elif code == CONFLICT and b"MaxBytes" in block:
            self._done.set_result(True)
        else:
            self._done.set_exception(ConsumerLost(f"{self.name} was answered with status {code}"))

    def remove(self) -> None:
        """Remove the consumer; one that cannot be told dies of its inactivity."""
        with contextlib.suppress(LogUnavailable):
            self._connection.send(f"{self._connection.api}.CONSUMER.DELETE.{self.place.stream}.{self.name}", b"")

    def _look(self) -> None:
        if self._done is None or self._done.done():
            return
        silent = self._loop.time() - self._heard
        if silent < self._timeout:
            self._watch = self._loop.call_later(self._timeout - silent, self._look)
        else:
            self._done.set_exception(ConsumerLost(f"{self.name} is silent"))


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
