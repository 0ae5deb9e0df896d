"""Purge records: never lost, never taken for another stream's, heard by every instance."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ringmere.core.cursor import EpochRow, EpochTable, event_id
from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection
from ringmere.log.purges import Purges
from ringmere.log.records import identifier_of, key_of
from ringmere.log.shape import StreamSettings
from support.nats import api, connected, eventually

SETTINGS = StreamSettings(max_bytes=256 * 1024 * 1024)
FRESH = EpochTable("b", (EpochRow(0, 1),))


@asynccontextmanager
async def instance(connection: Connection) -> AsyncIterator[tuple[Purges, list[str]]]:
    """Run one instance's purges; the list collects the sessions it hears of."""
    purges = Purges(connection, SETTINGS)
    await purges.prepare()
    heard: list[str] = []
    purges.on_purge(heard.append)
    await purges.start()
    try:
        yield purges, heard
    finally:
        await purges.close()


async def test_a_record_tells_up_to_where_a_session_was_purged(connection: Connection) -> None:
    async with instance(connection) as (purges, _):
        assert await purges.purged_to("s", FRESH) == 0
        await purges.record("s", 7)
        assert await purges.purged_to("s", FRESH) == 7
        assert await purges.purged_to("t", FRESH) == 0


async def test_a_record_never_goes_back(connection: Connection) -> None:
    async with instance(connection) as (purges, _):
        await asyncio.gather(*(purges.record("s", n) for n in (3, 9, 5, 1, 7)))
        assert await purges.purged_to("s", FRESH) == 9
        await purges.record("s", 2)
        assert await purges.purged_to("s", FRESH) == 9


async def test_two_instances_that_purge_at_once_keep_the_highest_and_both_hear_of_it(
    nats_server: EmbeddedServer,
) -> None:
    async with (
        connected(nats_server) as one,
        connected(nats_server) as two,
        instance(one) as (first, first_heard),
        instance(two) as (second, second_heard),
    ):
        await asyncio.gather(first.record("s", 4), second.record("s", 6))
        await eventually(lambda: "s" in first_heard and "s" in second_heard, "both have heard")
        assert await first.purged_to("s", FRESH) == await second.purged_to("s", FRESH) == 6


async def test_a_purge_missed_while_cut_off_is_heard_after_the_reconnect_and_older_ones_are_not(
    connection: Connection, nats_server: EmbeddedServer
) -> None:
    async with instance(connection) as (purges, heard):
        await purges.record("old", 1)
        await eventually(lambda: heard == ["old"], "heard at once")
    async with instance(connection) as (_, heard), connected(nats_server) as other:
        connection._client.write(b"NONSENSE\r\n")
        await eventually(lambda: not connection.connected, "the loss")
        await Purges(other, SETTINGS).record("missed", 2)
        await eventually(lambda: "missed" in heard, "heard after the return")
        assert "old" not in heard


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((EpochRow(0, 1),), 8),
        ((EpochRow(0, 1, True), EpochRow(1, 1)), 0),
        ((EpochRow(0, 1), EpochRow(1, 20)), 8),
        ((EpochRow(0, 1), EpochRow(1, 6)), 5),
        ((EpochRow(3, 1),), 0),
    ],
)
async def test_a_record_counts_only_for_the_messages_it_was_made_for(
    connection: Connection, rows: tuple[EpochRow, ...], expected: int
) -> None:
    async with instance(connection) as (purges, _):
        await purges.record("s", event_id(0, 8))
        assert await purges.purged_to("s", EpochTable("b", rows)) == expected


async def test_a_record_of_a_later_epoch_outranks_one_with_a_higher_sequence(connection: Connection) -> None:
    async with instance(connection) as (purges, _):
        await purges.record("s", event_id(0, 900))
        await purges.record("s", event_id(1, 3))
        table = EpochTable("b", (EpochRow(0, 1, True), EpochRow(1, 1)))
        assert await purges.purged_to("s", table) == 3


async def test_keys_hold_what_session_ids_may_and_strangers_notices_are_passed_over(connection: Connection) -> None:
    for session in ("a", "a:b@c~d=e-f_g", "x" * 128, "="):
        assert identifier_of(key_of(session)) == session
    async with instance(connection) as (purges, heard):
        for key in ("!!", "a", "YS5i", "YSBi", "_w"):
            connection.send(f"ringmere.notice.RINGMERE_PURGES.{key}", b"")
        await purges.record("a:b@c~d=e-f_g", 1)
        await eventually(lambda: bool(heard), "the real one")
        assert heard == ["a:b@c~d=e-f_g"]


async def test_records_outlive_the_log_and_the_heads_and_a_changed_age_needs_no_reconcile(
    connection: Connection,
) -> None:
    async def age(settings: StreamSettings) -> float:
        await Purges(connection, settings).prepare()
        config = (await api(connection, "STREAM.INFO.KV_RINGMERE_PURGES"))["config"]
        return float(config["max_age"]) / 1e9

    assert await age(StreamSettings(log_ttl=3600, head_ttl=7 * 86_400)) == 7 * 86_400
    assert await age(StreamSettings(log_ttl=3600, head_ttl=0)) == 7 * 86_400
    assert await age(StreamSettings(log_ttl=3600, head_ttl=0, reconcile=True)) == 7 * 86_400
    await api(connection, "STREAM.DELETE.KV_RINGMERE_PURGES")
    assert await age(StreamSettings(log_ttl=3600, head_ttl=0)) == 86_400
    await api(connection, "STREAM.DELETE.KV_RINGMERE_PURGES")
    assert await age(StreamSettings(log_ttl=0)) == 0
