"""The live tail against direct publishers and losses of the connection."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.jetstream import JetStreamLog, LogSettings, open_log
from ringmere.log.shards import event_subject, live_subject
from support.logs import Live, fill, read_all, row
from support.nats import append, eventually

SUBJECT = event_subject(0, "s1")


@pytest.fixture
async def log(nats_server: EmbeddedServer) -> AsyncIterator[JetStreamLog]:
    opened = await open_log(ConnectOptions(servers=(nats_server.url,)), LogSettings(ring_size=5))
    yield opened
    await opened.close()


async def test_forged_server_headers_change_nothing(log: JetStreamLog, connection: Connection) -> None:
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", [1])
    forged = {
        "Nats-Stream": "OTHER",
        "Nats-Subject": event_subject(0, "s2"),
        "Nats-Sequence": "4000",
        "Nats-Time-Stamp": "2001-01-01T00:00:00Z",
        "Nats-Last-Sequence": "3999",
        "Nats-Num-Pending": "0",
    }
    await append(connection, SUBJECT, row(2).payload, forged)
    await fill(log, "s1", [3])
    await live.until(3)
    assert [(seq, previous) for seq, previous, _, _ in live.messages] == [(1, 0), (2, 1), (3, 2)]
    page = await log.page("s1", 1, 1 << 20)
    assert [(message.seq, message.time_ns) for message in page.messages] == [
        (seq, time_ns) for seq, _, time_ns, _ in live.messages
    ]
    assert page.messages[0].time_ns < page.messages[1].time_ns < page.messages[2].time_ns


@pytest.mark.parametrize("headers", [{"Nats-Rollup": "sub"}, {"Nats-Rollup": "all"}, {"Nats-TTL": "1s"}])
async def test_no_publisher_can_empty_a_session_by_a_header(
    log: JetStreamLog, connection: Connection, headers: dict[str, str]
) -> None:
    await fill(log, "s1", range(3))
    reply = await connection.request(SUBJECT, row(9).payload, headers)
    assert b'"error"' in reply.payload
    assert await read_all(log, "s1") == [1, 2, 3]
    assert await fill(log, "s1", [4]) == [4]


async def test_what_no_stream_republished_is_passed_over(log: JetStreamLog, connection: Connection) -> None:
    live = Live()
    await log.subscribe("s1", live)
    subject = live_subject(0, "s1")
    connection.send(subject, b"{}")
    connection.send(subject, b"{}", "", {"Nats-Sequence": "7"})
    await connection.flush()
    await fill(log, "s1", [1])
    await live.until(1)
    assert live.seqs == [1]


async def test_a_tail_is_restored_after_a_reconnect(log: JetStreamLog, nats_server: EmbeddedServer) -> None:
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", [1])
    await live.until(1)
    await nats_server.kill()
    await eventually(lambda: not log.connected, "the loss is noticed")
    await nats_server.start()
    await eventually(lambda: log.connected, "the connection is back")
    await fill(log, "s1", [2])
    await live.until(2)
    assert [(seq, previous) for seq, previous, _, _ in live.messages] == [(1, 0), (2, 1)]
