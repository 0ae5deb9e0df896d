"""``ringmere epoch``: shown as it is, and a new one after a restore, so that no id is ever given twice."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ringmere.embedded import EmbeddedServer
from support.command import Done, json_lines, ringmere, running
from support.gateway import clean_env, gateway

BASE = 1 << 40
REASON = "restored the disk of Monday"


async def epoch(command: str, nats: EmbeddedServer, *arguments: str) -> Done:
    return await ringmere("epoch", command, "--nats-url", nats.url, "--json", *arguments)


async def publish(url: str, count: int) -> list[int]:
    """Publish events one by one and return their ids."""
    ids = []
    for _ in range(count):
        done = await ringmere("publish", "s", "--type", "t", "--data", "1", "--json", server=url)
        assert done.code == 0, done.err
        ids.append(done.lines[0]["id"])
    return ids


async def follow(url: str, cursor: int, count: int) -> list[Any]:
    """Return what a reader that comes back with ``cursor`` gets until it has ``count`` events."""
    done = await ringmere("tail", "s", "--from", str(cursor), "--count", str(count), "--json", server=url)
    assert done.code == 0, done.err
    return done.lines


def resets(lines: list[Any]) -> list[str]:
    return [line["data"]["reason"] for line in lines if line["type"] == "state_resync_required"]


def ids_of(lines: list[Any]) -> list[int]:
    return [line["id"] for line in lines if "id" in line]


def files(nats: EmbeddedServer) -> Path:
    return nats.data_dir / "jetstream"


async def test_after_a_restore_and_a_bump_the_lost_range_is_unknown_and_no_id_comes_twice(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The whole store is put back to an earlier moment while no instance runs: nothing can notice by itself."""
    backup = tmp_path / "backup"
    async with gateway(tmp_path, nats_url=nats_server.url) as instance:
        before = await publish(instance.url, 5)
    await nats_server.stop()
    await asyncio.to_thread(shutil.copytree, files(nats_server), backup)
    await nats_server.start()
    async with gateway(tmp_path, nats_url=nats_server.url) as instance:
        lost = await publish(instance.url, 4)
    await nats_server.stop()
    await asyncio.to_thread(shutil.rmtree, files(nats_server))
    await asyncio.to_thread(shutil.copytree, backup, files(nats_server))
    await nats_server.start()

    done = await epoch("bump", nats_server, "--reason", REASON, "--yes")
    assert done.code == 0, done.err
    [state] = done.lines
    assert state["lastSequence"] == 5
    [old, new] = state["rows"]
    assert (old["epoch"], old["first"], new["epoch"], new["first"]) == (0, 1, 1, 6)
    assert (new["reason"], new["at"] > 0) == (REASON, True)
    assert state["token"].endswith("-1")

    async with gateway(tmp_path, nats_url=nats_server.url) as instance:
        after = await publish(instance.url, 2)
        assert before == [1, 2, 3, 4, 5]
        assert lost == [6, 7, 8, 9]
        assert after == [BASE + 6, BASE + 7]
        for cursor in (1, 5):
            lines = await follow(instance.url, cursor, 7 - cursor)
            assert resets(lines) == []
            assert ids_of(lines) == [*before[cursor:], *after]
        for cursor in (6, 9):
            lines = await follow(instance.url, cursor, 7)
            assert resets(lines) == ["epoch_reset"]
            assert ids_of(lines) == [*before, *after]
        done = await ringmere("doctor", "--nats-url", nats_server.url, "--server", instance.url, "--json")
        assert done.code == 0, done.out


