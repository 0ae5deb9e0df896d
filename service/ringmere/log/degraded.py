"""While nothing can be stored: events for live readers only, and the probe that finds the end of it (contract 8.2).

All instances listen on ``ringmere.degraded.<shard>.<session>`` with one subscription each: a second one a
session would cost every idle reader memory, for what happens hardly ever.

A probe is a real message in the shard's stream, on a subject that is no session's. Nothing less proves that
storing works: the leader answers refusals, conflicts, duplicates and reads from memory, without its
followers and without its disk, and another stream has other replicas.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from ringmere.core.session import is_session_id
from ringmere.log.acks import not_stored, read_ack
from ringmere.log.connect import Connection, Subscription
from ringmere.log.shards import PROBE, degraded_subject, event_subject, stream_name

PROBE_BYTES = 8192
"""More than a block of a file system: what fits into the rest of a block that is there proves nothing."""

_EVERY = "ringmere.degraded.*.*"


class Degraded:
    """The degraded subjects of all shards. ``timeout`` is how long a probe is waited for, in seconds."""

    def __init__(
        self,
        connection: Connection,
        timeout: float,
        on_event: Callable[[str, bytes], None],
        on_doubt: Callable[[int], None],
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._on_event = on_event
        self._on_doubt = on_doubt
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Begin to listen. Raises ``LogUnavailable``, or ``LogRefused`` without the permission."""
        self._subscription = await self._connection.subscribe(_EVERY, self._take)

    async def publish(self, shard: int, session: str, payloads: Sequence[bytes]) -> None:
        """Send events to all instances; return when the server has them."""
        subject = degraded_subject(shard, session)
        for payload in payloads:
            self._connection.send(subject, payload)
        await self._connection.flush()

    def doubt(self, shard: int) -> None:
        """Tell all instances that this one cannot store in a shard."""
        self._connection.send(degraded_subject(shard, PROBE), b"")

    async def probe(self, shard: int) -> None:
        """Store a message that belongs to no session; raise when it is not acknowledged."""
        await store_probe(self._connection, shard, self._timeout)

    def close(self) -> None:
        """Listen no more."""
        if self._subscription is not None:
            self._subscription.close()

    def _take(self, subject: bytes, _reply: bytes, _headers: bytes, payload: bytes) -> None:
        _, _, shard, name = subject.decode().split(".")
        if name == PROBE and shard.isascii() and shard.isdigit():
            self._on_doubt(int(shard))
        elif is_session_id(name):
            self._on_event(name, payload)


async def store_probe(connection: Connection, shard: int, timeout: float) -> int:
    """Store a message that belongs to no session, return its sequence.

    Raises ``LogUnavailable`` or ``PublishUnconfirmed`` when it is not acknowledged within ``timeout`` seconds.
    """
    subject, payload = event_subject(shard, PROBE), secrets.token_bytes(PROBE_BYTES)
    ack = read_ack((await connection.request(subject, payload, None, timeout)).payload, stream_name(shard))
    if ack.error is not None:
        raise not_stored(ack)
    return ack.seq
