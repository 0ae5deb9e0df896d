"""Waiting for a cancel: nothing falls between look and notice, and nobody waits who need not (contract 10.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ringmere.core.errors import Draining, LogUnavailable, SubscriberLimitExceeded
from ringmere.core.limits import Limits
from ringmere.hub import control
from ringmere.hub.hub import Hub
from ringmere.hub.observer import Observer
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from support.nats import eventually

LONG = 30.0


class Counting(Observer):
    def __init__(self) -> None:
        self.told: list[str] = []

    def cancel(self, outcome: str, session: str, task: str) -> None:
        self.told.append(outcome)


class Site:
    """Two instances on one store."""

    def __init__(self) -> None:
        store = MemoryStore()
        self.seen = [Counting(), Counting()]
        self.logs = [MemoryLog(store), MemoryLog(store)]
        self.hubs = [Hub(log, None, seen) for log, seen in zip(self.logs, self.seen, strict=True)]
        self.a, self.b = self.hubs[0].cancels, self.hubs[1].cancels


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    for hub in made.hubs:
        await hub.start()
    yield made
    for hub in made.hubs:
        await hub.close()


async def test_who_waits_on_any_instance_is_told_at_once_and_all_of_them(site: Site) -> None:
    waits = [asyncio.create_task(cancels.wait("s", "t", LONG)) for cancels in (site.a, site.b, site.b)]
    other = asyncio.create_task(site.b.wait("s", "t2", LONG))
    await eventually(lambda: site.a.waiters + site.b.waiters == 4, "all wait")
    flag = await site.a.request("s", "t", "why")
    assert await asyncio.gather(*waits) == [flag] * 3
    assert not other.done(), "another task of the session goes on"
    assert site.seen[1].told == ["delivered", "delivered"]
    other.cancel()
    await asyncio.wait([other])
    assert site.b.waiters == 0


async def test_a_flag_that_is_set_already_is_the_answer(site: Site) -> None:
    flag = await site.a.request("s", "t", None)
    assert await site.b.wait("s", "t", LONG) == flag
    assert await site.b.look("s", "t") == flag


async def test_a_flag_that_is_set_between_the_look_and_the_wait_is_not_missed(site: Site) -> None:
    looked, go_on = asyncio.Event(), asyncio.Event()
    read = site.logs[1].cancels.read

    async def slow(session: str, task: str):  # type: ignore[no-untyped-def]
        found = await read(session, task)
        if not looked.is_set():
            looked.set()
            await go_on.wait()
        return found

    site.logs[1].cancels.read = slow  # type: ignore[method-assign]
    wait = asyncio.create_task(site.b.wait("s", "t", LONG))
    await looked.wait()
    flag = await site.a.request("s", "t", None)
    await asyncio.sleep(0)
    go_on.set()
    assert await wait == flag


async def test_a_notice_is_read_until_the_log_answers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "READ_AGAIN", 0.01)
    wait = asyncio.create_task(site.b.wait("s", "t", LONG))
    await eventually(lambda: site.logs[1].calls["cancelled"] == 1, "it has looked")
    failures = 0

    async def away(method: str, session: str) -> None:
        nonlocal failures
        failures += 1
        if failures <= 3:
            raise LogUnavailable("no leader")

    site.logs[1].before = away
    flag = await site.a.request("s", "t", None)
    assert await wait == flag
    assert failures > 3


async def test_a_notice_that_was_lost_is_told_after_a_reconnect(site: Site) -> None:
    wait = asyncio.create_task(site.b.wait("s", "t", LONG))
    await eventually(lambda: site.logs[1].calls["cancelled"] == 1, "it has looked")
    site.logs[1].disconnect()
    flag = await site.a.request("s", "t", None)
    site.logs[1].reconnect()
    assert await wait == flag


async def test_nobody_waits_longer_than_asked_for(site: Site) -> None:
    assert await site.a.wait("s", "t", 0.01) is None
    assert site.a.waiters == 0


async def test_a_notice_that_nobody_waits_for_reads_nothing(site: Site) -> None:
    await site.a.request("s", "t", None)
    await asyncio.sleep(0.01)
    assert site.logs[1].calls["cancelled"] == 0


async def test_a_drain_answers_those_who_wait_and_takes_no_more(site: Site) -> None:
    wait = asyncio.create_task(site.a.wait("s", "t", LONG))
    await eventually(lambda: site.logs[0].calls["cancelled"] == 1, "it has looked")
    await site.hubs[0].drain()
    assert await wait is None
    with pytest.raises(Draining):
        await site.a.wait("s", "t", LONG)
    assert await site.a.look("s", "t") is None, "a look is still answered"


async def test_who_waits_takes_a_place_among_the_connections_of_the_instance(site: Site) -> None:
    site.hubs[0].limits = Limits(max_connections=2)
    waits = [asyncio.create_task(site.a.wait("s", f"t{n}", LONG)) for n in range(2)]
    await eventually(lambda: site.a.waiters == 2, "both wait")
    with pytest.raises(SubscriberLimitExceeded):
        await site.a.wait("s", "t", LONG)
    assert await site.a.look("s", "t") is None
    for wait in waits:
        wait.cancel()
    await asyncio.wait(waits)
    assert await site.a.wait("s", "t", 0.01) is None
    assert site.hubs[0].slots == 0


async def test_outcomes_are_told(site: Site) -> None:
    first = await site.a.request("s", "t", "one")
    assert await site.a.request("s", "t", "two") == first
    site.logs[0].disconnect()
    with pytest.raises(LogUnavailable):
        await site.a.request("s", "t", None)
    assert site.seen[0].told == ["requested", "repeated", "failed"]
