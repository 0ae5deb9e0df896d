"""The streams have the contract's shape, or the start fails and says what differs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ringmere.core.errors import LogRefused, StreamShapeDiffers
from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection
from ringmere.log.heads import read_head
from ringmere.log.shape import StreamSettings
from ringmere.log.streams import ensure_streams
from support.nats import Cluster, api, append, connected, eventually, running_server

SMALL = 256 * 1024 * 1024


def settings(**changed: Any) -> StreamSettings:
    """Settings that a small test server has room for."""
    return StreamSettings(**{"max_bytes": SMALL, "ring_size": 100, **changed})


def _without_jetstream(server: EmbeddedServer) -> str:
    return f'server_name: "{server.name}"\nlisten: "127.0.0.1:{server.port}"\n'


async def config(connection: Connection, stream: str) -> dict[str, Any]:
    """Return a stream's configuration as the server has it."""
    return dict((await api(connection, f"STREAM.INFO.{stream}"))["config"])


async def test_a_fresh_server_gets_streams_with_every_property_of_the_contract(connection: Connection) -> None:
    shards = await ensure_streams(connection, settings(shards=2, max_event_bytes=100_000))
    assert [(info.shard, info.stream, info.last_seq) for info in shards] == [
        (0, "RINGMERE_0", 0),
        (1, "RINGMERE_1", 0),
    ]
    found = await config(connection, "RINGMERE_1")
    expected = {
        "subjects": ["ringmere.events.1.*"],
        "storage": "file",
        "discard": "old",
        "retention": "limits",
        "allow_direct": True,
        "max_msgs_per_subject": 101,
        "max_age": 3_600_000_000_000,
        "max_bytes": SMALL // 2,
        "max_msg_size": 100_000 + 65_536,
        "duplicate_window": 120_000_000_000,
        "allow_atomic": True,
        "deny_delete": True,
        "deny_purge": False,
        "max_consumers": 10_000,
        "num_replicas": 1,
        "republish": {"src": "ringmere.events.1.*", "dest": "ringmere.live.1.{{wildcard(1)}}"},
        "allow_rollup_hdrs": False,
        "allow_msg_ttl": False,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not found.get("allow_msg_schedules")
    head = await config(connection, "RINGMERE_HEAD_1")
    assert head["sources"] == [{"name": "RINGMERE_1"}]
    assert (head["max_msgs_per_subject"], head["max_age"]) == (1, 7 * 86_400 * 1_000_000_000)
    assert head["allow_direct"]


async def test_a_stored_event_is_republished_and_heads_keep_the_last_of_each_session(
    connection: Connection,
) -> None:
    await ensure_streams(connection, settings())
    live: list[tuple[bytes, bytes]] = []
    await connection.subscribe("ringmere.live.0.*", lambda *parts: live.append((parts[0], parts[3])))
    for n in range(5):
        await append(connection, f"ringmere.events.0.s{n % 2}", str(n).encode())
    await eventually(lambda: len(live) == 5, "all live")
    assert live[0] == (b"ringmere.live.0.s0", b"0")

    async def heads() -> bool:
        found = [await read_head(connection, "RINGMERE_HEAD_0", f"ringmere.events.0.s{n}") for n in (0, 1)]
        return [head and (head[0], head[2]) for head in found] == [(5, b"4"), (4, b"3")]

    await eventually(heads, "the head stream knows the last event of each, with the event stream's sequence")
    assert (await api(connection, "STREAM.INFO.RINGMERE_HEAD_0"))["state"]["messages"] == 2


async def test_direct_reads_of_a_shard_are_never_answered_by_its_head_stream(
    connection: Connection, nats_server: EmbeddedServer
) -> None:
    """A mirror would take part in them; so a head stream must not be one."""
    await ensure_streams(connection, settings())
    for n in range(10):
        await append(connection, "ringmere.events.0.s", str(n).encode())

    async def all_right() -> None:
        query = json.dumps({"seq": 1, "next_by_subj": "ringmere.events.0.s"}).encode()
        for _ in range(100):
            answer = await connection.request("$JS.API.DIRECT.GET.RINGMERE_0", query)
            assert answer.payload == b"0"

    await all_right()
    await nats_server.kill()
    await eventually(lambda: not connection.connected, "the loss")
    await nats_server.start()
    await eventually(lambda: connection.connected, "the return")
    await all_right()
    await ensure_streams(connection, settings())
    await all_right()


async def test_a_deleted_head_stream_is_made_again_at_start_and_fills_from_what_is_stored(
    connection: Connection,
) -> None:
    await ensure_streams(connection, settings())
    for n in range(3):
        await append(connection, "ringmere.events.0.s", str(n).encode())
    await api(connection, "STREAM.DELETE.RINGMERE_HEAD_0")
    await ensure_streams(connection, settings())

    async def filled() -> bool:
        head = await read_head(connection, "RINGMERE_HEAD_0", "ringmere.events.0.s")
        return head is not None and head[0] == 3 and head[2] == b"2"

    await eventually(filled, "the head is back")


async def test_a_second_start_with_the_same_settings_changes_nothing(connection: Connection) -> None:
    await ensure_streams(connection, settings(shards=2))
    await append(connection, "ringmere.events.0.s", b"1")
    before = await config(connection, "RINGMERE_0")
    shards = await ensure_streams(connection, settings(shards=2))
    assert shards[0].last_seq == 1
    assert await config(connection, "RINGMERE_0") == before


async def test_several_instances_may_start_at_once(nats_server: EmbeddedServer) -> None:
    async with connected(nats_server) as one, connected(nats_server) as two, connected(nats_server) as three:
        results = await asyncio.gather(*(ensure_streams(c, settings(shards=3)) for c in (one, two, three)))
        assert [info.created for info in results[0]] == [info.created for info in results[2]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_msgs_per_subject": 51}, "max_msgs_per_subject is 51, wanted 101"),
        ({"max_age": 60_000_000_000, "duplicate_window": 60_000_000_000}, "max_age is 60 s, wanted 3600 s"),
        ({"allow_rollup_hdrs": True}, "allow_rollup_hdrs is True, wanted False"),
        ({"allow_msg_ttl": True}, "allow_msg_ttl is True, wanted False"),
        ({"republish": None}, "republish is none, wanted"),
        ({"subjects": ["ringmere.events.0.>"]}, "subjects is"),
        ({"max_bytes": 100_000_000}, "max_bytes is 100000000, wanted"),
        ({"deny_purge": True}, "deny_purge is True, wanted False"),
        ({"allow_atomic": False}, "allow_atomic is False, wanted True"),
        ({"max_consumers": 5}, "max_consumers is 5, wanted 10000"),
    ],
)
async def test_another_shape_stops_the_start_and_is_named(
    connection: Connection, change: dict[str, Any], says: str
) -> None:
    await ensure_streams(connection, settings())
    changed = {**await config(connection, "RINGMERE_0"), **change}
    assert "error" not in await api(connection, "STREAM.UPDATE.RINGMERE_0", changed)
    before = await config(connection, "RINGMERE_0")
    with pytest.raises(StreamShapeDiffers) as caught:
        await ensure_streams(connection, settings(tail="republish"))
    assert caught.value.stream == "RINGMERE_0"
    assert any(row.startswith(says) for row in caught.value.differences), caught.value.differences
    assert await config(connection, "RINGMERE_0") == before


