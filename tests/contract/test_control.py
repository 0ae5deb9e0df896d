"""What every log promises about cancels (contract 10.3): in memory, and in a key-value bucket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ringmere.core.control import CancelFlag
from ringmere.core.errors import InvalidSessionId, LogUnavailable
from support.logs import Ear, Rig, jetstream_rig, memory_rig
from support.nats import eventually

ODD = "a:b@c~d=e_f-g"


@pytest.fixture(params=["memory", "jetstream"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A site without any log yet."""
    made = memory_rig() if request.param == "memory" else jetstream_rig(tmp_path, "direct")
    async with made as site:
        yield site


async def test_a_flag_is_read_on_every_instance_as_it_was_set(rig: Rig) -> None:
    one, other = await rig.open(), await rig.open()
    began = time.time_ns() // 1_000_000
    done = await one.cancels.request(ODD, ODD, "no longer wanted ☃")
    assert done.fresh
    assert done.flag.reason == "no longer wanted ☃"
    assert began <= done.flag.requested_at <= time.time_ns() // 1_000_000
    assert await one.cancels.read(ODD, ODD) == await other.cancels.read(ODD, ODD) == done.flag


async def test_a_task_that_nobody_has_cancelled_has_no_flag(rig: Rig) -> None:
    log = await rig.open()
    await log.cancels.request("s1", "t1", None)
    for session, task in (("s1", "t2"), ("s2", "t1"), ("t1", "s1"), ("s1t1", "t1")):
        assert await log.cancels.read(session, task) is None


async def test_the_first_request_counts_whoever_asks_again(rig: Rig) -> None:
    one, other = await rig.open(), await rig.open()
    done = await one.cancels.request("s1", "t1", None)
    again = await other.cancels.request("s1", "t1", "later")
    assert (again.flag, again.fresh) == (done.flag, False)
    assert await one.cancels.read("s1", "t1") == done.flag


async def test_of_requests_at_the_same_moment_one_sets_the_flag_and_all_see_that_one(rig: Rig) -> None:
    logs = [await rig.open() for _ in range(3)]
    done = await asyncio.gather(*(log.cancels.request("s1", "t1", f"reason {n}") for n, log in enumerate(logs * 5)))
    assert [each.fresh for each in done].count(True) == 1
    assert {each.flag for each in done} == {next(each.flag for each in done if each.fresh)}


async def test_every_instance_hears_of_a_flag_once_it_is_set(rig: Rig) -> None:
    logs = [await rig.open(), await rig.open()]
    ears = [Ear(), Ear()]
    for log, ear in zip(logs, ears, strict=True):
        log.listen(ear)
    await logs[0].cancels.request("s1", ODD, None)
    await logs[0].cancels.request("s1", "t2", None)
    await eventually(lambda: all(len(ear.cancelled) >= 2 for ear in ears), "both have heard")
    assert all(set(ear.cancelled) == {("s1", ODD), ("s1", "t2")} for ear in ears)


async def test_a_flag_expires_and_can_be_set_again(rig: Rig) -> None:
    log = await rig.open(cancel_ttl=1.0)
    first = (await log.cancels.request("s1", "t1", "one")).flag
    await rig.let_time_pass(1.0)

    async def gone() -> bool:
        return await log.cancels.read("s1", "t1") is None

    await eventually(gone, "the flag is gone")
    again = await log.cancels.request("s1", "t1", "two")
    assert again.fresh
    assert again.flag.requested_at > first.requested_at
    assert await log.cancels.read("s1", "t1") == CancelFlag(again.flag.requested_at, "two")


@pytest.mark.parametrize(("session", "task"), [("a.b", "t"), ("s", "*"), ("", "t"), ("s", ""), ("s", "x" * 129)])
async def test_what_is_no_id_is_refused_and_nothing_is_set(rig: Rig, session: str, task: str) -> None:
    log = await rig.open()
    with pytest.raises(InvalidSessionId):
        await log.cancels.request(session, task, None)
    with pytest.raises(InvalidSessionId):
        await log.cancels.read(session, task)


async def test_without_a_connection_it_says_so(rig: Rig) -> None:
    log = await rig.open()
    await rig.cut(log)
    with pytest.raises(LogUnavailable):
        await log.cancels.request("s1", "t1", None)
    with pytest.raises(LogUnavailable):
        await log.cancels.read("s1", "t1")
