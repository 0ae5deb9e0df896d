"""Appends to JetStream when something goes wrong between here and the store."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ringmere.core.cursor import EpochTable
from ringmere.core.errors import (
    EventTooLarge,
    KeyReused,
    LogUnavailable,
    PublishOverloaded,
    PublishUnconfirmed,
    RingmereError,
    WrongLastEventId,
)
from ringmere.core.limits import Limits
from ringmere.embedded import EmbeddedServer
from ringmere.log.append import Appender
from ringmere.log.atomic import AtomicAppender
from ringmere.log.connect import Connection, ConnectOptions, NoReply, NoResponders, Reply
from ringmere.log.jetstream import JetStreamLog, LogSettings, open_log
from ringmere.log.leader import Leader
from ringmere.log.outbox import Outbox
from ringmere.log.places import Place, Places
from ringmere.log.port import Appended, Row
from ringmere.log.shards import event_subject, stream_name
from support.logs import Ear, fill, freeze, read_all, row
from support.nats import Cluster, api, append, eventually, running_server

Open = Callable[..., Any]


@pytest.fixture
async def opened(nats_server: EmbeddedServer) -> AsyncIterator[Open]:
    """Opens logs on the test's server and closes them at the end."""
    logs: list[JetStreamLog] = []

    async def open_(limits: Limits | None = None, **settings: Any) -> JetStreamLog:
        options = ConnectOptions(servers=(nats_server.url,))
        logs.append(await open_log(options, LogSettings(**{"timeout": 0.5, **settings}), limits))
        return logs[-1]

    yield open_
    nats_server.send_signal(signal.SIGCONT)
    for log in logs:
        await log.close()


# Sizes.


async def test_pub_6_neither_size_nor_headers_cost_the_connection(tmp_path: Path) -> None:
    async with running_server(tmp_path / "small", max_payload=40_000) as server:
        log = await open_log(ConnectOptions(servers=(server.url,)), LogSettings())
        ear = Ear()
        log.listen(ear)
        assert log.max_event_bytes == 30_000
        assert await log.append("s1", Row(b"x" * 30_000, "k" * 255), expected=0) == Appended(1)
        for size in (30_001, 39_999, 40_000, 40_001, 1_000_000):
            with pytest.raises(EventTooLarge) as caught:
                await log.append("s1", Row(b"x" * size))
            assert (caught.value.size, caught.value.limit) == (size, 30_000)
        results = await log.append_many("s1", [row(1), Row(b"x" * 100_000), row(2)])
        assert [getattr(result, "seq", None) for result in results] == [2, None, 3]
        assert ear.connections == []
        await log.close()


async def test_an_operators_own_limit_counts(opened: Open) -> None:
    log = await opened(max_event_bytes=2000)
    assert log.max_event_bytes == 2000
    await log.append("s1", Row(b"x" * 2000, "k" * 255))
    with pytest.raises(EventTooLarge):
        await log.append("s1", Row(b"x" * 2001))


# The log is away, or silent.


async def test_pub_8_an_event_that_failed_is_not_sent_later(opened: Open, nats_server: EmbeddedServer) -> None:
    log = await opened()
    await nats_server.kill()
    await eventually(lambda: not log.connected, "the loss is noticed")
    with pytest.raises(LogUnavailable):
        await log.append("s1", row(1))
    await nats_server.start()
    await eventually(lambda: log.connected, "the connection is back")
    assert await log.append("s1", row(1)) == Appended(1)
    assert await read_all(log, "s1") == [1]