@pytest.mark.parametrize("tail", ["auto", "consumer"])
@pytest.mark.parametrize("reconcile", [False, True])
async def test_a_stream_without_republishing_is_accepted_as_it_is_unless_the_tail_needs_it(
    connection: Connection, tail: str, reconcile: bool
) -> None:
    [made] = await ensure_streams(connection, settings(tail="consumer"))
    assert not made.republishes
    assert "republish" not in await config(connection, "RINGMERE_0")
    [found] = await ensure_streams(connection, settings(tail=tail, reconcile=reconcile, ring_size=100))
    assert not found.republishes
    with pytest.raises(StreamShapeDiffers, match="republish is none, wanted"):
        await ensure_streams(connection, settings(tail="republish"))
    [changed] = await ensure_streams(connection, settings(tail="republish", reconcile=True))
    assert changed.republishes


@pytest.mark.parametrize("tail", ["auto", "republish", "consumer"])
async def test_a_stream_that_republishes_suits_every_tail_but_not_when_it_does_so_elsewhere(
    connection: Connection, tail: str
) -> None:
    await ensure_streams(connection, settings())
    before = await config(connection, "RINGMERE_0")
    [found] = await ensure_streams(connection, settings(tail=tail, reconcile=True))
    assert found.republishes
    assert await config(connection, "RINGMERE_0") == before
    elsewhere = {**before, "republish": {"src": "ringmere.events.0.*", "dest": "other.{{wildcard(1)}}"}}
    assert "error" not in await api(connection, "STREAM.UPDATE.RINGMERE_0", elsewhere)
    with pytest.raises(StreamShapeDiffers, match=r"republish is .*other"):
        await ensure_streams(connection, settings(tail=tail))


async def test_all_differences_are_named_at_once(connection: Connection) -> None:
    await ensure_streams(connection, settings())
    with pytest.raises(StreamShapeDiffers) as caught:
        await ensure_streams(connection, settings(ring_size=7, log_ttl=60.0))
    assert caught.value.differences == [
        "max_msgs_per_subject is 101, wanted 8",
        "max_age is 3600 s, wanted 60 s",
        "duplicate_window is 120 s, wanted 60 s",
    ]


