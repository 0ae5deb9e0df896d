"""The proof that a shard works: one message of no session stored, republished, read back; one consumer made."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from ringmere.core.errors import LogRefused, LogUnavailable, PublishUnconfirmed
from ringmere.log import api, ephemeral
from ringmere.log.connect import Connection, NoReply, NoResponders, NotPermitted
from ringmere.log.degraded import store_probe
from ringmere.log.findings import Finding, bad, ok, warn
from ringmere.log.shape import StreamSettings
from ringmere.log.shards import PROBE, event_subject, live_subject, stream_name
from ringmere.log.stamps import direct_stamp, live_stamp

PATIENCE = 5.0
"""Seconds that an acknowledgement, or its echo, is waited for."""
SLOW = 1.0
"""Seconds that a single message may take in good order."""


class Proof:
    """The proof of one shard whose stream exists; ``info`` is what its leader says of it."""

    def __init__(self, connection: Connection, settings: StreamSettings, shard: int, info: Any) -> None:
        self._connection = connection
        self._settings = settings
        self._shard = shard
        self._stream = stream_name(shard)
        self._info = info
        self._heard: asyncio.Queue[int] = asyncio.Queue()

    async def run(self) -> AsyncIterator[Finding]:
        """Yield what became of it; what depends on a step that failed is left out."""
        listening = bool(self._info["config"].get("republish"))
        try:
            subscription = await self._connection.subscribe(live_subject(self._shard, PROBE), self._echo)
        except LogRefused:
            # Told under permissions.
            listening, subscription = False, None
        try:
            begin = time.monotonic()
            try:
                seq = await store_probe(self._connection, self._shard, PATIENCE)
            except (LogUnavailable, PublishUnconfirmed) as error:
                yield not_stored(self._stream, error, self._copies())
                return
            yield stored(self._stream, seq, time.monotonic() - begin)
            if subscription is not None:
                yield await self._republish(seq, begin) if listening else self._no_republish()
            yield await self._read_back(seq)
            yield await self._consumer()
        finally:
            if subscription is not None:
                subscription.close()

    def _copies(self) -> int:
        return int(self._info["config"].get("num_replicas", 1))

    def _echo(self, _subject: bytes, _reply: bytes, headers: bytes, _payload: bytes) -> None:
        stamp = live_stamp(headers)
        if stamp is not None:
            self._heard.put_nowait(stamp[0])

    async def _republish(self, seq: int, begin: float) -> Finding:
        try:
            async with asyncio.timeout(PATIENCE):
                while await self._heard.get() != seq:
                    continue
        except TimeoutError:
            todo = "live events come late, from the log: look at the links between NATS servers (routes, leafnodes)"
            return bad("republish", self._stream, f"message {seq} did not come back on its live subject", todo)
        return ok("republish", self._stream, f"message {seq} came back after {time.monotonic() - begin:.3f} s")

    def _no_republish(self) -> Finding:
        return ok("republish", self._stream, "not configured: instances follow this stream by a consumer")

    async def _read_back(self, seq: int) -> Finding:
        try:
            stored = await api.message_at(self._connection, self._stream, seq)
            query = json.dumps({"seq": seq}).encode()
            subject = f"{self._connection.api}.DIRECT.GET.{self._stream}"
            direct = await self._connection.request(subject, query, None, PATIENCE)
        except LogUnavailable as error:
            return bad("reading", self._stream, str(error), "see what is said of its copies and of permissions")
        if stored is None or stored.subject != event_subject(self._shard, PROBE):
            todo = "run it again; if it stays so, the stream drops what it acknowledges: see its limits"
            return bad("reading", self._stream, f"message {seq} was acknowledged and is not there", todo)
        if direct_stamp(direct.headers) is None:
            todo = "run it again: a copy may only be late"
            return warn("reading", self._stream, f"message {seq} is not on the copy that answers direct reads", todo)
        return ok("reading", self._stream, f"message {seq} was read from the leader and directly")

    async def _consumer(self) -> Finding:
        name = f"doctor-{secrets.token_hex(4)}"
        subject = event_subject(self._shard, PROBE)
        try:
            await ephemeral.create(self._connection, self._stream, name, subject, None, PATIENCE)
        except LogUnavailable as error:
            todo = "long replays are read more slowly meanwhile: see the limits of consumers, and JetStream's leader"
            return bad("consumers", self._stream, f"none can be made: {error}", todo)
        try:
            await api.call(self._connection, f"CONSUMER.DELETE.{self._stream}.{name}")
        except LogUnavailable as error:
            return warn(
                "consumers", self._stream, f"one was made and not removed: {error}", "it goes by itself in 10 s"
            )
        return ok("consumers", self._stream, "one was made and removed")


def stored(stream: str, seq: int, seconds: float) -> Finding:
    """Judge how long an acknowledgement took."""
    text = f"message {seq} was acknowledged after {seconds:.3f} s"
    if seconds < SLOW:
        return ok("storing", stream, text)
    return warn("storing", stream, text, "look at the disk, and the load, of the stream's leader and its copies")


def not_stored(stream: str, error: LogUnavailable | PublishUnconfirmed, copies: int) -> Finding:
    """Judge why a message was not acknowledged by a stream that exists, with ``copies`` copies."""
    if isinstance(error, NotPermitted):
        return bad("storing", stream, str(error), "allow it, see ops/nats/permissions.conf")
    if isinstance(error, NoResponders):
        return bad("storing", stream, str(error), "the stream does not take its own subjects: see its shape")
    if isinstance(error, NoReply):
        if copies == 1:
            todo = (
                "is the server's disk full, or was it? make room, then restart the server: "
                "one that could not write does not store again before that"
            )
        else:
            todo = "fewer than half of its copies answer, or a disk is full: look at the servers that hold it"
        return bad("storing", stream, f"no acknowledgement within {PATIENCE:g} s, though the stream has a leader", todo)
    todo = (
        "no room: make some, or raise the limits of stream or account; then restart a single server whose disk was full"
    )
    return bad("storing", stream, str(error), todo)