async def test_running_instances_take_a_new_epoch_up_and_their_readers_go_on(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with gateway(tmp_path, nats_url=nats_server.url) as instance:
        assert await publish(instance.url, 2) == [1, 2]
        async with running("tail", "s", "--from", "0", "--json", server=instance.url) as reader:
            assert ids_of(await json_lines(reader, 3)) == [1, 2]
            assert (await epoch("bump", nats_server, "--reason", REASON, "--yes")).code == 0
            deadline = asyncio.get_running_loop().time() + 20
            while (await epoch("show", nats_server)).lines[0]["token"][-2:] != "-1":
                assert asyncio.get_running_loop().time() < deadline
            ids = await publish(instance.url, 1)
            while ids[-1] < BASE:
                # The instance hears of the new row a moment later; an id of before it is still a good one.
                assert asyncio.get_running_loop().time() < deadline
                ids += await publish(instance.url, 1)
            seen: list[int] = []
            while not seen or seen[-1] != ids[-1]:
                seen += ids_of(await json_lines(reader, 1))
            assert len(set(seen)) == len(seen)


async def test_of_two_shards_one_can_be_named_with_the_last_good_sequence(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    flags = ("--shards", "2", "--head-ttl", "0")
    async with gateway(tmp_path, *flags, nats_url=nats_server.url) as instance:
        await publish(instance.url, 3)
        shown = (await epoch("show", nats_server)).lines
        assert [state["shard"] for state in shown] == [0, 1]
        [mine] = [state["shard"] for state in shown if state["lastSequence"] == 3]
        arguments = ("--reason", REASON, "--yes", "--shard", str(mine), "--after", "2", "--epoch", "7")
        done = await epoch("bump", nats_server, *flags, *arguments)
        assert done.code == 0, done.err
        rows = {state["shard"]: [(row["epoch"], row["first"]) for row in state["rows"]] for state in done.lines}
        assert rows == {mine: [(0, 1), (7, 3)], 1 - mine: [(0, 1)]}
        done = await ringmere("epoch", "show", "--nats-url", nats_server.url)
        assert REASON in done.out
        assert done.code == 0


REFUSED = (
    (["--reason", "r"], "--yes"),
    (["--reason", " ", "--yes"], "--reason"),
    (["--reason", "r", "--yes", "--after", "1"], "--shard"),
    (["--reason", "r", "--yes", "--shard", "0", "--after", "99"], "99 is not in it"),
    (["--reason", "r", "--yes", "--shard", "1"], "0 to 0"),
    (["--reason", "r", "--yes", "--shards", "2"], "1 shards"),
    (["--reason", "r", "--yes", "--epoch", "9000"], "9000"),
    (["--reason", "r", "--yes", "--head-ttl", "0"], "switched off"),
    (["--reason", "r", "--yes", "--head-ttl", "1h"], "another shape"),
)


async def test_what_cannot_be_is_refused_and_changes_nothing(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    async with gateway(tmp_path, nats_url=nats_server.url):
        before = (await epoch("show", nats_server)).lines
        for arguments, words in REFUSED:
            done = await epoch("bump", nats_server, *arguments)
            assert (done.code, done.out) == (2, ""), arguments
            assert words in done.err
        assert (await epoch("show", nats_server)).lines == before


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
async def test_on_a_terminal_it_asks_and_no_is_no(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ringmere", "epoch", "bump", "--reason", REASON, "--nats-url", nats_server.url]
    async with gateway(tmp_path, nats_url=nats_server.url):
        for answer, code, token in ((b"n\n", 1, "-0"), (b"y\n", 0, "-1")):
            ours, theirs = os.openpty()
            process = await asyncio.create_subprocess_exec(
                *command, stdin=theirs, stdout=theirs, stderr=theirs, env=clean_env()
            )
            os.write(ours, answer)
            assert await asyncio.wait_for(process.wait(), 60) == code
            os.close(theirs)
            os.close(ours)
            assert (await epoch("show", nats_server)).lines[0]["token"].endswith(token)


async def test_a_log_that_was_never_served_has_no_epochs(nats_server: EmbeddedServer) -> None:
    done = await epoch("show", nats_server)
    assert (done.code, done.out) == (2, "")
    assert "no epoch record" in done.err
