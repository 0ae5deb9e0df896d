"""What every log promises for the time in which it cannot store (contract 8.2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ringmere.core.errors import EventTooLarge, InvalidSessionId, LogUnavailable
from support.logs import Ear, Live, Rig, fill, jetstream_rig, memory_rig, read_all, row
from support.nats import eventually


@pytest.fixture(params=["memory", "jetstream"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A site without any log yet."""
    made = memory_rig() if request.param == "memory" else jetstream_rig(tmp_path, "direct")
    async with made as site:
        yield site


async def test_an_event_that_is_not_stored_reaches_all_instances_in_order_and_no_log(rig: Rig) -> None:
    logs = [await rig.open(shards=3), await rig.open()]
    ears = [Ear(), Ear()]
    for log, ear in zip(logs, ears, strict=True):
        log.listen(ear)
    live = Live()
    await logs[0].subscribe("s1", live)
    sent = [(session, row(number).payload) for number in range(3) for session in ("s1", "s2", "s:3@x~=-_")]
    for session, payload in sent:
        await logs[0].publish_degraded(session, [payload])
    await eventually(lambda: all(len(ear.degraded) == len(sent) for ear in ears), "both instances have all")
    for ear in ears:
        assert ear.degraded == sent
        assert ear.doubted == []
    for session, _ in sent:
        assert (await logs[1].bounds(session)).stored == 0
    await fill(logs[0], "s1", [7])
    await live.until(1)
    assert [message[3] for message in live.messages] == [row(7).payload]


async def test_it_goes_out_while_nothing_can_be_stored(rig: Rig) -> None:
    log, ear = await rig.open(), Ear()
    log.listen(ear)
    await rig.stop_storing()
    with pytest.raises(LogUnavailable):
        await log.append("s1", row(1))
    await log.publish_degraded("s1", [row(1).payload])
    await eventually(lambda: bool(ear.degraded), "it arrives")


async def test_what_is_too_large_or_for_no_session_does_not_go_out(rig: Rig) -> None:
    log, ear = await rig.open(), Ear()
    log.listen(ear)
    with pytest.raises(EventTooLarge):
        await log.publish_degraded("s1", [row(1).payload, b"x" * (log.max_event_bytes + 1)])
    for session in ("a.b", "", "*", "!probe"):
        with pytest.raises(InvalidSessionId):
            await log.publish_degraded(session, [row(1).payload])
    await log.publish_degraded("s1", [row(2).payload, row(3).payload])
    await eventually(lambda: len(ear.degraded) >= 2, "the good ones arrive")
    assert ear.degraded == [("s1", row(2).payload), ("s1", row(3).payload)]


async def test_a_probe_is_seen_in_no_session_and_in_no_list(rig: Rig) -> None:
    log, ear = await rig.open(shards=2), Ear()
    log.listen(ear)
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", [1, 2])
    before = await log.bounds("s1")
    listed = await log.sessions("", "", 10)
    for shard in (0, 1):
        await log.probe(shard)
    after = await log.bounds("s1")
    assert (after.first, after.last, after.stored) == (before.first, before.last, before.stored)
    assert await log.sessions("", "", 10) == listed
    assert [state.session for state in listed.sessions] == ["s1"]
    assert await log.newer([("s1", before.last)]) == [False]
    [last] = await fill(log, "s1", [3])
    await live.until(3)
    assert [(seq, previous) for seq, previous, _, _ in live.messages][-1] == (last, before.last)
    assert await read_all(log, "s1") == [1, 2, last]
    assert ear.degraded == []


async def test_a_probe_of_a_shard_that_does_not_store_raises(rig: Rig) -> None:
    log = await rig.open()
    await log.probe(0)
    await rig.stop_storing()
    with pytest.raises(LogUnavailable):
        await log.probe(0)


async def test_a_doubt_reaches_all_instances(rig: Rig) -> None:
    log, other = await rig.open(shards=3), await rig.open()
    ears = [Ear(), Ear()]
    log.listen(ears[0])
    other.listen(ears[1])
    await log.doubt_storing(2)
    await eventually(lambda: all(ear.doubted for ear in ears), "both instances hear it")
    assert [(ear.doubted, ear.degraded) for ear in ears] == [([2], []), ([2], [])]


async def test_without_a_connection_nothing_goes_out(rig: Rig) -> None:
    log = await rig.open()
    await rig.cut(log)
    for call in (log.publish_degraded("s1", [b"{}"]), log.probe(0), log.doubt_storing(0)):
        with pytest.raises(LogUnavailable):
            await call