async def test_pub_8_a_silent_log_leaves_the_fate_open_and_the_key_settles_it(
    opened: Open, nats_server: EmbeddedServer
) -> None:
    log = await opened()
    await freeze(nats_server)
    with pytest.raises(PublishUnconfirmed):
        await log.append("s1", row(1, "k"))
    with pytest.raises(PublishUnconfirmed):
        await log.append("s1", row(2))
    with pytest.raises(PublishUnconfirmed):
        await log.append_atomic("s1", [row(3, "k/0"), row(4, "k/1")])
    results = await log.append_many("s1", [row(5, "m/0"), row(6)])
    assert [type(result) for result in results] == [PublishUnconfirmed, PublishUnconfirmed]
    nats_server.send_signal(signal.SIGCONT)
    await eventually(lambda: log.connected, "the connection is up")
    await _answers(log)
    assert (await log.append("s1", row(1, "k"))).seq == 1
    await log.append_atomic("s1", [row(3, "k/0"), row(4, "k/1")])
    await log.append("s1", row(5, "m/0"))
    page = await log.page("s1", 1, 1 << 20)
    payloads = [message.payload for message in page.messages]
    for number in (1, 3, 4, 5):
        assert payloads.count(row(number).payload) == 1


async def test_pub_8_a_keyed_append_finds_out_its_own_fate(opened: Open, nats_server: EmbeddedServer) -> None:
    log = await opened(timeout=1.0)
    await freeze(nats_server)
    single = asyncio.create_task(log.append("s1", row(1, "k")))
    batch = asyncio.create_task(log.append_many("s2", [row(2, "m/0"), row(3, "m/1")]))
    atomic = asyncio.create_task(log.append_atomic("s3", [row(4, "a/0"), row(5, "a/1")]))
    await asyncio.sleep(1.3)
    nats_server.send_signal(signal.SIGCONT)
    assert (await single).seq
    assert all(isinstance(result, Appended) for result in await batch)
    assert len(await atomic) == 2
    assert [len(await read_all(log, session)) for session in ("s1", "s2", "s3")] == [1, 2, 2]


async def test_pub_8_a_keyed_append_survives_a_restart_in_its_middle(opened: Open, nats_server: EmbeddedServer) -> None:
    log = await opened(timeout=3.0)
    await freeze(nats_server)
    task = asyncio.create_task(log.append("s1", row(1, "k")))
    await asyncio.sleep(0.05)
    await nats_server.kill()
    await nats_server.start()
    assert (await task).seq == 1
    assert await read_all(log, "s1") == [1]


async def test_without_its_stream_an_append_is_unavailable_at_once(opened: Open, connection: Connection) -> None:
    log = await opened(timeout=30)
    await api(connection, f"STREAM.DELETE.{stream_name(0)}")
    async with asyncio.timeout(5):
        with pytest.raises(LogUnavailable):
            await log.append("s1", row(1))
        with pytest.raises(LogUnavailable):
            await log.append_atomic("s1", [row(1), row(2)])


# Bounds.


