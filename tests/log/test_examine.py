"""The check-up against real servers: all is well, and each thing that can be wrong is named with what to do."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ringmere.embedded import EmbeddedServer
from ringmere.log import prove
from ringmere.log.connect import Connection
from ringmere.log.degraded import store_probe
from ringmere.log.epoch_store import EpochStore
from ringmere.log.examine import Examination, within
from ringmere.log.findings import BAD, CODES, OK, WARN, Finding, exit_code
from ringmere.log.shape import StreamSettings
from ringmere.log.streams import ensure_streams
from support.disk import fill_up, tmpfs
from support.nats import Cluster, api, append, connected, eventually, running_server

MIB = 1024 * 1024
SETTINGS = StreamSettings(max_bytes=256 * MIB, ring_size=100)
EVENT = b'{"type":"t","data":1}'


async def examined(connection: Connection, settings: StreamSettings = SETTINGS, *, store: bool = True) -> list[Finding]:
    return [finding async for finding in Examination(connection, settings, store=store).run()]


def not_ok(found: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.level, finding.code, finding.about) for finding in found if finding.level != OK]


def one(found: list[Finding], code: str, about: str) -> Finding:
    [finding] = [each for each in found if (each.code, each.about) == (code, about)]
    return finding


async def everything(connection: Connection) -> dict[str, Any]:
    """Return all streams with what is stored in them by subject, and their consumers."""
    found = {}
    for name in (await api(connection, "STREAM.NAMES"))["streams"]:
        info = await api(connection, f"STREAM.INFO.{name}", {"subjects_filter": ">"})
        consumers = (await api(connection, f"CONSUMER.NAMES.{name}"))["consumers"]
        found[name] = (info["created"], info["config"], info["state"].get("subjects"), consumers)
    return found


@pytest.fixture
async def log(connection: Connection) -> Connection:
    """A connection to a server that holds the log, with one event in it."""
    await ensure_streams(connection, SETTINGS)
    await append(connection, "ringmere.events.0.s", EVENT)
    return connection


async def test_a_log_that_is_in_order_is_found_so_and_every_check_is_made(log: Connection) -> None:
    found = await examined(log)
    assert not_ok(found) == []
    assert exit_code(found) == 0
    here = {code for code in CODES if not code.startswith("gateway") and code != "connection"}
    assert {finding.code for finding in found} == here


async def test_it_leaves_no_stream_no_key_no_consumer_and_of_messages_only_the_probe(log: Connection) -> None:
    async def settled() -> dict[str, Any]:
        # Heads follow a moment later.
        await eventually(lambda: _heads(log), "the heads")
        return await everything(log)

    await store_probe(log, 0, 5)
    before = await settled()
    await examined(log, store=False)
    assert await settled() == before
    await examined(log)
    after = await settled()
    (_, _, subjects, consumers) = after["RINGMERE_0"]
    assert subjects == {"ringmere.events.0.s": 1, "ringmere.events.0.!probe": 2}
    assert consumers is None or consumers == []
    subjects["ringmere.events.0.!probe"] = 1
    assert after == before


async def _heads(connection: Connection) -> bool:
    tail = (await api(connection, "STREAM.INFO.RINGMERE_0"))["state"]["last_seq"]
    return bool((await api(connection, "STREAM.INFO.RINGMERE_HEAD_0"))["sources"][0].get("seq", 0) == tail)


async def test_without_storing_less_is_proven(log: Connection) -> None:
    found = await examined(log, store=False)
    assert not_ok(found) == []
    assert not {"storing", "republish", "reading"} & {finding.code for finding in found}


async def test_a_server_without_any_log_is_no_fault(connection: Connection) -> None:
    found = await examined(connection)
    assert not_ok(found) == [(WARN, "stream", "log")]
    assert (await api(connection, "STREAM.NAMES"))["streams"] is None


async def test_several_shards_are_looked_at_one_by_one(connection: Connection) -> None:
    settings = StreamSettings(max_bytes=256 * MIB, shards=3, head_ttl=0)
    await ensure_streams(connection, settings)
    examination = Examination(connection, settings)
    found = [finding async for finding in examination.run()]
    assert not_ok(found) == []
    assert sum(finding.code == "storing" for finding in found) == 3
    assert sorted(examination.tokens) == [0, 1, 2]
    assert len(set(examination.tokens.values())) == 3


async def test_jetstream_that_is_off_stops_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        EmbeddedServer, "configuration", lambda self: f'listen: "127.0.0.1:{self.port}"\nserver_name: "{self.name}"\n'
    )
    async with running_server(tmp_path) as server, connected(server) as connection:
        found = await examined(connection)
    assert not_ok(found) == [(BAD, "jetstream", "account")]
    assert exit_code(found) == 2


async def test_an_account_without_jetstream_stops_a_start(tmp_path: Path) -> None:
    accounts = (
        "accounts { A { users: [{user: u, password: p}] }, B { jetstream: enabled, users: [{user: v, password: p}] } }"
    )
    async with running_server(tmp_path, extra=accounts) as server, connected(server, user="u", password="p") as low:
        found = await examined(low)
    assert not_ok(found) == [(BAD, "jetstream", "account")]
    assert exit_code(found) == 2


async def test_another_shape_stops_a_start_and_is_told_in_full(log: Connection) -> None:
    settings = StreamSettings(max_bytes=256 * MIB, ring_size=7, log_ttl=5)
    found = await examined(log, settings)
    finding = one(found, "stream_shape", "RINGMERE_0")
    assert "max_msgs_per_subject is 101, wanted 8" in finding.text
    assert "max_age is 3600 s, wanted 5 s" in finding.text
    assert exit_code(found) == 2


async def test_other_shards_and_heads_that_should_not_be_stop_a_start(log: Connection) -> None:
    found = await examined(log, StreamSettings(max_bytes=256 * MIB, ring_size=100, shards=2))
    assert "--shards 1" in one(found, "epoch_record", "RINGMERE_0").todo
    assert one(found, "stream", "RINGMERE_1").level == BAD
    assert exit_code(found) == 2
    found = await examined(log, StreamSettings(max_bytes=256 * MIB, ring_size=100, head_ttl=0))
    assert "switched off" in one(found, "stream_shape", "RINGMERE_HEAD_0").text
    assert exit_code(found) == 2


async def test_a_deleted_stream_is_bad_and_what_comes_back_is_said(log: Connection) -> None:
    await api(log, "STREAM.DELETE.RINGMERE_0")
    found = await examined(log)
    finding = one(found, "stream", "RINGMERE_0")
    assert finding.level == BAD
    assert "new epoch" in finding.todo
    assert exit_code(found) == 1


async def test_a_stream_made_anew_is_told_by_its_record(log: Connection) -> None:
    config = (await api(log, "STREAM.INFO.RINGMERE_0"))["config"]
    await api(log, "STREAM.DELETE.RINGMERE_0")
    await api(log, "STREAM.CREATE.RINGMERE_0", config)
    finding = one(await examined(log), "epoch_record", "RINGMERE_0")
    assert finding.level == WARN
    assert "this one was made" in finding.text


async def test_a_record_that_is_gone_or_damaged_is_bad(log: Connection) -> None:
    store = EpochStore(log, SETTINGS)
    found = await store.bucket.get("shard.0")
    assert found is not None
    await store.bucket.put("shard.0", b"{", found.revision)
    finding = one(await examined(log), "epoch_record", "RINGMERE_0")
    assert (finding.level, finding.final) == (BAD, True)
    await api(log, "STREAM.PURGE.KV_RINGMERE_EPOCHS")
    finding = one(await examined(log), "epoch_record", "RINGMERE_0")
    assert (finding.level, finding.final) == (BAD, False)


async def test_a_log_that_came_back_older_asks_for_a_bump(
    nats_server: EmbeddedServer, log: Connection, tmp_path: Path
) -> None:
    streams = nats_server.data_dir / "jetstream" / "jetstream" / "$G" / "streams" / "RINGMERE_0"
    await nats_server.stop()
    await asyncio.to_thread(shutil.copytree, streams, tmp_path / "saved")
    await nats_server.start()
    await eventually(lambda: log.connected, "the connection")
    for _ in range(5):
        await append(log, "ringmere.events.0.s", EVENT)
    store = EpochStore(log, SETTINGS)
    found = await store.read(0)
    assert found is not None
    await store.note_loss(0, 6, found[0].table)
    await nats_server.stop()
    await asyncio.to_thread(shutil.rmtree, streams)
    await asyncio.to_thread(shutil.copytree, tmp_path / "saved", streams)
    await nats_server.start()
    await eventually(lambda: log.connected, "the connection")
    finding = one(await examined(log), "epoch_record", "RINGMERE_0")
    assert finding.level == BAD
    assert "epoch bump" in finding.todo


async def test_a_stream_that_takes_other_subjects_does_not_store(log: Connection) -> None:
    config = (await api(log, "STREAM.INFO.RINGMERE_0"))["config"]
    await api(log, "STREAM.UPDATE.RINGMERE_0", {**config, "subjects": ["elsewhere"], "republish": None})
    found = await examined(log)
    assert (BAD, "storing", "RINGMERE_0") in not_ok(found)
    assert (BAD, "stream_shape", "RINGMERE_0") in not_ok(found)


async def test_what_is_not_republished_where_it_should_be_is_bad(
    log: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "PATIENCE", 0.5)
    config = (await api(log, "STREAM.INFO.RINGMERE_0"))["config"]
    elsewhere = {"src": "ringmere.events.0.*", "dest": "elsewhere.{{wildcard(1)}}"}
    await api(log, "STREAM.UPDATE.RINGMERE_0", {**config, "republish": elsewhere})
    found = await examined(log)
    assert (BAD, "republish", "RINGMERE_0") in not_ok(found)


async def test_a_stream_without_republishing_is_followed_by_a_consumer(connection: Connection) -> None:
    await ensure_streams(connection, StreamSettings(max_bytes=256 * MIB, tail="consumer"))
    found = await examined(connection, StreamSettings(max_bytes=256 * MIB))
    assert not_ok(found) == []
    assert "consumer" in one(found, "republish", "RINGMERE_0").text


async def test_no_room_for_a_consumer_is_bad(log: Connection) -> None:
    config = (await api(log, "STREAM.INFO.RINGMERE_0"))["config"]
    await api(log, "STREAM.DELETE.RINGMERE_0")
    await api(log, "STREAM.CREATE.RINGMERE_0", {**config, "max_consumers": 2})
    # The heads' follower is one that the server does not count here.
    for number in range(2):
        body = {"stream_name": "RINGMERE_0", "config": {"name": f"c{number}", "durable_name": f"c{number}"}}
        await api(log, f"CONSUMER.CREATE.RINGMERE_0.c{number}", body)
    found = [(finding.level, finding.text) for finding in await examined(log) if finding.code == "consumers"]
    assert (BAD, "2 of 2 in use") in found
    assert any(level == BAD and "none can be made" in text for level, text in found)


@pytest.mark.skipif(sys.platform != "linux", reason="needs tmpfs")
async def test_a_single_server_whose_disk_was_full_must_be_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "PATIENCE", 1.5)
    settings = StreamSettings(max_bytes=1024 * MIB, ring_size=100)
    with tmpfs(tmp_path / "disk", "32m") as disk:
        async with (
            running_server(disk / "nats", jetstream="max_file_store: 4G") as server,
            connected(server) as connection,
        ):
            await ensure_streams(connection, settings)
            fill_up(disk / "ballast")
            for _ in range(2):
                finding = one(await examined(connection, settings), "storing", "RINGMERE_0")
                assert finding.level == BAD
                assert "restart the server" in finding.todo
                # Room alone does not bring it back.
                (disk / "ballast").unlink(missing_ok=True)
            await server.kill()
            await server.start()
            await eventually(lambda: connection.connected, "the connection")
            assert one(await examined(connection, settings), "storing", "RINGMERE_0").level == OK


async def test_a_node_that_is_down_is_told_and_its_return_too(nats_cluster: Cluster) -> None:
    settings = StreamSettings(max_bytes=256 * MIB, ring_size=100, replicas=3)
    async with connected(nats_cluster.urls[0]) as connection:
        await ensure_streams(connection, settings)

        async def is_level(wanted: str) -> bool:
            found = await examined(connection, settings, store=False)
            return (wanted, "replicas", "RINGMERE_0") in [(each.level, each.code, each.about) for each in found]

        await eventually(lambda: is_level(OK), "three copies", 30)
        await nats_cluster.nodes[2].kill()
        # Until the others notice, the copy is only late; a new leader may have to be found.
        await eventually(lambda: is_level(BAD), "two copies", 60)
        await nats_cluster.nodes[2].start()
        await eventually(lambda: is_level(OK), "three copies again", 60)


async def test_a_nats_that_stands_still_does_not_hold_it_up(nats_server: EmbeddedServer, log: Connection) -> None:
    nats_server.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        found = [finding async for finding in within(1.0, Examination(log, SETTINGS).run())]
        assert time.monotonic() - begin < 20
    finally:
        nats_server.send_signal(signal.SIGCONT)
    assert found[-1].level == BAD
    assert found[-1].code == "connection"
