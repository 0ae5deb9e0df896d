"""Epoch rows: added exactly when a sequence could come again with another content, and once."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ringmere.core.cursor import MAX_EPOCH, EpochRow, EpochTable
from ringmere.core.errors import LogRefused, LogUnavailable
from ringmere.embedded import EmbeddedServer
from ringmere.log import epochs as epochs_module
from ringmere.log.connect import Connection
from ringmere.log.epoch_record import METADATA_KEY, EpochRecord, decode, new_record
from ringmere.log.epoch_store import EpochStore
from ringmere.log.epochs import Epochs
from ringmere.log.heads import read_head
from ringmere.log.records import RecordConflict
from ringmere.log.shape import StreamSettings
from ringmere.log.streams import ensure_streams
from support.nats import Cluster, api, append, connected, eventually

SETTINGS = StreamSettings(max_bytes=256 * 1024 * 1024, ring_size=100)
SUBJECT = "ringmere.events.0.s"
Changes = list[tuple[int, EpochTable]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between two looks."""
    monkeypatch.setattr(epochs_module, "CHECK_INTERVAL", 0.2)
    monkeypatch.setattr(epochs_module, "CONFIRM_AFTER", 0.3)


@asynccontextmanager
async def instance(
    connection: Connection, settings: StreamSettings = SETTINGS
) -> AsyncIterator[tuple[Epochs, Changes]]:
    """Run one instance's epochs; the list collects what its listener hears."""
    await ensure_streams(connection, settings)
    epochs = Epochs(connection, settings)
    changes: Changes = []
    epochs.on_change(lambda shard, table: changes.append((shard, table)))
    await epochs.start()
    try:
        yield epochs, changes
    finally:
        await epochs.close()


async def fill(connection: Connection, count: int, subject: str = SUBJECT) -> int:
    """Store ``count`` messages and return the last sequence."""
    last = 0
    for n in range(count):
        last = await append(connection, subject, str(n).encode())
    return last


async def recreate(connection: Connection) -> None:
    """Delete the event stream and make it again, as an operator might."""
    config = (await api(connection, "STREAM.INFO.RINGMERE_0"))["config"]
    await api(connection, "STREAM.DELETE.RINGMERE_0")
    assert "error" not in await api(connection, "STREAM.CREATE.RINGMERE_0", {**config, "metadata": {}})


async def back_up(connection: Connection) -> tuple[dict[str, Any], list[bytes]]:
    """Take a backup of the event stream through the API, as ``nats stream backup`` does."""
    chunks: list[bytes] = []
    done = asyncio.Event()

    def take(_subject: bytes, reply: bytes, _headers: bytes, payload: bytes) -> None:
        if payload:
            chunks.append(payload)
            if reply:
                connection.send(reply.decode(), b"")
        else:
            done.set()

    inbox = connection.inbox(take)
    taken = await api(connection, "STREAM.SNAPSHOT.RINGMERE_0", {"deliver_subject": inbox.subject})
    await done.wait()
    inbox.close()
    return taken, chunks


async def restore(connection: Connection, backup: tuple[dict[str, Any], list[bytes]]) -> None:
    """Put the event stream back to a backup, as ``nats stream restore`` does."""
    taken, chunks = backup
    await api(connection, "STREAM.DELETE.RINGMERE_0")
    body = {"config": taken["config"], "state": taken["state"]}
    answer = await api(connection, "STREAM.RESTORE.RINGMERE_0", body)
    for chunk in [*chunks, b""]:
        await connection.request(answer["deliver_subject"], chunk, timeout=10)


async def crash_back_to(connection: Connection, server: EmbeddedServer, saved: Path) -> None:
    """Kill the server and give its stream the files of an earlier moment, as an unsynced disk would."""
    await server.kill()
    await eventually(lambda: not connection.connected, "the loss")
    await asyncio.to_thread(shutil.rmtree, stream_files(server))
    await asyncio.to_thread(shutil.copytree, saved, stream_files(server))
    await server.start()
    await eventually(lambda: connection.connected, "the return")


def stream_files(server: EmbeddedServer) -> Path:
    """Return where the server keeps the event stream."""
    return server.data_dir / "jetstream" / "jetstream" / "$G" / "streams" / "RINGMERE_0"


def rows(table: EpochTable) -> list[tuple[int, int, bool]]:
    """Return the rows as plain tuples."""
    return [(row.epoch, row.first, row.void) for row in table.rows]


