"""The client against the service itself: publish, follow, restarts, verdicts, evictions, the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ringmere.client.backoff import Backoff
from ringmere.client.errors import Refused
from ringmere.client.publish import Published, Publisher
from ringmere.client.snapshot import drop_snapshot, get_snapshot, put_snapshot
from ringmere.client.stream import Control, Event, Snapshot, Stream, follow
from ringmere.core.limits import Limits
from ringmere.core.reasons import CloseReason
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from support.doors import Gateway, running
from support.scripted import DEADLINE

FAST = Backoff(retry=0.01, first=0.01, widest=0.05)
QUICK = Limits(retry_ms=10)


def url(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.port}"


def note(number: int) -> dict[str, Any]:
    return {"type": "note", "data": {"n": number}}


async def read(following: Stream, events: int) -> list[Event | Control]:
    """Read until so many events have come."""
    items: list[Event | Control] = []
    async with asyncio.timeout(DEADLINE):
        while sum(isinstance(item, Event) for item in items) < events:
            items.append(await anext(following))
    return items


def numbers(items: list[Event | Control]) -> list[int]:
    return [item.data["n"] for item in items if isinstance(item, Event)]


async def test_what_is_published_is_read_and_a_closed_session_ends_the_reader() -> None:
    async with running(limits=QUICK) as gateway, Publisher(url(gateway)) as to:
        assert await to.publish("s1", note(1)) == Published(1)
        batch = await to.publish_batch("s1", [note(2), note(3)])
        assert [result.id for result in batch if isinstance(result, Published)] == [2, 3]
        await to.publish("s1", {"type": "session_closed", "data": {"n": 4}})
        async with asyncio.timeout(DEADLINE), follow(url(gateway), "s1", "start") as following:
            assert numbers([item async for item in following]) == [1, 2, 3, 4]
        async with asyncio.timeout(DEADLINE), follow(url(gateway), "s1", 4) as at_the_end:
            assert [item async for item in at_the_end] == []


async def test_a_reader_lives_through_the_restart_of_its_instance_without_loss_or_repeat() -> None:
    store = MemoryStore(ring_size=100)
    async with running(limits=QUICK, log=MemoryLog(store)) as gateway:
        port = gateway.port
        async with Publisher(url(gateway)) as to:
            await to.publish_batch("s1", [note(n) for n in range(1, 4)])
            following = follow(url(gateway), "s1", 0, backoff=FAST)
            assert numbers(await read(following, 3)) == [1, 2, 3]
    async with running(limits=QUICK, log=MemoryLog(store), port=port) as again, Publisher(url(again)) as to:
        await to.publish_batch("s1", [note(n) for n in range(4, 7)])
        assert numbers(await read(following, 3)) == [4, 5, 6]
        await following.aclose()


async def test_a_cursor_behind_the_ring_is_a_verdict_and_the_events_are_marked() -> None:
    async with running(limits=QUICK, ring_size=3) as gateway, Publisher(url(gateway)) as to:
        await to.publish_batch("s1", [note(n) for n in range(1, 6)])
        async with follow(url(gateway), "s1", 1) as following:
            items = await read(following, 3)
            assert isinstance(items[0], Control)
            assert items[0].type == "state_resync_required"
            assert [(item.id, item.in_sync) for item in items if isinstance(item, Event)] == [
                (3, False), (4, False), (5, False),
            ]  # fmt: skip
            assert following.resync is not None
            assert (following.resync.reason, following.resync.earliest_available_id) == ("ring_evicted", 3)
            following.reloaded(at=4)
            again = await read(following, 1)
            assert [(item.id, item.in_sync) for item in again if isinstance(item, Event)] == [(5, True)]


async def test_a_publish_with_a_used_key_is_a_duplicate_and_a_wrong_expectation_is_refused() -> None:
    async with running() as gateway, Publisher(url(gateway)) as to:
        assert await to.publish("s1", note(1), key="k") == Published(1, False)
        assert await to.publish("s1", note(1), key="k") == Published(1, True)
        with pytest.raises(Refused) as caught:
            await to.publish("s1", note(2), expected=7)
        assert (caught.value.status, caught.value.code) == (409, "wrong_last_event_id")


async def test_a_live_reader_that_loses_its_instance_before_the_first_event_misses_nothing() -> None:
    store = MemoryStore(ring_size=100)
    states: list[Any] = []
    async with running(limits=QUICK, log=MemoryLog(store)) as gateway, Publisher(url(gateway)) as to:
        port = gateway.port
        await to.publish("s1", note(1))
        following = follow(url(gateway), "s1", backoff=FAST, on_state=states.append)
        pending = asyncio.ensure_future(read(following, 1))
        await gateway.until(lambda: gateway.readers() == 1, "a reader")
        await gateway.until(lambda: following.last_id == 1, "the start id")
    async with running(limits=QUICK, log=MemoryLog(store), port=port) as again, Publisher(url(again)) as to:
        await to.publish("s1", note(2))
        assert numbers(await pending) == [2]
        await following.aclose()


async def test_a_stream_takes_a_state_behind_a_verdict_and_goes_on_from_there() -> None:
    async with running(limits=QUICK, ring_size=3) as gateway, Publisher(url(gateway)) as to:
        await to.publish_batch("s1", [note(n) for n in range(1, 10)])
        await put_snapshot(url(gateway), "s1", 8, {"n": 8})
        found = await get_snapshot(url(gateway), "s1")
        assert found is not None
        assert (found.last_event_id, found.state, found.final) == (8, {"n": 8}, False)
        with pytest.raises(Refused) as refusal:
            await put_snapshot(url(gateway), "s1", 7, {"n": 7})
        assert (refusal.value.code, refusal.value.problem["lastEventId"]) == ("newer_snapshot", 8)
        async with follow(url(gateway), "s1", 1, resync="snapshot") as following:
            verdict, state, event = await read(following, 1)
            assert isinstance(verdict, Control)
            assert isinstance(state, Control)
            assert verdict.type == "state_resync_required"
            assert state.snapshot == Snapshot(8, {"n": 8})
            assert isinstance(event, Event)
            assert (event.id, event.in_sync) == (9, True)


async def test_a_stream_that_is_cut_right_behind_a_state_resumes_behind_it() -> None:
    async with running(limits=QUICK) as gateway, Publisher(url(gateway)) as to:
        await to.publish_batch("s1", [note(n) for n in range(1, 4)])
        await put_snapshot(url(gateway), "s1", 3, "three")
        async with follow(url(gateway), "s1", snapshot=True, backoff=FAST) as following:
            async with asyncio.timeout(DEADLINE):
                state = await anext(following)
            assert isinstance(state, Control)
            assert state.snapshot == Snapshot(3, "three")
            assert following.last_id == 3
            for channel in gateway.hub.channels:
                for reader in list(channel.members):
                    reader.drop(CloseReason.INTERNAL)
            await to.publish("s1", note(4))
            items = await read(following, 1)
            assert [item for item in items if isinstance(item, Control) and item.snapshot] == []
            assert numbers(items) == [4]


async def test_an_expired_session_ends_a_follower_with_its_final_state() -> None:
    store = MemoryStore(log_ttl=0.5)
    async with running(limits=QUICK, log=MemoryLog(store)) as gateway, Publisher(url(gateway)) as to:
        await to.publish("s1", {"type": "session_closed", "data": {"n": 1}})
        await put_snapshot(url(gateway), "s1", 1, "over", final=True)
        await gateway.until(lambda: not store.stream(0).subjects, "the log expires")
        async with asyncio.timeout(DEADLINE), follow(url(gateway), "s1", backoff=FAST) as following:
            items = [item async for item in following]
        assert [item.snapshot for item in items if isinstance(item, Control)] == [Snapshot(1, "over")]
        await drop_snapshot(url(gateway), "s1")
        assert await get_snapshot(url(gateway), "s1") is None
