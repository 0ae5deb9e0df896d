"""What every log promises of snapshots (``ringmere.log.port.Snapshots``): in memory, and in a bucket on JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ringmere.core.cursor import event_id
from ringmere.core.errors import (
    InvalidSessionId,
    LogUnavailable,
    NewerSnapshot,
    RingmereError,
    SnapshotTooLarge,
    UnknownEventId,
)
from ringmere.core.snapshot import SnapshotDraft
from ringmere.log.port import Log
from support.logs import Rig, fill, jetstream_rig, memory_rig, row


@pytest.fixture(params=["memory", "jetstream"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A site without any log yet."""
    async with memory_rig() if request.param == "memory" else jetstream_rig(tmp_path, "direct") as site:
        yield site


def draft(public_id: int, text: str = "x", *, final: bool = False) -> SnapshotDraft:
    return SnapshotDraft(public_id, b'{"text":"%b"}' % text.encode(), final)


async def stored(log: Log, session: str = "s1") -> tuple[int, bytes, bool] | None:
    found = await log.snapshots.read(session)
    return None if found is None else found[:3]


async def test_a_snapshot_is_read_as_it_was_put_from_any_instance(rig: Rig) -> None:
    log, other = await rig.open(), await rig.open()
    seqs = await fill(log, "s1", range(3))
    assert await log.snapshots.read("s1") is None
    before = (await log.append("s1", row(9))).seq
    assert await log.snapshots.put("s1", draft(seqs[1], "ü∞", final=True)) is False
    found = await other.snapshots.read("s1")
    assert found is not None
    assert found[:3] == (seqs[1], '{"text":"ü∞"}'.encode(), True)
    last = await log.last("s1")
    assert last is not None
    assert last.seq == before
    assert found.updated_ns > last.time_ns


async def test_a_later_one_replaces_it_and_an_equal_one_does_too(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(3))
    await log.snapshots.put("s1", draft(2, "first"))
    assert await log.snapshots.put("s1", draft(2, "again")) is True
    assert await stored(log) == draft(2, "again")
    assert await log.snapshots.put("s1", draft(3, "later", final=True)) is True
    assert await stored(log) == draft(3, "later", final=True)


async def test_one_that_covers_less_is_refused_and_told_what_is_stored(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(3))
    await log.snapshots.put("s1", draft(3, "newer"))
    with pytest.raises(NewerSnapshot) as refusal:
        await log.snapshots.put("s1", draft(2, "older"))
    assert refusal.value.current == 3
    assert await stored(log) == draft(3, "newer")


async def test_of_writers_that_race_the_one_that_covers_most_wins(rig: Rig) -> None:
    logs = [await rig.open() for _ in range(3)]
    await fill(logs[0], "s1", range(9))
    results = await asyncio.gather(
        *(logs[number % 3].snapshots.put("s1", draft(number, str(number))) for number in range(1, 10)),
        return_exceptions=True,
    )
    assert await stored(logs[0]) == draft(9, "9")
    assert [result for result in results if not isinstance(result, bool | NewerSnapshot)] == []


@pytest.mark.parametrize("offset", [1, 1000, 1 << 39])
async def test_what_is_still_to_come_cannot_be_covered(rig: Rig, offset: int) -> None:
    log = await rig.open()
    await fill(log, "s1", range(3))
    await fill(log, "other", range(5))
    for public_id in (3 + offset, event_id(1, 1)):
        with pytest.raises(UnknownEventId):
            await log.snapshots.put("s1", draft(public_id))
    assert await stored(log) is None


