"""Both ways to read a range, when something happens to it in the middle."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ringmere.core.errors import LogUnavailable
from ringmere.embedded import EmbeddedServer
from ringmere.log import consumer
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.jetstream import JetStreamLog, LogSettings, open_log
from ringmere.log.port import Row
from ringmere.log.reader import Answers
from ringmere.log.shards import event_subject, head_name, stream_name
from support.logs import fill, freeze, read_all, row
from support.nats import Cluster, api, eventually

STREAM = stream_name(0)
PAGE = 400
"""Bytes of a page of some ten small events."""

Open = Callable[..., Any]


@pytest.fixture(params=["direct", "consumer"])
def reader(request: pytest.FixtureRequest) -> str:
    """Each way in turn."""
    return str(request.param)


@pytest.fixture
async def opened(nats_server: EmbeddedServer) -> AsyncIterator[Open]:
    """Opens logs on the test's server and closes them at the end."""
    logs: list[JetStreamLog] = []

    async def open_(reader: str = "consumer", **settings: Any) -> JetStreamLog:
        options = ConnectOptions(servers=(nats_server.url,))
        logs.append(await open_log(options, LogSettings(reader=reader, **settings)))
        return logs[-1]

    yield open_
    nats_server.send_signal(signal.SIGCONT)
    for log in logs:
        await log.close()


async def consumers(connection: Connection) -> list[str]:
    """Return the names of the stream's consumers."""
    answer = await api(connection, f"CONSUMER.NAMES.{STREAM}", {})
    return list(answer.get("consumers") or [])


async def two_pages(log: JetStreamLog, session: str = "s1") -> list[int]:
    """Read two pages, so that a consumer stands ready for the third."""
    first = await log.page(session, 1, PAGE)
    second = await log.page(session, first.messages[-1].seq, PAGE)
    assert first.more
    assert second.more
    return sorted({message.seq for message in first.messages + second.messages})


async def test_a_replay_of_one_page_makes_no_consumer(opened: Open, connection: Connection) -> None:
    log = await opened()
    await fill(log, "s1", range(5))
    assert await read_all(log, "s1") == [1, 2, 3, 4, 5]
    assert await consumers(connection) == []


async def test_a_long_replay_uses_one_consumer_and_removes_it(opened: Open, connection: Connection) -> None:
    log = await opened()
    await fill(log, "s1", range(60))
    read = await two_pages(log)
    names = await consumers(connection)
    assert len(names) == 1
    third = await log.page("s1", read[-1], PAGE)
    assert third.messages[0].seq == read[-1]
    assert await consumers(connection) == names
    assert await read_all(log, "s1", third.messages[-1].seq, PAGE) == list(range(third.messages[-1].seq, 61))
    await eventually(lambda: _none(connection), "the consumer is removed at the end of its replay")


async def test_a_consumer_that_nobody_comes_back_to_is_removed(
    opened: Open, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "IDLE", 0.2)
    log = await opened()
    await fill(log, "s1", range(60))
    await two_pages(log)
    assert len(await consumers(connection)) == 1
    await eventually(lambda: _none(connection), "the idle consumer is removed")


async def test_no_more_consumers_are_kept_than_the_bound_allows(
    opened: Open, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "KEPT", 3)
    log = await opened()
    for number in range(8):
        await log.append_many(f"s{number}", [row(n) for n in range(60)])
    reads = await asyncio.gather(*(two_pages(log, f"s{number}") for number in range(8)))
    await eventually(lambda: _count(connection, 3), "all but three consumers are removed")
    whole = await asyncio.gather(*(read_all(log, f"s{number}", read[-1], PAGE) for number, read in enumerate(reads)))
    for number, (read, rest) in enumerate(zip(reads, whole, strict=True)):
        assert sorted({*read, *rest}) == list(range(60 * number + 1, 60 * number + 61))


async def test_jsc_1_a_consumer_deleted_under_a_replay_costs_nothing(opened: Open, connection: Connection) -> None:
    log = await opened()
    await fill(log, "s1", range(60))
    read = await two_pages(log)
    (name,) = await consumers(connection)
    assert (await api(connection, f"CONSUMER.DELETE.{STREAM}.{name}"))["success"]
    await fill(log, "s1", [60])
    async with asyncio.timeout(2):
        rest = await read_all(log, "s1", read[-1], PAGE)
    assert read + rest[1:] == list(range(1, 62))


async def test_while_consumers_cannot_be_made_pages_come_by_direct_gets(opened: Open, connection: Connection) -> None:
    log = await opened(max_consumers=1)
    config = {"name": "other", "ack_policy": "none", "mem_storage": True}
    body = {"stream_name": STREAM, "config": config}
    made = await api(connection, f"CONSUMER.CREATE.{STREAM}.other", body)
    assert "error" not in made
    await fill(log, "s1", range(60))
    assert await read_all(log, "s1", 1, PAGE) == list(range(1, 61))
    assert await consumers(connection) == ["other"]


async def test_res_4_a_reader_overtaken_by_retention_is_told_by_its_pages_start(opened: Open, reader: str) -> None:
    log = await opened(reader, ring_size=50)
    await fill(log, "s1", range(50))
    read = await two_pages(log)
    assert await log.contains("s1", read[-1])
    await log.append_many("s1", [row(n) for n in range(200)])
    page = await log.page("s1", read[-1], 1 << 20)
    behind = [message.seq for message in page.messages if message.seq > read[-1]]
    assert behind[0] > read[-1] + 1
    assert not await log.contains("s1", read[-1])


