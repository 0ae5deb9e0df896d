"""What every log promises across sessions and instances: in memory, and on JetStream with both tails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ringmere.core.errors import LogUnavailable
from support.logs import Rig, fill, jetstream_rig, memory_rig
from support.nats import eventually


@pytest.fixture(params=["memory", "direct-republish", "direct-consumer"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    made = memory_rig() if request.param == "memory" else jetstream_rig(tmp_path, *request.param.split("-"))
    async with made as site:
        yield site


async def test_the_newest_sequence_of_a_shard_is_whoevers_it_is(rig: Rig) -> None:
    log = await rig.open(shards=2)
    one = next(name for name in "abcdef" if log.shard_of(name) == 0)
    other = next(name for name in "abcdef" if log.shard_of(name) == 1)
    assert log.shards == 2
    assert [await log.newest(shard) for shard in (0, 1)] == [0, 0]
    await fill(log, one, range(3))
    await fill(log, other, range(2))
    assert [await log.newest(shard) for shard in (0, 1)] == [3, 2]
    assert log.table(1) == log.epochs(other)
    assert log.table(0) == log.epochs(one)


async def test_names_of_sessions_that_have_something_stored_are_found_by_their_beginning(rig: Rig) -> None:
    log = await rig.open(shards=3)
    for name in ("run-2", "run-1", "ran-1", "run-10", "other"):
        await fill(log, name, range(2))
    assert await log.names("run-", 10) == ["run-1", "run-10", "run-2"]
    assert await log.names("run-", 2) == ["run-1", "run-10"]
    assert await log.names("", 10) == ["other", "ran-1", "run-1", "run-10", "run-2"]
    assert await log.names("x", 10) == []


async def test_a_watch_tells_of_wanted_sessions_in_the_order_of_their_shard_until_it_is_closed(rig: Rig) -> None:
    log, writer = await rig.open(shards=2), await rig.open(shards=2)
    told: list[tuple[str, int]] = []
    watch = await log.watch(lambda name: name.startswith("run-"), lambda name, seq: told.append((name, seq)))
    stored = []
    for number in range(12):
        name = f"run-{number % 4}" if number % 3 else "other"
        (seq,) = await fill(writer, name, [number])
        if name != "other":
            stored.append((name, seq))
    await eventually(lambda: len(told) >= len(stored), "all was told")
    for shard in (0, 1):
        assert [row for row in told if log.shard_of(row[0]) == shard] == [
            row for row in stored if log.shard_of(row[0]) == shard
        ]
    watch.close()
    await fill(writer, "run-1", range(3))
    await asyncio.sleep(0.1)
    assert len(told) == len(stored)


async def test_whoever_serves_a_name_is_asked_from_any_instance(rig: Rig) -> None:
    one, other = await rig.open(), await rig.open()

    async def answer(question: bytes) -> bytes:
        return b"<" + question + b">"

    assert await other.ask("a-stream", b"?") is None
    served = await one.serve("a-stream", answer)
    assert await other.ask("a-stream", b"?") == b"<?>"
    assert await one.ask("a-stream", b"") == b"<>"
    assert await asyncio.gather(*(other.ask("a-stream", b"%d" % n) for n in range(9))) == [
        b"<%d>" % n for n in range(9)
    ]
    assert await other.ask("another", b"?") is None
    served.close()
    assert await other.ask("a-stream", b"?") is None


async def test_without_the_log_nothing_is_known_of_others(rig: Rig) -> None:
    log = await rig.open()
    await rig.cut(log)
    await eventually(lambda: not log.connected, "it is cut off")
    with pytest.raises(LogUnavailable):
        await log.newest(0)
    with pytest.raises(LogUnavailable):
        await log.names("", 10)
    with pytest.raises(LogUnavailable):
        await log.ask("a-stream", b"")
