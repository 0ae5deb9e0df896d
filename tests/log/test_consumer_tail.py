"""The tail by one consumer per shard: whatever happens to it, each event comes once, and no hole is hidden."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ringmere.core.errors import LogUnavailable, PublishUnconfirmed
from ringmere.embedded import EmbeddedServer
from ringmere.log import consumer_tail, following
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.following import HEARTBEAT, Following
from ringmere.log.jetstream import JetStreamLog, LogSettings, open_log
from ringmere.log.port import Row
from ringmere.log.shards import event_subject, head_name, shard_of, stream_name
from support.logs import Ear, Live, fill, row
from support.nats import Cluster, api, append, connected, eventually, running_server

STREAM = stream_name(0)
OTHER = event_subject(0, "other")


async def opened(server: EmbeddedServer, **settings: Any) -> JetStreamLog:
    """Return a log with this tail; heads off, so that the only consumers are those of the tail."""
    wanted = LogSettings(**{"tail": "consumer", "head_ttl": 0, **settings})
    return await open_log(ConnectOptions(servers=(server.url,)), wanted)


@pytest.fixture
async def log(nats_server: EmbeddedServer) -> AsyncIterator[JetStreamLog]:
    made = await opened(nats_server)
    yield made
    await made.close()


async def consumers(connection: Connection, stream: str = STREAM) -> list[str]:
    """Return the names of a stream's consumers."""
    return list((await api(connection, f"CONSUMER.NAMES.{stream}"))["consumers"] or [])


async def delete_consumer(connection: Connection, stream: str = STREAM) -> None:
    """Delete the one consumer of a stream; while one is being replaced there may be none, or two."""

    async def deleted() -> bool:
        names = await consumers(connection, stream)
        return len(names) == 1 and "error" not in await api(connection, f"CONSUMER.DELETE.{stream}.{names[0]}")

    await eventually(deleted, "one consumer to delete")


def chain(live: Live) -> list[tuple[int, int]]:
    """Return the (sequence, previous) of what came."""
    return [(seq, previous) for seq, previous, _, _ in live.messages]


def linked(live: Live) -> bool:
    """Say whether each message names the one that came before it."""
    return [previous for _, previous in chain(live)[1:]] == live.seqs[:-1]


def hold_reading(log: JetStreamLog) -> Any:
    """Stop taking anything from the log's socket; return the transport, whose ``resume_reading`` ends that."""
    transport = log.connection._client._writer().transport  # type: ignore[union-attr]
    transport.pause_reading()
    return transport


# The consumer is lost.


async def test_jsc_1_an_event_after_the_consumer_was_deleted_arrives_within_two_heartbeats_once(
    log: JetStreamLog, connection: Connection
) -> None:
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", [1])
    await live.until(1)
    await delete_consumer(connection)
    await fill(log, "s1", [2])
    await eventually(lambda: len(live.messages) == 2, "the event", 2 * HEARTBEAT)
    await fill(log, "s1", [3])
    await live.until(3)
    assert chain(live) == [(1, 0), (2, 1), (3, 2)]


async def test_jsc_1_a_consumer_that_was_deleted_before_it_delivered_anything_does_not_start_over(
    log: JetStreamLog, connection: Connection
) -> None:
    await fill(log, "s1", range(5))
    live = Live()
    await log.subscribe("s1", live)
    await delete_consumer(connection)
    await fill(log, "s1", [6])
    await live.until(1)
    assert chain(live) == [(6, 5)]


