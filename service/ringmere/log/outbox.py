"""What is on its way to the log: checked for size, bounded in number and bytes, sent in order (contract 2.6)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence

from ringmere.core.errors import EventTooLarge, PublishOverloaded
from ringmere.core.limits import Limits
from ringmere.log.connect import Connection, Reply
from ringmere.log.places import Place
from ringmere.log.port import Row

MSG_ID = "Nats-Msg-Id"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"


class Outbox:
    """Sends rows. ``timeout`` is how long one acknowledgement is waited for, in seconds."""

    def __init__(self, connection: Connection, size_limit: Callable[[], int], limits: Limits, timeout: float) -> None:
        self.connection = connection
        self.size_limit = size_limit
        self.timeout = timeout
        self.inflight = 0
        self.inflight_bytes = 0
        self._limits = limits
        self._up = asyncio.Event()
        self._up.set()
        connection.on_state(lambda up: self._up.set() if up else self._up.clear())

    async def connected(self) -> None:
        """Wait for the connection. Raises ``TimeoutError``."""
        async with asyncio.timeout(self.timeout):
            await self._up.wait()

    def launch(self, place: Place, row: Row, headers: Mapping[str, str]) -> asyncio.Future[Reply]:
        """Send one row now; the future is its answer.

        Raises ``EventTooLarge``, ``PublishOverloaded`` or ``LogUnavailable``; then nothing was sent.
        """
        size = self.check_size(row, headers)
        self._admit(1, size)
        reply = self.connection.start_request(place.subject, row.payload, headers, self.timeout)
        self._count(reply, 1, size)
        return reply

    def launch_batch(
        self, place: Place, rows: Sequence[Row], expected: int | None
    ) -> tuple[asyncio.Future[Reply], asyncio.Future[Reply]]:
        """Send an atomic batch in one turn; the futures are the first row's answer and the commit's.

        Raises as :meth:`launch` does.
        """
        batch = secrets.token_hex(12)
        blocks = []
        for index, row in enumerate(rows):
            headers = headers_of(place, row, expected if index == 0 else None)
            headers[BATCH_ID] = batch
            headers[BATCH_SEQUENCE] = str(index + 1)
            blocks.append(headers)
        blocks[-1][BATCH_COMMIT] = "1"
        size = sum(self.check_size(row, headers) for row, headers in zip(rows, blocks, strict=True))
        self._admit(len(rows), size)
        request, send = self.connection.start_request, self.connection.send
        first = request(place.subject, rows[0].payload, blocks[0], self.timeout)
        for row, headers in zip(rows[1:-1], blocks[1:-1], strict=True):
            send(place.subject, row.payload, "", headers)
        last = request(place.subject, rows[-1].payload, blocks[-1], self.timeout)
        self._count(last, len(rows), size)
        return first, last

    def check_size(self, row: Row, headers: Mapping[str, str]) -> int:
        """Return the bytes that a message takes; NATS would end the connection over one that is too large."""
        size = len(row.payload) + 12 + sum(len(name) + len(value) + 4 for name, value in headers.items())
        limit = self.size_limit()
        if len(row.payload) > limit or size > self.connection.max_payload:
            raise EventTooLarge(len(row.payload), limit)
        return size

    def _admit(self, count: int, size: int) -> None:
        limits = self._limits
        if self.inflight + count > limits.publish_inflight or (
            self.inflight and self.inflight_bytes + size > limits.publish_inflight_bytes
        ):
            raise PublishOverloaded(f"{self.inflight} publishes are waiting for the log already")

    def _count(self, reply: asyncio.Future[Reply], count: int, size: int) -> None:
        """Hold room until the answer is there, or nobody waits for it any more."""
        self.inflight += count
        self.inflight_bytes += size

        def release(done: asyncio.Future[Reply]) -> None:
            self.inflight -= count
            self.inflight_bytes -= size
            if not done.cancelled():
                done.exception()

        reply.add_done_callback(release)


def headers_of(place: Place, row: Row, expected: int | None) -> dict[str, str]:
    """Return the headers that make a row safe to repeat and conditional (contract 2.3, 2.4), and carry its trace."""
    headers: dict[str, str] = {}
    if row.key is not None:
        headers[MSG_ID] = f"{place.session}/{row.key}"
    if expected is not None:
        headers[EXPECTED] = str(expected)
    if row.trace is not None:
        headers.update(row.trace.headers())
    return headers