async def test_no_more_publishes_wait_than_the_bound_allows(opened: Open, nats_server: EmbeddedServer) -> None:
    log = await opened(Limits(publish_inflight=4), timeout=20)
    await freeze(nats_server)
    waiting = [asyncio.create_task(log.append("s1", row(number))) for number in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(PublishOverloaded):
        await log.append("s1", row(5))
    with pytest.raises(PublishOverloaded):
        await log.append_atomic("s1", [row(5), row(6)])
    results = await log.append_many("s1", [row(5), row(6)])
    assert [type(result) for result in results] == [PublishOverloaded] * 2
    nats_server.send_signal(signal.SIGCONT)
    assert [one.seq for one in await asyncio.gather(*waiting)] == [1, 2, 3, 4]
    assert await log.append("s1", row(5)) == Appended(5)


async def test_no_more_bytes_wait_than_the_bound_allows(opened: Open, nats_server: EmbeddedServer) -> None:
    log = await opened(Limits(publish_inflight_bytes=10_000), timeout=20)
    assert await log.append("s1", Row(b"x" * 50_000)) == Appended(1)
    await freeze(nats_server)
    waiting = asyncio.create_task(log.append("s1", Row(b"x" * 9_000)))
    await asyncio.sleep(0)
    with pytest.raises(PublishOverloaded):
        await log.append("s1", Row(b"x" * 2_000))
    nats_server.send_signal(signal.SIGCONT)
    assert await waiting == Appended(2)


async def test_a_batch_larger_than_the_bound_goes_through_in_order(opened: Open) -> None:
    log = await opened(Limits(publish_inflight=7))
    results = await log.append_many("s1", [row(number) for number in range(100)])
    assert results == [Appended(seq) for seq in range(1, 101)]


async def test_an_abandoned_append_gives_its_room_back(opened: Open, nats_server: EmbeddedServer) -> None:
    log = await opened(Limits(publish_inflight=1), timeout=20)
    await freeze(nats_server)
    task = asyncio.create_task(log.append("s1", row(1)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    nats_server.send_signal(signal.SIGCONT)
    await log.append("s1", row(2))


# Keys.


async def test_one_key_from_many_publishers_at_once_is_one_event(opened: Open) -> None:
    logs = [await opened(), await opened()]
    answers = await asyncio.gather(*(logs[n % 2].append("s1", row(1, "k")) for n in range(40)))
    assert {answer.seq for answer in answers} == {1}
    assert [answer.duplicate for answer in answers].count(False) == 1


async def test_a_key_stored_by_a_direct_publisher_counts(opened: Open, connection: Connection) -> None:
    log = await opened()
    await append(connection, event_subject(0, "s1"), row(1).payload, {"Nats-Msg-Id": "s1/k"})
    assert await log.append("s1", row(1, "k")) == Appended(1, True)
    with pytest.raises(KeyReused):
        await log.append("s1", row(2, "k"))


async def test_looking_a_key_up_stores_nothing(opened: Open, connection: Connection) -> None:
    log = await opened()
    await fill(log, "s1", [1])
    for _ in range(3):
        with pytest.raises(WrongLastEventId):
            await log.append("s1", row(2, "k"), expected=9)
    assert (await api(connection, f"STREAM.INFO.{stream_name(0)}"))["state"]["last_seq"] == 1


# A replicated stream.


@pytest.fixture
async def replicated(nats_cluster: Cluster) -> AsyncIterator[JetStreamLog]:
    log = await open_log(ConnectOptions(servers=nats_cluster.urls), LogSettings(replicas=3, timeout=5))
    yield log
    await log.close()


async def test_a_replicated_stream_keeps_the_promises_about_keys(replicated: JetStreamLog) -> None:
    log = replicated
    assert await log.append("s1", row(1)) == Appended(1)
    assert await log.append("s1", row(2, "k"), expected=1) == Appended(2, False)
    assert await log.append("s1", row(2, "k"), expected=1) == Appended(2, True)
    with pytest.raises(KeyReused):
        await log.append("s1", row(3, "k"), expected=1)
    with pytest.raises(WrongLastEventId) as caught:
        await log.append("s1", row(3, "new"), expected=1)
    assert caught.value.current == 2
    atomic = [row(3, "a/0"), row(4, "a/1")]
    assert await log.append_atomic("s1", atomic, expected=2) == [Appended(3), Appended(4)]
    assert await log.append_atomic("s1", atomic, expected=2) == [Appended(3, True), Appended(4, True)]
    with pytest.raises(KeyReused):
        await log.append_atomic("s1", [row(3, "a/0"), row(9, "b")])
    assert (await log.append_many("s1", [row(5), row(6)])) == [Appended(5), Appended(6)]
    assert await log.contains("s1", 6)
    assert (await log.bounds("s1")).stored == 6


async def test_races_on_a_replicated_stream_have_one_winner(replicated: JetStreamLog) -> None:
    log = replicated
    answers = await asyncio.gather(*(log.append("s1", row(1, "k")) for _ in range(30)))
    assert {answer.seq for answer in answers} == {1}
    assert [answer.duplicate for answer in answers].count(False) == 1
    racing = await asyncio.gather(
        *(log.append("s1", row(number), expected=1) for number in range(30)), return_exceptions=True
    )
    winners = [result for result in racing if isinstance(result, Appended)]
    losers = [result for result in racing if isinstance(result, WrongLastEventId)]
    assert len(winners) == 1
    assert len(losers) == 29
    assert {loser.current for loser in losers} == {winners[0].seq}
    batches = await asyncio.gather(*(log.append_atomic("s2", [row(n) for n in range(10)]) for _ in range(4)))
    for batch in batches:
        assert [one.seq for one in batch] == list(range(batch[0].seq, batch[0].seq + 10))


async def test_keyed_appends_are_stored_once_each_while_leaders_change(
    replicated: JetStreamLog, nats_cluster: Cluster, connection_to_cluster: Connection
) -> None:
    log = replicated
    stored: dict[int, int] = {}

    async def publish(number: int) -> None:
        while True:
            try:
                stored[number] = (await log.append("s1", row(number, f"k{number}"))).seq
            except (LogUnavailable, PublishUnconfirmed):
                await asyncio.sleep(0.05)
            else:
                return

    async def depose() -> None:
        for _ in range(3):
            await asyncio.sleep(0.2)
            await api(connection_to_cluster, f"STREAM.LEADER.STEPDOWN.{stream_name(0)}")

    async def flow() -> None:
        for start in range(0, 300, 10):
            await asyncio.gather(*(publish(number) for number in range(start, start + 10)))
            await asyncio.sleep(0.02)

    await asyncio.gather(flow(), depose())
    page = await log.page("s1", 1, 1 << 20)
    await eventually(lambda: _all_there(log, 300), "the reading replica has caught up")
    page = await log.page("s1", 1, 1 << 20)
    assert {message.seq: message.payload for message in page.messages} == {
        seq: row(number).payload for number, seq in stored.items()
    }


@pytest.fixture
async def connection_to_cluster(nats_cluster: Cluster) -> AsyncIterator[Connection]:
    connection = await Connection.open(ConnectOptions(servers=nats_cluster.urls))
    yield connection
    await connection.close()


async def _all_there(log: JetStreamLog, count: int) -> bool:
    return len((await log.page("s1", 1, 1 << 20)).messages) == count


async def _answers(log: JetStreamLog) -> None:
    async def answers() -> bool:
        try:
            await log.bounds("s1")
        except LogUnavailable:
            return False
        return True

    await eventually(answers, "the log answers")


# Answers that a healthy server does not give.


class ScriptedConnection:
    """Answers each publish with the next of its lines: a dict, an exception, or raw bytes."""

    max_payload = 1 << 20
    api = "$JS.API"

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.sent: list[dict[str, str]] = []

    def on_state(self, callback: Callable[[bool], None]) -> None:
        """Nothing changes here."""

    def send(self, subject: str, payload: bytes, reply: str = "", headers: Any = None) -> None:
        self.sent.append(dict(headers or {}))

    def start_request(
        self, subject: str, payload: bytes = b"", headers: Any = None, timeout: float = 2.0
    ) -> asyncio.Future[Reply]:
        self.send(subject, payload, "", headers)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        line = self.script.pop(0)
        if isinstance(line, Exception):
            future.set_exception(line)
        else:
            future.set_result(Reply(b"", line if isinstance(line, bytes) else json.dumps(line).encode()))
        return future

    async def request(self, subject: str, payload: bytes = b"", headers: Any = None, timeout: float = 2.0) -> Reply:
        return await self.start_request(subject, payload, headers, timeout)


class OneTable:
    """Epochs of a stream that never changes."""

    def table(self, shard: int) -> EpochTable:
        return EpochTable("b")

    def seen(self, shard: int, seq: int, time_ns: int = 0) -> None:
        """Nobody asks."""

    def newest_seen(self, shard: int) -> int:
        return 0


def refusal(code: int, err_code: int, words: str = "because") -> dict[str, Any]:
    return {"stream": stream_name(0), "seq": 0, "error": {"code": code, "err_code": err_code, "description": words}}


def stored(seq: int, **more: Any) -> dict[str, Any]:
    return {"stream": stream_name(0), "seq": seq, **more}


def scripted(*script: Any) -> tuple[Appender, AtomicAppender, Outbox, ScriptedConnection, Place]:
    connection = ScriptedConnection(*script)
    outbox = Outbox(connection, lambda: 1 << 20, Limits(), 0.2)  # type: ignore[arg-type]
    epochs: Any = OneTable()
    single = Appender(outbox, Leader(connection), epochs, 120)  # type: ignore[arg-type]
    return single, AtomicAppender(outbox, single, epochs), outbox, connection, Places(1).of("s1")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(503, 10077, "maximum bytes exceeded"), LogUnavailable),
        (refusal(503, 10008, "system temporarily unavailable"), LogUnavailable),
        (refusal(500, 10047, "insufficient storage resources available"), LogUnavailable),
        (NoResponders("nobody"), LogUnavailable),
        (refusal(400, 10054, "message size exceeds maximum allowed"), EventTooLarge),
        (refusal(400, 10071, "wrong last sequence: 4"), WrongLastEventId),
        (NoReply("silence"), PublishUnconfirmed),
        (b"not json", PublishUnconfirmed),
        (b"[]", PublishUnconfirmed),
        (b"", PublishUnconfirmed),
        ({"stream": "OTHER", "seq": 7}, PublishUnconfirmed),
        ({"stream": stream_name(0), "seq": 0}, PublishUnconfirmed),
    ],
)
async def test_each_answer_has_its_error(answer: Any, error: type[RingmereError]) -> None:
    appender, _, _, _, place = scripted(answer)
    with pytest.raises(error) as caught:
        await appender.append(place, row(1), None)
    assert type(caught.value) is error or isinstance(answer, Exception)
    appender, _, outbox, _, place = scripted(answer)
    results = await appender.append_many(place, [row(1)])
    assert isinstance(results[0], error)
    await asyncio.sleep(0)
    assert (outbox.inflight, outbox.inflight_bytes) == (0, 0)


