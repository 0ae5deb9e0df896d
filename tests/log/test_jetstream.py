"""Opening and closing a log on JetStream."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from ringmere.core.errors import LogUnavailable, StartRefused
from ringmere.core.snapshot import SnapshotDraft
from ringmere.embedded import EmbeddedServer, free_port
from ringmere.log import jetstream, query
from ringmere.log.connect import ConnectOptions
from ringmere.log.jetstream import LogSettings, open_log
from ringmere.log.port import Log
from support.logs import Ear, Live, fill, freeze, read_all, row
from support.nats import api, connected, eventually, running_server


async def test_without_a_server_opening_fails_at_its_deadline() -> None:
    options = ConnectOptions(servers=(f"nats://127.0.0.1:{free_port()}",), connect_timeout=0.3)
    async with asyncio.timeout(3):
        with pytest.raises(LogUnavailable):
            await open_log(options)


async def test_a_jetstream_that_falls_silent_fails_the_opening_at_its_deadline(
    nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "OPEN_TIMEOUT", 0.5)
    real = jetstream.ensure_streams

    async def freeze_then_ensure(*arguments: object) -> object:
        await freeze(nats_server)
        return await real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(jetstream, "ensure_streams", freeze_then_ensure)
    try:
        async with asyncio.timeout(5):
            with pytest.raises(LogUnavailable):
                await open_log(ConnectOptions(servers=(nats_server.url,)))
    finally:
        nats_server.send_signal(signal.SIGCONT)


async def test_a_server_without_jetstream_is_refused_for_good(tmp_path: Path) -> None:
    async with running_server(
        tmp_path / "plain", extra='accounts: { P: { users: [{user: "p", password: "p"}] } }'
    ) as server:
        with pytest.raises(StartRefused):
            await open_log(ConnectOptions(servers=(server.url,), user="p", password="p"))


async def test_instances_that_open_a_new_log_at_once_agree(nats_server: EmbeddedServer) -> None:
    options = ConnectOptions(servers=(nats_server.url,))
    logs = await asyncio.gather(*(open_log(options, LogSettings(shards=3)) for _ in range(5)))
    assert len({log.epochs("s1").birth for log in logs}) == 1
    for number, log in enumerate(logs):
        assert await fill(log, "s1", [number]) == [number + 1]
    await asyncio.gather(*(log.close() for log in logs))


async def test_what_was_stored_is_there_for_the_next_process(nats_server: EmbeddedServer) -> None:
    options = ConnectOptions(servers=(nats_server.url,))
    first = await open_log(options)
    await fill(first, "s1", range(5))
    token = first.epochs("s1").token
    await first.close()
    await nats_server.kill()
    await nats_server.start()
    second = await open_log(options)
    assert second.epochs("s1").token == token
    assert await read_all(second, "s1") == [1, 2, 3, 4, 5]
    await second.close()


async def test_a_closed_log_leaves_no_task_behind(nats_server: EmbeddedServer) -> None:
    before = asyncio.all_tasks()
    for reader in ("direct", "consumer"):
        log: Log = await open_log(ConnectOptions(servers=(nats_server.url,)), LogSettings(reader=reader))
        await log.subscribe("s1", Live())
        await fill(log, "s1", range(60))
        await log.page("s1", 1, 400)
        await log.page("s1", 20, 400)
        await log.sessions("", "", 10)
        await log.close()
        assert not log.connected
    await eventually(lambda: asyncio.all_tasks() <= before, "all tasks have ended")


async def test_the_listener_hears_of_loss_and_return(nats_server: EmbeddedServer) -> None:
    log = await open_log(ConnectOptions(servers=(nats_server.url,)))
    ear = Ear()
    log.listen(ear)
    await nats_server.kill()
    await eventually(lambda: ear.connections == [False], "the loss is told")
    await nats_server.start()
    await eventually(lambda: ear.connections == [False, True], "the return is told")
    assert log.connected
    await log.close()


def test_a_reader_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="reader"):
        LogSettings(reader="fast")


async def test_the_tail_left_open_is_what_all_streams_can_serve(nats_server: EmbeddedServer) -> None:
    options = ConnectOptions(servers=(nats_server.url,))
    tails = []
    for shards, tail in ((1, "auto"), (1, "consumer"), (1, "auto")):
        log = await open_log(options, LogSettings(shards=shards, tail=tail))
        tails.append(log.tail)
        await log.close()
    assert tails == ["republish", "consumer", "republish"]
    async with connected(nats_server) as connection:
        for name in ("RINGMERE_0", "RINGMERE_HEAD_0"):
            assert (await api(connection, f"STREAM.DELETE.{name}"))["success"]
    for tail, chosen in (("consumer", "consumer"), ("auto", "consumer")):
        log = await open_log(options, LogSettings(tail=tail))
        assert log.tail == chosen
        await log.close()


async def test_a_state_that_is_stored_behind_a_purge_under_way_stays(
    nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ConnectOptions(servers=(nats_server.url,))
    log, other = await asyncio.gather(open_log(options), open_log(options))
    await fill(log, "s1", range(3))
    await log.snapshots.put("s1", SnapshotDraft(3, b'"of before"'))
    real = query.purge

    async def purge_then_go_on(*arguments: object, **options: object) -> int:
        purged = await real(*arguments, **options)  # type: ignore[arg-type]
        assert await other.snapshots.read("s1") is not None
        if going_on:
            seq = (await other.append("s1", row(9))).seq
            await other.snapshots.put("s1", SnapshotDraft(seq, b'"new"'))
        return purged

    monkeypatch.setattr(query, "purge", purge_then_go_on)
    for going_on in (True, False):
        await log.purge("s1")
        found = await log.snapshots.read("s1")
        assert (found is not None) is going_on
        assert found is None or found.state == b'"new"'
    await log.close()
    await other.close()