async def test_a_consumer_that_falls_silent_is_replaced(
    log: JetStreamLog, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Following._receive
    deaf: list[str] = []

    def receive(self: Following, *parts: bytes) -> None:
        if self._name not in deaf:
            real(self, *parts)

    monkeypatch.setattr(Following, "_receive", receive)
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", [1])
    await live.until(1)
    deaf += await consumers(connection)
    await fill(log, "s1", [2])
    await live.until(2)
    assert chain(live) == [(1, 0), (2, 1)]
    assert not set(deaf) & set(await consumers(connection))


@pytest.mark.parametrize("lost", [2, 4])
async def test_a_message_lost_on_the_way_is_noticed_by_the_next_or_by_a_heartbeat_and_comes_again(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    real = Following._receive
    dropped: list[bytes] = []

    def receive(self: Following, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        if payload == row(lost).payload and not dropped:
            dropped.append(payload)
        else:
            real(self, subject, reply, block, payload)

    monkeypatch.setattr(Following, "_receive", receive)
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", range(1, 5))
    await live.until(4)
    assert dropped
    assert live.seqs == [1, 2, 3, 4]
    assert linked(live)


async def test_a_killed_server_that_comes_back_costs_no_event_and_breaks_no_chain(
    log: JetStreamLog, nats_server: EmbeddedServer
) -> None:
    live, quiet = Live(), Live()
    await fill(log, "quiet", [0])
    await log.subscribe("s1", live)
    await log.subscribe("quiet", quiet)
    await fill(log, "s1", range(3))
    await live.until(3)
    for _ in range(2):
        await nats_server.kill()
        await eventually(lambda: not log.connected, "the loss is noticed")
        await nats_server.start()
        async with connected(nats_server) as direct:
            # Stored before the instance is back.
            await append(direct, event_subject(0, "s1"), row(9).payload)
        await eventually(lambda: log.connected, "the connection is back")
        await fill(log, "s1", [9])
    await live.until(7)
    await fill(log, "quiet", [1])
    await quiet.until(1)
    assert live.seqs == [2, 3, 4, 5, 6, 7, 8]
    assert linked(live)
    assert chain(quiet) == [(9, 1)]


async def test_a_killed_leader_or_home_of_the_consumer_costs_no_event(nats_cluster: Cluster) -> None:
    settings = LogSettings(tail="consumer", replicas=3, timeout=5)
    log = await open_log(ConnectOptions(servers=nats_cluster.urls), settings)
    live = Live()
    await log.subscribe("s1", live)
    stored: list[int] = []
    stop = asyncio.Event()

    async def publish() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                stored.append((await log.append("s1", row(number, f"k{number}"))).seq)
            except (LogUnavailable, PublishUnconfirmed):
                number -= 1
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.002)

    publishing = asyncio.create_task(publish())
    try:
        for place in ("stream", "consumer"):
            await eventually(lambda: len(live.messages) > 100, "events flow", 30)
            async with connected(nats_cluster.urls[0]) as connection:
                victim = await _home(nats_cluster, connection, place)
            await victim.kill()
            reached = len(stored)
            await eventually(lambda reached=reached: len(stored) > reached + 100, "events are stored again", 60)
            await eventually(lambda reached=reached: len(live.messages) > reached + 50, "and arrive", 30)
            await victim.start()
            await eventually(lambda: log.connected, "the connection is up", 30)
        stop.set()
        await publishing
        await eventually(lambda: live.seqs[-1:] == stored[-1:], "the last event", 30)
        assert live.seqs == sorted(set(live.seqs))
        assert set(stored) <= set(live.seqs)
    finally:
        publishing.cancel()
        await log.close()


async def _home(cluster: Cluster, connection: Connection, of: str) -> EmbeddedServer:
    """Return the node that leads the stream, or that keeps its consumer."""
    if of == "stream":
        node = await cluster.leader(connection, STREAM)
        assert node is not None
        return node
    found: list[str] = []

    async def known() -> bool:
        found[:] = await consumers(connection)
        return bool(found)

    await eventually(known, "the consumer")
    info = await api(connection, f"CONSUMER.INFO.{STREAM}.{found[0]}")
    return cluster.node(info["cluster"]["leader"])


# The process stands still.


async def test_a_process_that_stood_still_gets_everything_and_is_not_cut_off(
    log: JetStreamLog, nats_server: EmbeddedServer
) -> None:
    ear, live = Ear(), Live()
    log.listen(ear)
    await log.subscribe("s1", live)
    await fill(log, "s1", [0])
    await live.until(1)
    count, size = 6000, 2000

    async def publish() -> None:
        async with connected(nats_server) as direct:
            payload = b'{"type":"t","data":"%b"}' % (b"x" * size)
            for _ in range(count // 500):
                await asyncio.gather(*(direct.request(event_subject(0, "s1"), payload) for _ in range(500)))

    publishing = asyncio.create_task(asyncio.to_thread(asyncio.run, publish()))
    await asyncio.sleep(0)
    time.sleep(3.5 * HEARTBEAT)  # noqa: ASYNC251 - standing still is what is tested
    await publishing
    await live.until(count + 1)
    assert live.seqs == list(range(1, count + 2))
    assert linked(live)
    assert ear.connections == []


async def test_what_the_ring_lost_while_nobody_read_leaves_a_visible_hole_for_every_session(
    nats_server: EmbeddedServer, connection: Connection
) -> None:
    log = await opened(nats_server, ring_size=2)
    live, quiet = Live(), Live()
    await log.subscribe("s1", live)
    await log.subscribe("quiet", quiet)
    await fill(log, "quiet", [1])
    await fill(log, "s1", [1])
    await live.until(1)
    held = hold_reading(log)
    await delete_consumer(connection)
    for number in range(6):
        await append(connection, event_subject(0, "s1"), row(number).payload)
    held.resume_reading()
    await live.until(4)
    await fill(log, "quiet", [2])
    await fill(log, "s1", [9])
    await live.until(5)
    # 3, 4 and 5 are gone: 6 does not name 2 as its predecessor, and what comes later is linked again.
    assert chain(live) == [(2, 0), (6, 5), (7, 6), (8, 7), (10, 8)]
    assert chain(quiet) == [(1, 0), (9, 8)]
    await log.close()


async def test_res_3_what_was_purged_before_it_was_delivered_leaves_a_visible_hole(
    log: JetStreamLog, connection: Connection
) -> None:
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", [1])
    await live.until(1)
    held = hold_reading(log)
    await delete_consumer(connection)
    for number in range(3):
        await append(connection, event_subject(0, "s1"), row(number).payload)
    await append(connection, OTHER, row(1).payload)
    purged = await api(connection, f"STREAM.PURGE.{STREAM}", {"filter": event_subject(0, "s1")})
    assert purged["purged"] == 4
    held.resume_reading()
    await append(connection, event_subject(0, "s1"), row(9).payload)
    await live.until(2)
    assert chain(live) == [(1, 0), (6, 5)]


async def test_res_3_a_purge_of_what_was_delivered_hides_nothing_and_breaks_nothing(log: JetStreamLog) -> None:
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", range(3))
    await live.until(3)
    await log.purge("s1")
    await fill(log, "s1", [4])
    await live.until(4)
    assert chain(live)[-1] == (4, 3)


async def test_epo_1_a_stream_made_anew_is_followed_from_where_its_tail_was_seen(
    log: JetStreamLog, connection: Connection, nats_server: EmbeddedServer
) -> None:
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", range(20))
    await live.until(20)
    await api(connection, f"STREAM.DELETE.{STREAM}")
    again = await opened(nats_server)
    stored = 0

    async def arrives() -> bool:
        nonlocal stored
        [stored] = await fill(again, "s1", [1])
        return len(live.messages) > 20

    await eventually(arrives, "an event of the new stream")
    await eventually(lambda: live.seqs[-1] == stored, "the last event")
    new = chain(live)[20:]
    assert [seq for seq, _ in new] == list(range(new[0][0], stored + 1))
    assert [previous for _, previous in new] == [seq - 1 for seq, _ in new]
    await again.close()


async def _has_consumer(connection: Connection) -> bool:
    return len(await consumers(connection)) == 1


# Many sessions, few consumers.


async def test_a_thousand_sessions_of_a_shard_share_one_consumer_and_each_has_its_own_chain(
    log: JetStreamLog, connection: Connection
) -> None:
    names = [f"s{number}" for number in range(1000)]
    lives = {name: Live() for name in names}
    await fill(log, "s7", [0])
    await asyncio.gather(*(log.subscribe(name, live) for name, live in lives.items()))
    assert len(await consumers(connection)) == 1
    stored: dict[str, list[int]] = {name: [] for name in names}
    for number in range(3):
        sequences = await asyncio.gather(*(log.append(name, row(number)) for name in names))
        for name, appended in zip(names, sequences, strict=True):
            stored[name].append(appended.seq)
    for name, live in lives.items():
        await live.until(3)
        assert live.seqs == stored[name]
        assert linked(live)
        assert live.messages[0][1] == (1 if name == "s7" else 0)
    assert len(await consumers(connection)) == 1


async def test_a_shard_without_subscribed_sessions_has_no_consumer(
    nats_server: EmbeddedServer, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_tail, "LINGER", 0.1)
    log = await opened(nats_server, shards=2)
    mine = next(name for name in ("a", "b", "c", "d", "e") if shard_of(name, 2) == 0)
    foreign = next(name for name in ("a", "b", "c", "d", "e") if shard_of(name, 2) == 1)
    assert await consumers(connection, stream_name(0)) == []
    live = Live()
    tail = await log.subscribe(mine, live)
    assert len(await consumers(connection, stream_name(0))) == 1
    assert await consumers(connection, stream_name(1)) == []
    await fill(log, foreign, range(3))
    await fill(log, mine, [1])
    await live.until(1)
    assert live.seqs == [1]
    tail.close()

    async def gone() -> bool:
        return await consumers(connection, stream_name(0)) == []

    await eventually(gone, "the consumer goes with its last session")
    await fill(log, mine, [2])
    await log.subscribe(mine, live)
    await fill(log, mine, [3])
    await live.until(2)
    assert chain(live) == [(1, 0), (3, 2)]
    await log.close()


async def test_a_session_subscribed_later_begins_behind_its_last_event(log: JetStreamLog) -> None:
    early, late = Live(), Live()
    await log.subscribe("other", early)
    await fill(log, "s1", range(4))
    await fill(log, "other", [1])
    await log.subscribe("s1", late)
    await fill(log, "other", [2])
    await fill(log, "s1", [5])
    await late.until(1)
    assert chain(late) == [(7, 4)]
    assert chain(early) == [(5, 0), (6, 5)]


async def test_events_that_flow_while_a_session_is_subscribed_leave_no_seam(log: JetStreamLog) -> None:
    await log.subscribe("other", Live())
    stored: list[int] = []

    async def publish() -> None:
        for number in range(600):
            stored.extend(await fill(log, "s1", [number]))

    publishing = asyncio.create_task(publish())
    lives: list[tuple[int, Live]] = []
    while not publishing.done():
        live = Live()
        await log.subscribe("s1", live)
        lives.append((len(stored), live))
        await asyncio.sleep(0.005)
    await publishing
    for already, live in lives:
        await eventually(lambda live=live: live.seqs[-1:] in ([600], []), "the last event")
        # What was acknowledged before subscribe returned may have come, what was stored later must have.
        assert live.seqs == list(range(601 - len(live.seqs), 601))
        assert len(live.seqs) >= 600 - already - 1
        assert not live.messages or live.messages[0][1] == live.seqs[0] - 1
        assert linked(live)


# Sizes, servers, limits.


async def test_an_event_larger_than_a_pull_comes_through(log: JetStreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PULL_BYTES", 2000)
    live = Live()
    await log.subscribe("s1", live)
    big = b'{"type":"t","data":"%b"}' % (b"x" * 300_000)
    for payload in (row(1).payload, big, row(2).payload, big, big):
        await log.append("s1", Row(payload))
    await live.until(5)
    assert linked(live)
    assert [len(payload) for *_, payload in live.messages] == [len(row(1).payload), len(big)] * 1 + [
        len(row(2).payload),
        len(big),
        len(big),
    ]


async def test_a_server_with_longer_acknowledgement_subjects_changes_nothing(tmp_path: Path) -> None:
    async with running_server(tmp_path, extra="feature_flags { js_ack_fc_v2: true }\n") as server:
        log = await opened(server)
        live = Live()
        await log.subscribe("s1", live)
        await fill(log, "s1", range(3))
        await live.until(3)
        assert chain(live) == [(1, 0), (2, 1), (3, 2)]
        page = await log.page("s1", 1, 1 << 20)
        assert [message.time_ns for message in page.messages] == [time_ns for _, _, time_ns, _ in live.messages]
        await log.close()


async def test_without_room_for_a_consumer_a_subscription_fails_and_works_once_there_is(
    nats_server: EmbeddedServer, connection: Connection
) -> None:
    log = await opened(nats_server, max_consumers=1)
    body = {"stream_name": STREAM, "config": {"durable_name": "foreign", "ack_policy": "none"}}
    assert "error" not in await api(connection, f"CONSUMER.DURABLE.CREATE.{STREAM}.foreign", body)
    with pytest.raises(LogUnavailable, match="maximum consumers"):
        await log.subscribe("s1", Live())
    await api(connection, f"CONSUMER.DELETE.{STREAM}.foreign")
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", [1])
    await live.until(1)
    await log.close()


async def test_a_stranger_on_the_inbox_only_makes_the_consumer_new(
    log: JetStreamLog, connection: Connection, nats_server: EmbeddedServer
) -> None:
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", [1])
    await live.until(1)
    [name] = await consumers(connection)
    subjects: list[str] = []
    await connection.subscribe(
        f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.>", lambda *parts: subjects.append(parts[1].decode())
    )
    for reply in ("", "a.b", "$JS.ACK.x.x.1.x.x.x.0"):
        await delete_consumer(connection)
        await eventually(lambda: len(subjects) > 0, "the pulls of the next consumer")
        target, subjects[:] = subjects[-1], []
        connection.send(target, json.dumps({"n": 1}).encode(), reply)
        await connection.flush()
        await eventually(lambda: _has_consumer(connection), "a consumer")
        await fill(log, "s1", [2])
    await live.until(4)
    assert live.seqs == [1, 2, 3, 4]
    assert [name] != await consumers(connection)


async def test_a_tail_that_cannot_be_opened_again_is_told_with_its_reason_until_it_can(
    log: JetStreamLog, connection: Connection
) -> None:
    ear = Ear()
    log.listen(ear)
    await log.subscribe("s1", Live())
    await fill(log, "s1", [1])
    assert ear.not_reopened == []
    body = {"stream_name": STREAM, "config": {"durable_name": "foreign", "ack_policy": "none"}}
    info = await api(connection, f"STREAM.INFO.{STREAM}")
    await api(connection, f"STREAM.UPDATE.{STREAM}", {**info["config"], "max_consumers": 1})
    await delete_consumer(connection)

    async def taken() -> bool:
        return "error" not in await api(connection, f"CONSUMER.DURABLE.CREATE.{STREAM}.foreign", body)

    await eventually(taken, "the only place for a consumer")
    await eventually(lambda: len(ear.not_reopened) > 1, "the failed tries")
    assert {shard for shard, _ in ear.not_reopened} == {0}
    assert "consumers" in ear.not_reopened[0][1]
    await api(connection, f"CONSUMER.DELETE.{STREAM}.foreign")
    await eventually(lambda: _has_consumer(connection), "the tail again")
    told = len(ear.not_reopened)
    await fill(log, "s1", [1])
    assert len(ear.not_reopened) == told


async def test_closing_the_log_leaves_no_consumer_behind(nats_server: EmbeddedServer, connection: Connection) -> None:
    log = await opened(nats_server, shards=3)
    for name in "abcdef":
        await log.subscribe(name, Live())
    await log.close()
    for shard in range(3):

        async def gone(shard: int = shard) -> bool:
            return await consumers(connection, stream_name(shard)) == []

        await eventually(gone, "no consumer")
    assert "error" in await api(connection, f"STREAM.INFO.{head_name(0)}")


async def test_pulls_that_expire_are_replaced_and_stay_apart(
    nats_server: EmbeddedServer, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "EXPIRES", 2.0)
    asked: list[int] = []

    def note(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        asked.append(json.loads(payload)["max_bytes"])

    log = await opened(nats_server)
    await connection.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.>", note)
    live = Live()
    await log.subscribe("s1", live)
    await eventually(lambda: len(asked) >= 6, "three pairs of pulls")
    whole = following.PULL_BYTES
    assert {tuple(sorted(asked[at : at + 2])) for at in (0, 2, 4)} == {(whole // 2, whole)}
    await fill(log, "s1", range(2))
    await live.until(2)
    assert chain(live) == [(1, 0), (2, 1)]
    assert len(await consumers(connection)) == 1
    await log.close()