async def test_a_fresh_stream_is_epoch_zero_with_a_random_birth(nats_server: EmbeddedServer) -> None:
    async with connected(nats_server) as connection, instance(connection) as (epochs, changes):
        table = epochs.table(0)
        assert rows(table) == [(0, 1, False)]
        assert len(table.birth) == 16
        int(table.birth, 16)
        assert [table.id_of(seq) for seq in (1, 2, 3)] == [1, 2, 3]
        assert changes == []


async def test_every_shard_has_a_birth_of_its_own_that_stays_over_restarts(connection: Connection) -> None:
    settings = StreamSettings(max_bytes=SETTINGS.max_bytes, shards=3)
    births = []
    for _ in range(2):
        async with instance(connection, settings) as (epochs, _):
            births.append([epochs.table(shard).birth for shard in range(3)])
    assert births[0] == births[1]
    assert len(set(births[0])) == 3


async def test_a_stream_recreated_under_a_running_instance_voids_the_older_ids(connection: Connection) -> None:
    async with instance(connection) as (epochs, changes):
        await fill(connection, 5)
        await recreate(connection)
        table = await epochs.check(0)
        assert rows(table) == [(0, 1, True), (1, 1, False)]
        assert not table.known(3)
        assert table.id_of(1) == (1 << 40) + 1
        assert changes == [(0, table)]
        assert await epochs.check(0) == table


async def test_a_recreated_stream_is_noticed_without_anyone_asking(connection: Connection) -> None:
    async with instance(connection) as (epochs, changes):
        await recreate(connection)
        await eventually(lambda: bool(changes), "the monitor has seen it")
        assert rows(epochs.table(0)) == [(0, 1, True), (1, 1, False)]


async def test_a_stream_recreated_while_no_instance_ran_gets_its_row_at_start(connection: Connection) -> None:
    async with instance(connection) as (epochs, _):
        birth = epochs.table(0).birth
        await fill(connection, 5)
    await api(connection, "STREAM.DELETE.RINGMERE_0")
    async with instance(connection) as (epochs, changes):
        assert rows(epochs.table(0)) == [(0, 1, True), (1, 1, False)]
        assert epochs.table(0).birth == birth
        assert changes == []


async def test_a_missing_stream_is_told_not_recreated_and_noticed_when_it_is_back(connection: Connection) -> None:
    async with instance(connection) as (epochs, changes):
        config = (await api(connection, "STREAM.INFO.RINGMERE_0"))["config"]
        await api(connection, "STREAM.DELETE.RINGMERE_0")
        with pytest.raises(LogUnavailable, match="does not exist"):
            await epochs.check(0)
        await eventually(lambda: 0 in epochs.trouble, "the monitor tells of it")
        assert (await api(connection, "STREAM.INFO.RINGMERE_0"))["error"]["err_code"] == 10059
        await api(connection, "STREAM.CREATE.RINGMERE_0", config)
        await eventually(lambda: bool(changes), "it is back, as another one")
        await eventually(lambda: not epochs.trouble, "all is well again")


async def test_a_recreated_stream_has_no_heads_of_the_one_before_and_soon_its_own(connection: Connection) -> None:
    async with instance(connection) as (epochs, _):
        await fill(connection, 5)
        await fill(connection, 1, "ringmere.events.0.old")

        async def known() -> bool:
            return await read_head(connection, "RINGMERE_HEAD_0", "ringmere.events.0.old") is not None

        await eventually(known, "the head of the old session")
        await recreate(connection)
        await epochs.check(0)
        assert not await known()
        last = await append(connection, SUBJECT, b"new")

        async def right() -> bool:
            head = await read_head(connection, "RINGMERE_HEAD_0", SUBJECT)
            return head is not None and head.payload == b"new" and head.seq == last == 1

        await eventually(right, "the head is the new stream's", 5)