async def test_reconcile_changes_what_may_be_changed_and_keeps_the_events(connection: Connection) -> None:
    await ensure_streams(connection, settings())
    await append(connection, "ringmere.events.0.s", b"1")
    shards = await ensure_streams(connection, settings(ring_size=7, log_ttl=60.0, head_ttl=86_400.0, reconcile=True))
    assert shards[0].last_seq == 1
    assert (await config(connection, "RINGMERE_0"))["max_msgs_per_subject"] == 8
    assert (await config(connection, "RINGMERE_HEAD_0"))["max_age"] == 86_400_000_000_000
    assert (await config(connection, "RINGMERE_0"))["allow_direct"]


async def test_enlarged_rings_are_noted_with_the_tail_and_an_interrupted_note_is_finished(
    connection: Connection,
) -> None:
    await ensure_streams(connection, settings(ring_size=5))
    await append(connection, "ringmere.events.0.s", b"1")
    await ensure_streams(connection, settings(ring_size=7, reconcile=True))
    noted = await config(connection, "RINGMERE_0")
    assert noted["metadata"]["ringmere.ring_from"] == "1"
    assert "ringmere.epochs" in noted["metadata"]
    noted["metadata"]["ringmere.ring_from"] = str(2**40 - 1)
    await api(connection, "STREAM.UPDATE.RINGMERE_0", noted)
    await append(connection, "ringmere.events.0.s", b"2")
    await ensure_streams(connection, settings(ring_size=7))
    assert (await config(connection, "RINGMERE_0"))["metadata"]["ringmere.ring_from"] == "2"


async def test_what_the_server_does_not_let_change_is_refused_even_with_reconcile(connection: Connection) -> None:
    body = {"name": "RINGMERE_0", "subjects": ["ringmere.events.0.*"], "storage": "memory"}
    await api(connection, "STREAM.CREATE.RINGMERE_0", body)
    with pytest.raises(StreamShapeDiffers, match=r"storage is memory, wanted file.*NATS refuses"):
        await ensure_streams(connection, settings(reconcile=True))


async def test_another_number_of_shards_refuses_even_with_reconcile(connection: Connection) -> None:
    await ensure_streams(connection, settings(shards=2))
    for count in (1, 3):
        with pytest.raises(StreamShapeDiffers, match=f"shards is 2, wanted {count}"):
            await ensure_streams(connection, settings(shards=count, reconcile=True))
    assert (await api(connection, "STREAM.INFO.RINGMERE_2"))["error"]["err_code"] == 10059


async def test_another_number_of_shards_refuses_also_when_the_records_were_lost(connection: Connection) -> None:
    await ensure_streams(connection, settings(shards=2))
    await api(connection, "STREAM.DELETE.KV_RINGMERE_EPOCHS")
    with pytest.raises(StreamShapeDiffers, match="shards is 2, wanted 1"):
        await ensure_streams(connection, settings(shards=1))


async def test_head_ttl_zero_makes_no_head_streams_and_names_one_that_exists(connection: Connection) -> None:
    await ensure_streams(connection, settings(head_ttl=0))
    assert (await api(connection, "STREAM.INFO.RINGMERE_HEAD_0"))["error"]["err_code"] == 10059
    assert (await config(connection, "RINGMERE_0"))["allow_direct"]
    await ensure_streams(connection, settings())
    assert (await config(connection, "RINGMERE_HEAD_0"))["max_age"] == 7 * 86_400 * 1_000_000_000
    with pytest.raises(StreamShapeDiffers, match="heads are switched off"):
        await ensure_streams(connection, settings(head_ttl=0))
    await ensure_streams(connection, settings(head_ttl=0, reconcile=True))
    assert (await api(connection, "STREAM.INFO.RINGMERE_HEAD_0"))["error"]["err_code"] == 10059


async def test_a_head_that_is_a_mirror_is_named_and_reconcile_renews_it(connection: Connection) -> None:
    await ensure_streams(connection, settings(head_ttl=0))
    body = {"name": "RINGMERE_HEAD_0", "mirror": {"name": "RINGMERE_0"}, "max_msgs_per_subject": 1}
    made = await api(connection, "STREAM.CREATE.RINGMERE_HEAD_0", body)
    assert made["config"]["mirror_direct"], "the reason why a head is no mirror: nobody has asked for this"
    with pytest.raises(StreamShapeDiffers, match=r"mirror is .*wanted none"):
        await ensure_streams(connection, settings())
    await ensure_streams(connection, settings(reconcile=True))
    assert "mirror" not in await config(connection, "RINGMERE_HEAD_0")


