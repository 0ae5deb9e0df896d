"""Pages of a session's log: one small protocol, two ways behind it.

:class:`DirectReader` asks any replica for a batch and needs nothing else. ``consumer.py`` has the other way,
by ordered consumers. Both promise what :class:`~ringmere.log.port.Page` says, and neither can promise that
retention has not taken away the front while a page was read: the caller proves that by a leader read of
the page's start, later than the page arrived (contract 4.6).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from ringmere.core.errors import LogUnavailable
from ringmere.log.connect import Connection
from ringmere.log.places import Place
from ringmere.log.port import Page, Stored
from ringmere.log.stamps import LAST_SEQUENCE, NUM_PENDING, direct_stamp, status, trailing_count

BATCH = 5000
"""Messages of a page at most, however small they are."""
END_OF_BATCH = 204
NOT_FOUND = 404

_encode = msgspec.json.Encoder().encode


class Reader(Protocol):
    """Reads pages."""

    async def page(self, place: Place, start: int, max_bytes: int) -> Page:
        """Read messages with a sequence ≥ ``start``, up to about ``max_bytes``, at least one behind ``start``.

        Raises ``LogUnavailable`` when the log does not answer, or answers with a hole.
        """

    async def close(self) -> None:
        """Release what is kept between pages."""


class DirectReader:
    """Batched direct gets. ``timeout`` is the longest silence inside one page, in seconds."""

    def __init__(self, connection: Connection, timeout: float = 2.0) -> None:
        self._connection = connection
        self._timeout = timeout

    async def page(self, place: Place, start: int, max_bytes: int) -> Page:
        """Read one page; see :class:`Reader`."""
        page = await self._batch(place, start, max_bytes)
        if page.more and page.messages[-1].seq == start:
            further = await self._batch(place, start + 1, max_bytes)
            return Page(page.messages + further.messages, further.more)
        return page

    async def close(self) -> None:
        """Nothing is kept."""

    async def _batch(self, place: Place, start: int, max_bytes: int) -> Page:
        batch = Answers(self._timeout)
        inbox = self._connection.inbox(batch.take)
        request = {
            "seq": max(start, 1),
            "next_by_subj": place.subject,
            "batch": BATCH,
            "max_bytes": max(max_bytes, 1),
        }
        try:
            self._connection.send(f"{self._connection.api}.DIRECT.GET.{place.stream}", _encode(request), inbox.subject)
            return await batch.done
        finally:
            inbox.close()
            batch.close()


class Answers:
    """The answers to one batched direct get, until its end or a silence.

    Each answer names the one before it; one that does not was preceded by a lost one.
    """

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._messages: list[Stored] = []
        self._previous = 0
        self._heard = self._loop.time()
        self._watch = self._loop.call_later(timeout, self._look)
        self.done: asyncio.Future[Page] = self._loop.create_future()

    def take(self, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        """Take one answer."""
        if self.done.done():
            return
        stamp = direct_stamp(block)
        if stamp is None:
            self._end(status(block), block)
            return
        self._heard = self._loop.time()
        if stamp.previous != self._previous:
            self._fail(f"an answer is missing between {self._previous} and {stamp.seq}")
            return
        self._previous = stamp.seq
        self._messages.append(Stored(stamp.seq, stamp.time_ns, payload))

    def close(self) -> None:
        """Stop watching the time."""
        self._watch.cancel()

    def _end(self, code: int, block: bytes) -> None:
        if code == NOT_FOUND and not self._messages:
            self.done.set_result(Page([], False))
        elif code == END_OF_BATCH and self._previous != trailing_count(block, LAST_SEQUENCE):
            self._fail(f"an answer is missing behind {self._previous}")
        elif code == END_OF_BATCH:
            self.done.set_result(Page(self._messages, bool(trailing_count(block, NUM_PENDING))))
        else:
            self._fail(f"a direct get was answered with status {code}")

    def _look(self) -> None:
        silent = self._loop.time() - self._heard
        if silent < self._timeout:
            self._watch = self._loop.call_later(self._timeout - silent, self._look)
        elif not self.done.done():
            self._fail("a direct get was not answered in time")

    def _fail(self, why: str) -> None:
        self.done.set_exception(LogUnavailable(why))