async def test_a_crash_that_loses_the_tail_adds_a_row_behind_what_is_left(
    connection: Connection, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with instance(connection) as (epochs, changes):
        await fill(connection, 5)
        await nats_server.stop()
        await asyncio.to_thread(shutil.copytree, stream_files(nats_server), tmp_path / "saved")
        await nats_server.start()
        await eventually(lambda: connection.connected, "the return")
        assert await fill(connection, 4) == 9
        epochs.seen(0, 9)

        async def head_is(seq: int) -> bool:
            head = await read_head(connection, "RINGMERE_HEAD_0", SUBJECT)
            return head is not None and head.seq == seq

        await eventually(lambda: head_is(9), "the head of the last event")
        await crash_back_to(connection, nats_server, tmp_path / "saved")
        table = await epochs.check(0)
        await eventually(lambda: head_is(5), "the head of the last event that is left")
        assert rows(table) == [(0, 1, False), (1, 6, False)]
        assert table.known(5)
        assert not table.known(6)
        assert table.id_of(5) == 5
        assert table.id_of(6) == (1 << 40) + 6
        assert await fill(connection, 1) == 6
        assert await epochs.check(0) == table
        assert changes == [(0, table)]


async def test_a_lost_tail_that_the_monitor_had_seen_is_noticed_without_anyone_asking(
    connection: Connection,
) -> None:
    async with instance(connection) as (epochs, changes):
        tail = await fill(connection, 9)
        await eventually(lambda: epochs._seen[0] == tail, "the monitor has seen the tail")
        epochs.seen(0, tail + 3)
        await eventually(lambda: bool(changes), "the row")
        assert rows(epochs.table(0)) == [(0, 1, False), (1, tail + 1, False)]


async def test_a_restored_backup_keeps_the_ids_it_has_and_disowns_the_later_ones(connection: Connection) -> None:
    async with instance(connection) as (epochs, _):
        await fill(connection, 4)
        backup = await back_up(connection)
        await fill(connection, 5)
        await restore(connection, backup)
        assert await fill(connection, 2) == 6
        table = await epochs.check(0)
        assert rows(table) == [(0, 1, False), (1, 5, False)]
        assert table.known(4)
        assert not table.known(5)
        assert table.id_of(5) == (1 << 40) + 5


@pytest.mark.parametrize("time_known", [True, False])
async def test_a_lost_range_that_is_written_again_between_two_looks_is_recognised(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, time_known: bool
) -> None:
    """The tail alone has caught up; only the time of what stands there now gives it away."""
    monkeypatch.setattr(epochs_module, "CHECK_INTERVAL", 1000.0)
    async with instance(connection) as (epochs, _):
        tail = await fill(connection, 3)
        epochs.seen(0, tail + 2, time.time_ns() if time_known else 0)
        looked = asyncio.Event()
        real = Epochs._info

        async def counting(self: Epochs, shard: int) -> Any:
            info = await real(self, shard)
            looked.set()
            return info

        monkeypatch.setattr(Epochs, "_info", counting)
        checking = asyncio.create_task(epochs.check(0))
        await looked.wait()
        await fill(connection, 4)
        table = await checking
        assert rows(table) == [(0, 1, False), (1, tail + 1, False)]


async def test_a_lost_range_that_is_written_again_before_anybody_looks_is_recognised(
    connection: Connection, nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs_module, "CHECK_INTERVAL", 1000.0)
    async with instance(connection) as (epochs, changes):
        await fill(connection, 5)
        await nats_server.stop()
        await asyncio.to_thread(shutil.copytree, stream_files(nats_server), tmp_path / "saved")
        await nats_server.start()
        await eventually(lambda: connection.connected, "the return")
        assert await fill(connection, 4) == 9
        await epochs.check(0)
        monkeypatch.setattr(Epochs, "_state", lambda *_: None)
        monkeypatch.setattr(Epochs, "_look", lambda *_: asyncio.sleep(0))
        await crash_back_to(connection, nats_server, tmp_path / "saved")
        assert await fill(connection, 20) == 25
        table = await epochs.check(0)
        assert rows(table) == [(0, 1, False), (1, 6, False)]
        assert changes == [(0, table)]
        assert await epochs.check(0) == table


async def test_what_was_seen_and_then_evicted_or_purged_adds_no_row(connection: Connection) -> None:
    async with instance(connection) as (epochs, changes):
        await fill(connection, 5)
        await epochs.check(0)
        mark = epochs._marks[0]
        assert mark[0] == 5
        await api(connection, "STREAM.PURGE.RINGMERE_0", {"filter": SUBJECT})
        await epochs.check(0)
        await fill(connection, 150, "ringmere.events.0.t")
        assert await epochs._kept(0, mark) is None
        assert rows(await epochs.check(0)) == [(0, 1, False)]
        assert changes == []


async def test_a_new_leader_that_is_only_late_adds_no_row(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tail is too low at the first look, and the very messages that were seen stand there at the second."""
    async with instance(connection) as (epochs, changes):
        await fill(connection, 5)
        real, looks = Epochs._info, []

        async def late(self: Epochs, shard: int) -> Any:
            info = await real(self, shard)
            looks.append(info)
            if len(looks) == 1:
                info["state"]["last_seq"] = 3
            return info

        epochs.seen(0, 5)
        await eventually(lambda: not epochs.trouble, "quiet")
        monkeypatch.setattr(Epochs, "_info", late)
        table = await epochs.check(0)
        assert len(looks) >= 2
        assert rows(table) == [(0, 1, False)]
        assert changes == []


async def test_two_instances_that_see_the_same_recreation_add_one_row(nats_server: EmbeddedServer) -> None:
    async with (
        connected(nats_server) as one,
        connected(nats_server) as two,
        instance(one) as (first, first_changes),
        instance(two) as (second, second_changes),
    ):
        await recreate(one)
        tables = await asyncio.gather(*(epochs.check(0) for epochs in (first, second) for _ in range(5)))
        assert {tuple(rows(table)) for table in tables} == {((0, 1, True), (1, 1, False))}
        assert first_changes == second_changes == [(0, tables[0])]


async def test_two_instances_that_see_the_same_loss_add_one_row(nats_server: EmbeddedServer) -> None:
    async with (
        connected(nats_server) as one,
        connected(nats_server) as two,
        instance(one) as (first, _),
        instance(two) as (second, _),
    ):
        tail = await fill(one, 3)
        for epochs in (first, second):
            epochs.seen(0, tail + 5)
        await asyncio.gather(first.check(0), second.check(0), first.check(0), second.check(0))
        assert rows(first.table(0)) == rows(second.table(0)) == [(0, 1, False), (1, tail + 1, False)]


async def test_a_row_added_by_one_instance_reaches_the_other_by_its_notice(
    nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs_module, "CHECK_INTERVAL", 1000.0)
    async with (
        connected(nats_server) as one,
        connected(nats_server) as two,
        instance(one) as (first, _),
        instance(two) as (second, changes),
    ):
        first.seen(0, 7)
        table = await first.check(0)
        await eventually(lambda: bool(changes), "the notice has come")
        assert second.table(0) == table


async def test_a_row_added_while_an_instance_was_cut_off_reaches_it_after_the_reconnect(
    connection: Connection, nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs_module, "CHECK_INTERVAL", 1000.0)
    async with instance(connection) as (epochs, changes):
        async with connected(nats_server) as other:
            # Its notices go nowhere, as they do while the connection is down.
            assert epochs._watch is not None
            epochs._watch.close()
            await EpochStore(other, SETTINGS).note_loss(0, 0, epochs.table(0))
        connection._client.write(b"NONSENSE\r\n")
        await eventually(lambda: bool(changes), "the row has come")
        assert epochs.table(0).newest.epoch == 1


async def test_a_forged_notice_changes_nothing(connection: Connection) -> None:
    async with instance(connection) as (epochs, changes):
        forged = EpochRecord(EpochTable("f" * 16, (EpochRow(9, 1),)), "x", 1)
        for key in ("shard.0", "shard.7", "shard.x", "other"):
            connection.send(f"ringmere.notice.RINGMERE_EPOCHS.{key}", forged.encode())
        await connection.flush()
        table = await epochs.check(0)
        assert rows(table) == [(0, 1, False)]
        assert changes == []
        assert not epochs.trouble


async def test_the_table_is_copied_to_the_streams_metadata_and_restored_from_it(connection: Connection) -> None:
    async with instance(connection) as (epochs, _):
        await fill(connection, 3)
        epochs.seen(0, 9)
        table = await epochs.check(0)
    metadata = (await api(connection, "STREAM.INFO.RINGMERE_0"))["config"]["metadata"]
    assert decode(metadata[METADATA_KEY]).table == table
    await api(connection, "STREAM.DELETE.KV_RINGMERE_EPOCHS")
    async with instance(connection) as (epochs, _):
        assert epochs.table(0) == table


async def test_first_epoch_counts_for_a_new_record_and_lifts_an_existing_one_once(connection: Connection) -> None:
    lifted = StreamSettings(max_bytes=SETTINGS.max_bytes, ring_size=100, first_epoch=5)
    async with instance(connection, lifted) as (epochs, _):
        assert rows(epochs.table(0)) == [(5, 1, False)]
        birth = epochs.table(0).birth
    async with instance(connection) as (epochs, _):
        assert rows(epochs.table(0)) == [(5, 1, False)]
    lifted = StreamSettings(max_bytes=SETTINGS.max_bytes, ring_size=100, first_epoch=7)
    for _ in range(2):
        async with instance(connection, lifted) as (epochs, _):
            assert rows(epochs.table(0)) == [(5, 1, True), (7, 1, False)]
            assert epochs.table(0).birth == birth


async def test_after_the_loss_of_stream_and_record_the_birth_is_another(connection: Connection) -> None:
    async with instance(connection) as (epochs, _):
        birth = epochs.table(0).birth
    for stream in ("RINGMERE_0", "RINGMERE_HEAD_0", "KV_RINGMERE_EPOCHS"):
        await api(connection, f"STREAM.DELETE.{stream}")
    async with instance(connection) as (epochs, _):
        assert epochs.table(0).birth != birth


async def test_a_damaged_record_stops_the_start_with_a_clear_line(connection: Connection) -> None:
    await ensure_streams(connection, SETTINGS)
    for damage in (b"{", b"{}", b'{"birth":"x","created":"y","shards":1,"rows":[]}'):
        await connection.request("$KV.RINGMERE_EPOCHS.shard.0", damage)
        with pytest.raises(LogRefused, match="epoch record cannot be read"):
            await ensure_streams(connection, SETTINGS)


async def test_a_start_without_records_is_unavailable(connection: Connection) -> None:
    await ensure_streams(connection, SETTINGS)
    await connection.request("$JS.API.STREAM.PURGE.KV_RINGMERE_EPOCHS")
    epochs = Epochs(connection, SETTINGS)
    with pytest.raises(LogUnavailable, match="does not exist"):
        await epochs.start()
    await epochs.close()
    with pytest.raises(RecordConflict, match="is gone"):
        await EpochStore(connection, SETTINGS).note_creation(0)


async def test_a_leader_that_dies_in_a_cluster_adds_no_row(nats_cluster: Cluster) -> None:
    settings = StreamSettings(max_bytes=SETTINGS.max_bytes, ring_size=100, replicas=3)
    async with connected(nats_cluster.urls[0]) as opener:
        await ensure_streams(opener, settings)
        leader = await nats_cluster.leader(opener, "RINGMERE_0")
    assert leader is not None
    survivor = next(node for node in nats_cluster.nodes if node is not leader)
    async with connected(survivor) as connection, instance(connection, settings) as (epochs, changes):
        tail = await fill(connection, 20)
        epochs.seen(0, tail)
        await leader.kill()

        async def answers() -> bool:
            try:
                await epochs.check(0)
            except LogUnavailable:
                return False
            return True

        await eventually(answers, "the new leader answers", 60)
        assert changes == []
        assert await append(connection, SUBJECT, b"after") == tail + 1


def test_a_record_survives_encoding_and_keeps_few_void_rows() -> None:
    record = new_record("t0", 4, 0)
    for n in range(100):
        record = record.recreated(f"t{n + 1}", 1).promoted(7)
    again = decode(record.encode())
    assert again == record
    assert len(again.table.rows) <= 18
    assert again.table.newest == EpochRow(200, 8)
    assert again.table.known((199 << 40) + 7)
    assert not again.table.known((199 << 40) + 8)
    assert not again.table.known((3 << 40) + 1)
    assert json.loads(record.encode())["shards"] == 4


def test_a_row_that_was_added_by_hand_keeps_its_reason_and_only_the_newest_few_do() -> None:
    record = new_record("t", 1, 0)
    assert b"notes" not in record.encode()
    for number in range(20):
        record = record.bumped(number, f"why {number}", 1000 + number)
    assert decode(record.encode()) == record
    assert record.notes[-1] == (20, 1019, "why 19")
    assert len(record.notes) == 16
    assert record.promoted(99).notes == record.notes


def test_the_last_epoch_cannot_be_followed() -> None:
    record = new_record("t", 1, MAX_EPOCH)
    for step in (lambda: record.promoted(1), lambda: record.recreated("u", 1)):
        with pytest.raises(LogRefused, match="epochs"):
            step()