async def test_an_undecided_expectation_is_asked_again() -> None:
    undecided = refusal(400, 10164, "wrong last sequence")
    appender, _, _, _, place = scripted(undecided, undecided, stored(5))
    assert await appender.append(place, row(1), 4) == Appended(5)
    appender, _, _, connection, place = scripted(undecided, refusal(400, 10071, "wrong last sequence: 6"))
    with pytest.raises(WrongLastEventId) as caught:
        await appender.append(place, row(1), 4)
    assert caught.value.current == 6
    assert len(connection.sent) == 2


async def test_a_key_that_is_being_stored_is_waited_for() -> None:
    busy = refusal(400, 10158, "duplicate message id is in process")
    found = stored(3, duplicate=True)
    body = {"message": {"subject": event_subject(0, "s1"), "seq": 3, "time": "2026-01-01T00:00:00Z", "data": "e30="}}
    appender, _, _, connection, place = scripted(busy, busy, found, body)
    assert await appender.append(place, Row(b"{}", "k"), None) == Appended(3, True)
    assert [headers.get("Nats-Rollup") for headers in connection.sent[:3]] == [None, "probe", "probe"]


async def test_an_unconfirmed_row_of_a_batch_is_looked_up_and_never_sent_again() -> None:
    unknown = refusal(500, 10111, "rollup not permitted")
    appender, _, _, connection, place = scripted(NoReply("silence"), stored(2), unknown)
    results = await appender.append_many(place, [row(1, "k/0"), row(2, "k/1")])
    assert isinstance(results[0], PublishUnconfirmed)
    assert results[1] == Appended(2)
    assert [headers.get("Nats-Rollup") for headers in connection.sent] == [None, None, "probe"]


async def test_a_batch_acknowledged_as_something_else_is_unconfirmed() -> None:
    _, atomic, _, _, place = scripted(b"", stored(2))
    with pytest.raises(PublishUnconfirmed):
        await atomic.append(place, [row(1), row(2)], None)


async def test_the_refusal_of_a_batchs_first_row_is_the_batchs() -> None:
    first = refusal(400, 10174, "atomic publish is disabled")
    _, atomic, _, connection, place = scripted(first, refusal(400, 10176, "atomic publish batch is incomplete"))
    with pytest.raises(LogUnavailable, match="disabled"):
        await atomic.append(place, [row(1), row(2), row(3)], 7)
    assert [headers["Nats-Batch-Sequence"] for headers in connection.sent] == ["1", "2", "3"]
    assert ["Nats-Batch-Commit" in headers for headers in connection.sent] == [False, False, True]
    expected = [headers.get("Nats-Expected-Last-Subject-Sequence") for headers in connection.sent]
    assert expected == ["7", None, None]
    assert len({headers["Nats-Batch-Id"] for headers in connection.sent}) == 1