async def test_a_page_of_a_stream_made_anew_shows_the_new_one(
    opened: Open, reader: str, connection: Connection
) -> None:
    log = await opened(reader)
    await fill(log, "s1", range(60))
    read = await two_pages(log)
    old = {message.seq: message for message in (await log.page("s1", 1, 1 << 20)).messages}
    for stream in (head_name(0), STREAM):
        await api(connection, f"STREAM.DELETE.{stream}")
    again = await opened(reader)
    await again.append_many("s1", [row(1000 + n) for n in range(60)])
    page = await log.page("s1", read[-1], PAGE)
    assert page.messages[0].seq == read[-1]
    assert page.messages[0].time_ns > old[60].time_ns
    assert page.messages[0].payload == row(999 + read[-1]).payload


async def test_a_replay_goes_on_after_a_restart_of_the_server(
    opened: Open, reader: str, nats_server: EmbeddedServer
) -> None:
    log = await opened(reader)
    await fill(log, "s1", range(60))
    read = await two_pages(log)
    await nats_server.kill()
    await eventually(lambda: not log.connected, "the loss is noticed")
    with pytest.raises(LogUnavailable):
        await log.page("s1", read[-1], PAGE)
    await nats_server.start()
    await eventually(lambda: log.connected, "the connection is back")
    rest = await read_all(log, "s1", read[-1], PAGE)
    assert read + rest[1:] == list(range(1, 61))


async def test_a_silent_server_ends_a_read_at_its_deadline(
    opened: Open, reader: str, nats_server: EmbeddedServer
) -> None:
    log = await opened(reader, timeout=0.3)
    await fill(log, "s1", range(60))
    read = await two_pages(log)
    await freeze(nats_server)
    async with asyncio.timeout(3):
        with pytest.raises(LogUnavailable):
            await log.page("s1", read[-1], PAGE)
    nats_server.send_signal(signal.SIGCONT)

    async def goes_on() -> bool:
        try:
            rest = await read_all(log, "s1", read[-1], PAGE)
        except LogUnavailable:
            return False
        return read + rest[1:] == list(range(1, 61))

    await eventually(goes_on, "the replay goes on")


async def test_many_replays_among_writers_miss_nothing(opened: Open, reader: str) -> None:
    log = await opened(reader)
    sessions = [f"s{number}" for number in range(10)]
    for _ in range(6):
        await asyncio.gather(*(log.append_many(name, [row(n) for n in range(10)]) for name in sessions))
    writing = asyncio.create_task(_write(log, sessions))
    replays = await asyncio.gather(*(read_all(log, name, 1, PAGE) for name in sessions * 3))
    await writing
    for name, seqs in zip(sessions * 3, replays, strict=True):
        stored = [message.seq for message in (await log.page(name, 1, 1 << 20)).messages]
        assert len(stored) == 110
        assert seqs == stored[: len(seqs)]
        assert len(seqs) >= 60


async def test_large_events_come_in_pages_of_their_size(opened: Open, reader: str) -> None:
    log = await opened(reader)
    await log.append_many("s1", [Row(b"%d" % n * 60_000) for n in range(10, 40)])
    start, pages = 1, 0
    seen: list[int] = []
    while True:
        page = await log.page("s1", start, 1 << 20)
        pages += 1
        assert sum(len(message.payload) for message in page.messages) <= (1 << 20) + 2 * 120_000
        seen += [message.seq for message in page.messages if not seen or message.seq > seen[-1]]
        if not page.more:
            break
        start = seen[-1]
    assert seen == list(range(1, 31))
    assert pages >= 3


async def test_both_ways_read_a_replicated_stream(reader: str, nats_cluster: Cluster) -> None:
    options = ConnectOptions(servers=nats_cluster.urls)
    log = await open_log(options, LogSettings(reader=reader, replicas=3, timeout=5))
    try:
        await log.append_many("s1", [row(n) for n in range(200)])

        async def whole() -> bool:
            return await read_all(log, "s1", 1, PAGE) == list(range(1, 201))

        await eventually(whole, "all replicas have everything")
    finally:
        await log.close()


# A lost answer, which no healthy connection shows.


def _answer(seq: int, previous: int, pending: int) -> bytes:
    return (
        b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\n"
        b"Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n\r\n"
    ) % (event_subject(0, "s1").encode(), seq, pending, previous)


async def test_a_lost_answer_of_a_batch_is_a_failure_not_a_hole() -> None:
    answers = Answers(1.0)
    answers.take(b"", b"", _answer(3, 0, 2), b"a")
    answers.take(b"", b"", _answer(9, 5, 0), b"c")
    answers.take(b"", b"", b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 9\r\n\r\n", b"")
    with pytest.raises(LogUnavailable, match="missing between 3 and 9"):
        await answers.done
    answers.close()


async def test_a_lost_last_answer_of_a_batch_is_a_failure_too() -> None:
    answers = Answers(1.0)
    answers.take(b"", b"", _answer(3, 0, 1), b"a")
    answers.take(b"", b"", b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 9\r\n\r\n", b"")
    with pytest.raises(LogUnavailable, match="missing"):
        await answers.done
    answers.close()


async def _write(log: JetStreamLog, sessions: list[str]) -> None:
    for number in range(50):
        await asyncio.gather(*(log.append(name, row(number)) for name in sessions))


async def _none(connection: Connection) -> bool:
    return await consumers(connection) == []


async def _count(connection: Connection, count: int) -> bool:
    return len(await consumers(connection)) == count