async def test_an_event_of_another_session_is_no_place_for_a_state(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", [1])
    await fill(log, "other", [2])
    await fill(log, "s1", [3])
    with pytest.raises(UnknownEventId):
        await log.snapshots.put("s1", draft(2))
    await log.snapshots.put("s1", draft(1))


async def test_the_state_before_the_first_event_can_be_stored_before_there_is_one(rig: Rig) -> None:
    log = await rig.open()
    await log.snapshots.put("s1", draft(0, "empty"))
    assert await stored(log) == draft(0, "empty")
    await fill(log, "other", range(4))
    # The point at which a live stream of an empty session begins is the stream's tail.
    await log.snapshots.put("s1", draft(4, "still empty"))
    with pytest.raises(UnknownEventId):
        await log.snapshots.put("s1", draft(5))


async def test_what_has_left_the_ring_can_still_be_covered(rig: Rig) -> None:
    log = await rig.open(ring_size=2)
    await fill(log, "s1", range(6))
    await log.snapshots.put("s1", draft(2, "old"))
    assert await stored(log) == draft(2, "old")


async def test_a_state_outlives_the_log_and_can_be_marked_final_then(rig: Rig) -> None:
    log = await rig.open(log_ttl=1.0, head_ttl=600.0)
    seqs = await fill(log, "s1", range(3))
    await log.snapshots.put("s1", draft(seqs[-1], "last"))
    await rig.let_time_pass(2.5)
    assert (await log.bounds("s1")).stored == 0
    assert await stored(log) == draft(3, "last")
    await log.snapshots.put("s1", draft(3, "last", final=True))
    assert await stored(log) == draft(3, "last", final=True)
    with pytest.raises(UnknownEventId):
        await log.snapshots.put("s1", draft(4))


async def test_a_state_without_heads_is_not_limited_by_them(rig: Rig) -> None:
    log = await rig.open(log_ttl=1.0, head_ttl=0.0)
    seqs = await fill(log, "s1", range(3))
    await rig.let_time_pass(2.5)
    await log.snapshots.put("s1", draft(seqs[-1], final=True))
    assert await stored(log) == draft(3, final=True)


async def test_a_state_goes_with_the_heads(rig: Rig) -> None:
    log = await rig.open(log_ttl=1.0, head_ttl=2.0)
    await fill(log, "s1", range(3))
    await log.snapshots.put("s1", draft(3))
    await rig.let_time_pass(1.0)
    assert await stored(log) == draft(3)
    await rig.let_time_pass(3.0)
    assert await stored(log) is None


async def test_a_dropped_one_is_gone_and_dropping_nothing_is_no_error(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(3))
    await fill(log, "s2", range(3))
    await log.snapshots.put("s1", draft(3))
    await log.snapshots.put("s2", draft(6))
    await log.snapshots.drop("s1")
    await log.snapshots.drop("s1")
    await log.snapshots.drop("never")
    assert await stored(log) is None
    assert await stored(log, "s2") == draft(6)
    # Nothing is left that a smaller one would be measured by.
    assert await log.snapshots.put("s1", draft(1)) is False


async def test_a_purge_takes_the_state_with_it_and_what_it_took_cannot_come_back(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(3))
    await log.snapshots.put("s1", draft(2))
    await log.purge("s1")
    assert await stored(log) is None
    for public_id in (1, 3):
        with pytest.raises(UnknownEventId):
            await log.snapshots.put("s1", draft(public_id))
    seq = (await log.append("s1", row(1))).seq
    with pytest.raises(UnknownEventId):
        await log.snapshots.put("s1", draft(2))
    await log.snapshots.put("s1", draft(seq, "new"))
    assert await stored(log) == draft(seq, "new")


async def test_a_put_that_races_a_purge_never_brings_back_what_was_purged(rig: Rig) -> None:
    log, other = await rig.open(), await rig.open()
    for number in range(12):
        session = f"s{number}"
        seqs = await fill(log, session, range(2))

        async def put(session: str = session, public_id: int = seqs[-1]) -> None:
            try:
                await log.snapshots.put(session, draft(public_id))
            except UnknownEventId:
                return

        await asyncio.gather(put(), other.purge(session))
        assert await stored(log, session) is None


async def test_a_state_of_a_log_that_is_gone_is_not_served_and_can_be_replaced(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(5))
    await log.snapshots.put("s1", draft(5, "of before"))
    await rig.recreate()
    log = await rig.open()
    assert await stored(log) is None
    seq = (await log.append("s1", row(1))).seq
    public_id = log.epochs("s1").id_of(seq)
    for stale in (5, seq):
        with pytest.raises(UnknownEventId):
            await log.snapshots.put("s1", draft(stale))
    await log.snapshots.put("s1", draft(public_id, "new"))
    assert await stored(log) == draft(public_id, "new")


async def test_the_largest_state_fits_and_one_byte_more_is_refused(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(2))
    limit = log.snapshots.max_bytes
    assert limit > 100_000
    state = b'"%b"' % (b"x" * (limit - 2))
    await log.snapshots.put("s1", SnapshotDraft(2, state))
    assert await stored(log) == (2, state, False)
    with pytest.raises(SnapshotTooLarge) as refusal:
        await log.snapshots.put("s1", SnapshotDraft(2, state[:-1] + b'x"'))
    assert (refusal.value.size, refusal.value.limit) == (limit + 1, limit)
    assert await stored(log) == (2, state, False)
    assert log.connected


async def test_a_session_id_that_is_none_is_refused(rig: Rig) -> None:
    log = await rig.open()
    for call in (log.snapshots.read("a.b"), log.snapshots.put("*", draft(0)), log.snapshots.drop("")):
        with pytest.raises(InvalidSessionId):
            await call


async def test_any_session_id_can_have_a_state(rig: Rig) -> None:
    log = await rig.open()
    session = "A:b@c~d=e_f-" + "x" * 116
    await log.snapshots.put(session, draft(0))
    assert await stored(log, session) == draft(0)


async def test_without_the_log_every_call_says_so(rig: Rig) -> None:
    log = await rig.open()
    await rig.cut(log)
    for call in (log.snapshots.read("s1"), log.snapshots.put("s1", draft(0)), log.snapshots.drop("s1")):
        with pytest.raises(LogUnavailable):
            await call
    assert issubclass(NewerSnapshot, RingmereError)
