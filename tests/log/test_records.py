"""Records: written only over what was read, listed page by page, readable by the usual tools."""

from __future__ import annotations

import asyncio

import pytest

from ringmere.core.errors import LogUnavailable
from ringmere.log import records
from ringmere.log.api import ApiError, nanoseconds, rfc3339, server_header
from ringmere.log.connect import Connection, NoReply
from ringmere.log.provision import ensure_stream
from ringmere.log.records import Bucket, RecordConflict
from ringmere.log.shape import Wanted
from support.nats import eventually


async def make(connection: Connection) -> Bucket:
    """Create a bucket."""
    bucket = Bucket(connection, "TEST")
    await ensure_stream(connection, Wanted(bucket.configuration(1, 10_000_000)), reconcile=False)
    return bucket


async def test_a_record_is_written_only_over_the_revision_that_was_read(connection: Connection) -> None:
    bucket = await make(connection)
    assert await bucket.get("k") is None
    first = await bucket.put("k", b"1", 0)
    for stale in (0, first + 1):
        with pytest.raises(RecordConflict):
            await bucket.put("k", b"x", stale)
    second = await bucket.put("k", b"2", first)
    found = await bucket.get("k")
    assert found is not None
    assert (found.value, found.revision) == (b"2", second)


async def test_of_many_writers_at_once_one_wins(connection: Connection) -> None:
    bucket = await make(connection)
    results = await asyncio.gather(*(bucket.put("k", str(n).encode(), 0) for n in range(20)), return_exceptions=True)
    assert sum(isinstance(result, int) for result in results) == 1
    assert sum(isinstance(result, RecordConflict) for result in results) == 19


async def test_all_records_are_listed_over_several_pages_newest_value_only(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LIST_BATCH", 7)
    bucket = await make(connection)
    for n in range(30):
        await bucket.put(f"k.{n}", b"old", 0)
    revision = 0
    for n in range(0, 30, 3):
        record = await bucket.get(f"k.{n}")
        assert record is not None
        revision = await bucket.put(f"k.{n}", str(n).encode(), record.revision)
    found = await bucket.since(1)
    assert len(found) == 30
    assert found["k.3"].value == b"3"
    assert found["k.4"].value == b"old"
    assert set(await bucket.since(revision)) == {"k.27"}
    assert await bucket.since(revision + 1) == {}


async def test_a_watcher_hears_of_what_was_stored_not_of_lost_races(connection: Connection) -> None:
    bucket = await make(connection)
    hints: list[str] = []
    watch = await bucket.watch(hints.append)
    await bucket.put("a", b"", 0)
    with pytest.raises(RecordConflict):
        await bucket.put("a", b"", 0)
    await bucket.put("b.c", b"", 0)
    await eventually(lambda: len(hints) == 2, "two notices")
    assert hints == ["a", "b.c"]
    watch.close()
    await bucket.put("d", b"", 0)
    await connection.flush()
    assert len(hints) == 2


async def test_a_missing_bucket_is_an_unavailable_log(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LIST_TIMEOUT", 0.2)
    bucket = Bucket(connection, "NONE")
    with pytest.raises(ApiError, match="stream not found"):
        await bucket.get("k")
    with pytest.raises(LogUnavailable):
        await bucket.put("k", b"", 0)
    with pytest.raises(LogUnavailable):
        await bucket.since(1)


async def test_a_listing_that_is_not_answered_ends_in_time(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LIST_TIMEOUT", 0.2)
    await connection.subscribe("$JS.API.DIRECT.GET.KV_DEAF", lambda *_: None)
    with pytest.raises(NoReply, match="not listed in time"):
        await Bucket(connection, "DEAF").since(1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("2026-11-30T18:56:14.017164204Z", 1_796_064_974_017_164_204),
        ("2026-11-30T18:56:14.000000001Z", 1_796_064_974_000_000_001),
    ],
)
def test_times_of_the_server_are_read_to_the_nanosecond(text: str, expected: int) -> None:
    assert nanoseconds(text) == expected
    assert nanoseconds(rfc3339(expected)) == expected


def test_a_servers_header_is_the_last_of_its_name() -> None:
    block = b"NATS/1.0\r\nNats-Sequence: 99\r\nA: b\r\nNats-Sequence: 7\r\n\r\n"
    assert server_header(block, b"Nats-Sequence") == b"7"
    assert server_header(block, b"Missing") == b""
