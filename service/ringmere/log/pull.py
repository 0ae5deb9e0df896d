"""One ordered consumer: ephemeral, pulled page by page, never trusted.

The server pushes nothing: each page is one pull with a size limit, which is the flow control. What the
consumer delivers is checked here: its own sequence must step by one, and a silence ends it.
"""

from __future__ import annotations

import asyncio

import msgspec

from ringmere.log import ephemeral
from ringmere.log.connect import Connection
from ringmere.log.places import Place
from ringmere.log.port import Stored
from ringmere.log.reader import NOT_FOUND
from ringmere.log.stamps import status

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
        await ephemeral.create(self._connection, place.stream, self.name, place.subject, start, self._timeout)

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
        ephemeral.remove(self._connection, self.place.stream, self.name)

    def _look(self) -> None:
        if self._done is None or self._done.done():
            return
        silent = self._loop.time() - self._heard
        if silent < self._timeout:
            self._watch = self._loop.call_later(self._timeout - silent, self._look)
        else:
            self._done.set_exception(ConsumerLost(f"{self.name} is silent"))
