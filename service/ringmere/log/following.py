"""One ordered consumer that follows a whole stream: ephemeral, pulled without a pause, never trusted.

Pulled, not pushed, for three reasons. The server may have no more than the open pulls' bytes under way to
this process, so a process that stands still for a while is not cut off for what it has not read; a consumer
that is deleted, or whose server stops, answers its open pulls at once; and nothing here depends on how
flow control is spelt in a server's version. Two pulls are open, half a pull apart, so that one always has room left.

What comes is checked: the consumer's own sequence must step by one, also according to its heartbeats, and
a silence ends it. An end is told once; nothing is delivered behind it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ringmere.core.errors import LogUnavailable
from ringmere.core.limits import MIB
from ringmere.log import ephemeral
from ringmere.log.connect import Connection, Subscription
from ringmere.log.pull import CONFLICT
from ringmere.log.stamps import status, trailing_count

HEARTBEAT = 1.0
"""Seconds of quiet after which the server shows that the consumer is alive."""
LOOKS = 4
"""Looks, half a heartbeat apart, that may find nothing before the consumer counts as lost."""
PULL_BYTES = 2 * MIB
"""What one pull asks for; two are open at once."""
EXPIRES = 30.0
"""Seconds that a pull is open at the longest."""
OVERDUE = 5.0
"""Seconds after which a pull that should have expired is replaced: one that is used up to the byte ends silently."""

HEARTBEAT_CODE = 100
TIMEOUT_CODE = 408
LAST_CONSUMER = b"Nats-Last-Consumer: "
CRLF = b"\r\n"
SMALLEST_MESSAGE = 32
"""Bytes that a pull counts for a message at least; keeps its number of messages from ending it before its bytes do."""

Take = Callable[[bytes, int, bytes, bytes, bytes], None]
"""Takes one message: subject, stream sequence, timestamp as decimal digits (ns), payload, header block."""

_encode = msgspec.json.Encoder().encode


class _Asked(NamedTuple):
    """A pull: its size, how far the consumer was when it was sent, and the loop time at which it is overdue."""

    size: int
    reached: int
    due: float


class Following:
    """One consumer, from :meth:`open` and :meth:`flow` until it is closed or lost.

    ``take`` gets the messages in order; ``lost`` is called once, with why, when no more will come. Neither may raise.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        subject: str,
        take: Take,
        lost: Callable[[str], None],
        timeout: float,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._subject = subject
        self._take = take
        self._lost = lost
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._name = secrets.token_hex(10)
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._pulls: dict[bytes, _Asked] = {}
        self._number = 0
        self._count = 0
        self._quiet = 0

    async def open(self, start: int | None) -> ephemeral.Made:
        """Make the consumer, beginning at sequence ``start`` or, with None, at what is stored next.

        Nothing is delivered before :meth:`flow`. Raises ``LogUnavailable`` or ``LogRefused``.
        """
        inbox = self._connection.inbox(_nothing)
        inbox.close()
        # A message keeps its own subject, so the common inbox could not tell whose it is.
        self._inbox = f"{inbox.subject}.tail"
        self._subscription = await self._connection.subscribe(f"{self._inbox}.*", self._receive)
        try:
            return await ephemeral.create(
                self._connection, self._stream, self._name, self._subject, start, self._timeout
            )
        except BaseException:
            self.close()
            raise

    def flow(self) -> None:
        """Let messages come."""
        self._watch = self._loop.call_later(HEARTBEAT / 2, self._look)
        for _ in range(2):
            if self._subscription is not None:
                self._ask(self._apart())

    def close(self) -> None:
        """End it; nothing is delivered or told after this returns."""
        if self._subscription is None:
            return
        self._subscription.close()
        self._subscription = None
        if self._watch is not None:
            self._watch.cancel()
        ephemeral.remove(self._connection, self._stream, self._name)

    def _fail(self, why: str) -> None:
        if self._subscription is not None:
            self.close()
            self._lost(f"{self._name} on {self._stream} {why}")

    def _receive(self, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        self._quiet = 0
        if not reply:
            self._status(subject, block)
            return
        fields = reply.split(b".")
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<consumer's>.<time>.<pending>; newer servers put
        # domain and account before the stream, and may put a token behind everything.
        at = 5 if len(fields) == 9 else 7
        try:
            seq, count, time = int(fields[at]), int(fields[at + 1]), fields[at + 2]
        except (IndexError, ValueError):
            self._fail(f"was answered with {reply.decode(errors='replace')}")
            return
        if count != self._count + 1:
            self._fail(f"went from {self._count} to {count}")
            return
        self._count = count
        self._take(subject, seq, time, payload, block)

    def _status(self, subject: bytes, block: bytes) -> None:
        code = status(block)
        if code == HEARTBEAT_CODE:
            last = trailing_count(block, LAST_CONSUMER)
            if last is not None and last > self._count:
                self._fail(f"has sent {last}, of which {self._count} arrived")
            return
        too_small = code == CONFLICT and b"MaxBytes" in block
        if code != TIMEOUT_CODE and not too_small:
            self._fail(f"was answered with {block.partition(CRLF)[0].decode(errors='replace')}")
            return
        asked = self._pulls.pop(subject[len(self._inbox) + 1 :], None)
        if asked is None:
            return
        if not too_small:
            self._ask(self._apart())
        elif asked.reached == self._count:
            # Nothing came and yet there was no room: the next message alone is larger.
            self._ask(2 * asked.size)
        else:
            self._ask(PULL_BYTES)

    def _apart(self) -> int:
        """Return the size that keeps two unused pulls from being used up at the same moment."""
        return PULL_BYTES // 2 if any(asked.size >= PULL_BYTES for asked in self._pulls.values()) else PULL_BYTES

    def _ask(self, size: int) -> None:
        self._number += 1
        request = {
            "batch": size // SMALLEST_MESSAGE,
            "max_bytes": size,
            "expires": int(EXPIRES * 1e9),
            "idle_heartbeat": int(HEARTBEAT * 1e9),
        }
        subject = f"{self._connection.api}.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        try:
            self._connection.send(subject, _encode(request), f"{self._inbox}.{self._number}")
        except LogUnavailable as error:
            self._fail(str(error))
            return
        due = self._loop.time() + EXPIRES + OVERDUE
        self._pulls[b"%d" % self._number] = _Asked(size, self._count, due)

    def _look(self) -> None:
        """Count looks without a sign of life, not seconds: a loop that stood still must not condemn the server."""
        self._quiet += 1
        if self._quiet >= LOOKS:
            self._fail("is silent")
            return
        self._watch = self._loop.call_later(HEARTBEAT / 2, self._look)
        now = self._loop.time()
        for number in [number for number, asked in self._pulls.items() if asked.due < now]:
            del self._pulls[number]
            self._ask(self._apart())


def _nothing(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
    """Take no answers: only the subject of the inbox is wanted."""
