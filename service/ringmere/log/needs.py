"""What the NATS user of an instance must be allowed, and how to find out without doing any of it.

A publish with ``Nats-Trace-Only`` is judged by the server like any other and delivered to nobody, so even a
subject that deletes a stream can be asked for. The server tells what became of it on a subject that the user
must be allowed, too: one where only an event's name is looked at, and ours is none. Should a server not know
the header all the same, the payloads do no harm either: none of them is a request that can be carried out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ringmere.core.errors import LogRefused
from ringmere.log.connect import Connection, NotPermitted
from ringmere.log.shape import StreamSettings
from ringmere.log.shards import (
    PROBE,
    control_subject,
    degraded_subject,
    event_subject,
    head_name,
    live_subject,
    stream_name,
)

NOBODY = "!doctor"
"""Stands where a session, a key or a consumer would; nothing of that name can exist."""
EPOCHS, PURGES, SNAPSHOTS = "RINGMERE_EPOCHS", "RINGMERE_PURGES", "RINGMERE_SNAPSHOTS"
CONTROL = "RINGMERE_CONTROL"
WAIT = 5.0

_NO_REQUEST = b"!"


class Need(NamedTuple):
    """One subject, and in words what an instance needs it for; ``birth``: only while a stream is missing."""

    subject: str
    use: str
    payload: bytes = _NO_REQUEST
    birth: bool = False


def publishes(settings: StreamSettings, api: str) -> Iterator[Need]:
    """Yield every subject that an instance publishes to; ``api`` is the prefix of the JetStream API."""
    yield Need(f"{api}.INFO", "see the account's limits")
    yield Need(f"$KV.{EPOCHS}.shard.{NOBODY}", "write epoch records")
    yield Need(f"$KV.{PURGES}.{NOBODY}", "write purge records")
    yield Need(f"$KV.{SNAPSHOTS}.{NOBODY}", "write snapshots")
    yield Need(f"$KV.{CONTROL}.{NOBODY}.{NOBODY}", "write cancels")
    for bucket in (EPOCHS, PURGES, SNAPSHOTS, CONTROL):
        yield Need(f"{api}.STREAM.CREATE.KV_{bucket}", "make the bucket", birth=True)
        yield Need(f"{api}.STREAM.INFO.KV_{bucket}", "look at the bucket")
        yield Need(f"{api}.STREAM.MSG.GET.KV_{bucket}", "read records")
    yield Need(f"{api}.DIRECT.GET.KV_{PURGES}", "catch up on purges")
    yield Need(f"{api}.STREAM.PURGE.KV_{SNAPSHOTS}", "remove snapshots", _purge_nothing(f"$KV.{SNAPSHOTS}.{NOBODY}"))
    yield Need(control_subject(NOBODY), "ask other instances about streams of many sessions")
    for shard in range(settings.shards):
        yield from _shard(settings, api, shard)


def _shard(settings: StreamSettings, api: str, shard: int) -> Iterator[Need]:
    stream, head = stream_name(shard), head_name(shard)
    yield Need(event_subject(shard, PROBE), "store events")
    yield Need(degraded_subject(shard, NOBODY), "send events that cannot be stored")
    yield Need(f"{api}.STREAM.CREATE.{stream}", "make the stream", birth=True)
    yield Need(f"{api}.STREAM.INFO.{stream}", "look at the stream")
    yield Need(f"{api}.STREAM.UPDATE.{stream}", "copy the epoch record to the stream")
    yield Need(f"{api}.STREAM.PURGE.{stream}", "purge sessions", _purge_nothing(event_subject(shard, NOBODY)))
    yield Need(f"{api}.STREAM.MSG.GET.{stream}", "read from the leader")
    yield Need(f"{api}.DIRECT.GET.{stream}", "read pages")
    yield Need(f"{api}.CONSUMER.CREATE.{stream}.{NOBODY}.{event_subject(shard, NOBODY)}", "make consumers")
    yield Need(f"{api}.CONSUMER.MSG.NEXT.{stream}.{NOBODY}", "read by consumers")
    yield Need(f"{api}.CONSUMER.DELETE.{stream}.{NOBODY}", "remove consumers")
    yield Need(f"{api}.STREAM.INFO.{head}", "look at heads")
    if settings.head_ttl:
        yield Need(f"{api}.STREAM.CREATE.{head}", "make heads, also anew after a new epoch")
        yield Need(f"{api}.STREAM.DELETE.{head}", "make heads anew after a new epoch")
        yield Need(f"{api}.STREAM.PURGE.{head}", "purge heads", _purge_nothing(event_subject(shard, NOBODY)))
        yield Need(f"{api}.STREAM.MSG.GET.{head}", "read heads")


def _purge_nothing(subject: str) -> bytes:
    # A purge that cannot be read purges all, so this one must be good: of a subject that nothing is stored on.
    return json.dumps({"filter": subject, "seq": 1}).encode()


def subscriptions(settings: StreamSettings) -> Iterator[Need]:
    """Yield every subject that an instance subscribes to, its inbox excepted: without that it cannot connect."""
    yield Need("ringmere.degraded.*.*", "hear of events that could not be stored")
    yield Need(control_subject(NOBODY), "be asked about streams of many sessions, and be answered")
    for bucket in (EPOCHS, PURGES, CONTROL):
        yield Need(f"ringmere.notice.{bucket}.>", "hear of records")
    if settings.tail != "consumer":
        for shard in range(settings.shards):
            yield Need(live_subject(shard, NOBODY), "follow sessions live")


class Refusals(NamedTuple):
    """What the user may not do. ``unknown``: the publishes could not be asked for, all but one."""

    publishes: list[Need]
    subscriptions: list[Need]
    unknown: bool = False


async def refused(connection: Connection, settings: StreamSettings) -> Refusals:
    """Ask for everything. The server must be 2.11 or newer. Raises ``LogUnavailable`` when it does not answer."""
    trace = Need(degraded_subject(0, NOBODY), "send events that cannot be stored", b"")
    not_heard = [need for need in subscriptions(settings) if not await _may_subscribe(connection, need.subject)]
    if await _not_permitted(connection, [trace], {}):
        return Refusals([trace], not_heard, unknown=True)
    headers = {"Nats-Trace-Dest": trace.subject, "Nats-Trace-Only": "true"}
    return Refusals(await _not_permitted(connection, list(publishes(settings, connection.api)), headers), not_heard)


async def _not_permitted(connection: Connection, needs: Sequence[Need], headers: dict[str, str]) -> list[Need]:
    asked = [connection.start_request(need.subject, need.payload, headers or None, WAIT) for need in needs]
    try:
        # The server names what it refuses before it answers what was sent later.
        await connection.flush()
        return [
            need
            for need, answer in zip(needs, asked, strict=True)
            if answer.done() and isinstance(answer.exception(), NotPermitted)
        ]
    finally:
        for answer in asked:
            if not answer.cancel() and not answer.cancelled():
                answer.exception()


async def _may_subscribe(connection: Connection, subject: str) -> bool:
    try:
        subscription = await connection.subscribe(subject, _nothing)
    except LogRefused:
        return False
    subscription.close()
    return True


def _nothing(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
    """Take nothing: only whether the subscription is allowed matters."""