async def test_log_ttl_zero_keeps_events_for_ever_with_the_usual_duplicate_window(connection: Connection) -> None:
    await ensure_streams(connection, settings(log_ttl=0))
    found = await config(connection, "RINGMERE_0")
    assert (found["max_age"], found["duplicate_window"]) == (0, 120_000_000_000)


async def test_without_a_number_the_streams_share_80_percent_of_an_accounts_store(tmp_path: Path) -> None:
    accounts = "accounts { A { users: [{user: u, password: p}], jetstream { max_file: 1000000000, max_mem: 0 } } }"
    async with (
        running_server(tmp_path, extra=accounts) as server,
        connected(server, user="u", password="p") as connection,
    ):
        await ensure_streams(connection, StreamSettings(shards=4))
        assert (await config(connection, "RINGMERE_3"))["max_bytes"] == 200_000_000
        assert (await config(connection, "RINGMERE_HEAD_3"))["max_bytes"] == 25_000_000


async def test_without_a_number_and_without_a_limit_the_server_grants_what_it_has(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, jetstream="max_file_store: 2GB") as server,
        connected(server) as connection,
    ):
        await ensure_streams(connection, StreamSettings())
        granted = (await config(connection, "RINGMERE_0"))["max_bytes"]
        assert 500_000_000 < granted < 2_000_000_000
        await ensure_streams(connection, StreamSettings())
        assert (await config(connection, "RINGMERE_0"))["max_bytes"] == granted


async def test_a_store_without_room_is_refused_with_a_clear_line(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, jetstream="max_file_store: 200MB") as server,
        connected(server) as connection,
    ):
        with pytest.raises(LogRefused, match="insufficient storage"):
            await ensure_streams(connection, StreamSettings(shards=64))


async def test_instances_on_a_new_cluster_with_little_room_ask_for_no_more_than_there_is(tmp_path: Path) -> None:
    """The cluster hears of its servers' room with a delay; what it grants too much it refuses to change later."""
    cluster = Cluster(tmp_path)
    for node in cluster.nodes:
        node.jetstream = "max_file_store: 4GB"
    try:
        await cluster.start()
        async with connected(cluster.urls[0]) as connection:
            await ensure_streams(connection, StreamSettings(replicas=3))
            names = (await api(connection, "STREAM.NAMES"))["streams"]
            granted = [(await config(connection, name))["max_bytes"] for name in names]
            assert len(granted) == 6
            assert sum(granted) < 4 << 30
    finally:
        await cluster.kill()


async def test_three_replicas_on_one_server_are_refused_with_a_clear_line(connection: Connection) -> None:
    with pytest.raises(LogRefused, match="replicas > 1"):
        await ensure_streams(connection, settings(replicas=3))


async def test_jetstream_that_is_off_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedServer, "configuration", _without_jetstream)
    async with running_server(tmp_path) as server, connected(server) as connection:
        with pytest.raises(LogRefused, match="JetStream is not enabled"):
            await ensure_streams(connection, settings())


async def test_an_account_without_jetstream_is_refused(tmp_path: Path) -> None:
    accounts = (
        "accounts { A { users: [{user: u, password: p}] }, B { jetstream: enabled, users: [{user: v, password: p}] } }"
    )
    async with (
        running_server(tmp_path, extra=accounts) as server,
        connected(server, user="u", password="p") as connection,
    ):
        with pytest.raises(LogRefused, match="JetStream"):
            await ensure_streams(connection, settings())


async def test_a_server_too_old_for_atomic_batches_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedServer, "configuration", _without_jetstream)
    async with running_server(tmp_path) as server, connected(server) as connection:
        answer = json.dumps({"limits": {"max_storage": -1}, "api": {"level": 1}}).encode()
        await connection.subscribe("$JS.API.INFO", lambda *parts: connection.send(parts[1].decode(), answer))
        with pytest.raises(LogRefused, match=r"too old: 2\.12 or newer"):
            await ensure_streams(connection, settings())


@pytest.mark.parametrize(
    "wrong",
    [
        {"tail": "push"},
        {"ring_size": 0},
        {"ring_size": 1_000_001},
        {"shards": 0},
        {"shards": 65},
        {"replicas": 6},
        {"log_ttl": -1.0},
    ],
)
def test_numbers_outside_the_contract_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        StreamSettings(**wrong)


async def test_a_cluster_gets_replicated_streams_whose_heads_stay_out_of_direct_reads(nats_cluster: Cluster) -> None:
    async with connected(nats_cluster.urls[0]) as connection:
        await ensure_streams(connection, settings(replicas=3))
        for name in (
            "RINGMERE_0",
            "RINGMERE_HEAD_0",
            "KV_RINGMERE_EPOCHS",
            "KV_RINGMERE_PURGES",
            "KV_RINGMERE_CONTROL",
        ):
            assert (await config(connection, name))["num_replicas"] == 3
        await ensure_streams(connection, settings(replicas=3))
