"""Publishing while the log does not store: what opens a shard's breaker, who is told, and what closes it (8.2)."""

from __future__ import annotations

import asyncio

import pytest

from ringmere.core.errors import (
    Conflict,
    EventTooLarge,
    LogUnavailable,
    PublishOverloaded,
    PublishUnconfirmed,
    RingmereError,
)
from ringmere.hub.hub import Hub
from ringmere.log.port import Row
from support.hub import S1, World, event, world
from support.virtual import eventually

NO = LogUnavailable("no quorum")
S2 = "s2"
"""With two shards it lives in the other one than ``s1``."""


async def fails(w: World, count: int, error: RingmereError = NO, session: str = S1, hub: Hub | None = None) -> None:
    """Have so many publishes fail that way."""
    w.store.refuse(error, w.log.shard_of(session))
    for _ in range(count):
        with pytest.raises(type(error)):
            await (hub or w.hub).publish(session, event(0))


def degraded(hub: Hub) -> list[int]:
    return [shard for shard, refused in hub.stats().log_degraded.items() if refused]


@pytest.mark.parametrize("error", [NO, PublishUnconfirmed("no answer in time")])
async def test_failures_in_a_row_open_it_and_then_the_log_is_not_asked_any_more(error: RingmereError) -> None:
    async with world(breaker_failures=3, breaker_pause=60.0) as w:
        await fails(w, 2, error)
        assert degraded(w.hub) == []
        await fails(w, 1, error)
        assert degraded(w.hub) == [0]
        asked = w.log.calls["append"]
        with pytest.raises(LogUnavailable) as caught:
            await w.hub.publish(S1, event(1))
        assert caught.value.retry_after == 60.0
        with pytest.raises(LogUnavailable):
            await w.hub.publish_batch(S1, [event(1)], atomic=True)
        [row] = await w.hub.publish_batch(S1, [event(1)])
        assert isinstance(row, LogUnavailable)
        assert w.log.calls["append"] == asked
        assert w.log.calls["append_many"] + w.log.calls["append_atomic"] == 0
        assert w.watcher.degradations == [(0, str(error))]


@pytest.mark.parametrize("error", [EventTooLarge(2, 1), Conflict("no"), PublishOverloaded("too many")])
async def test_what_is_not_the_logs_fault_opens_nothing(error: RingmereError) -> None:
    async with world(breaker_failures=1) as w:
        await fails(w, 5, error)
        w.store.refuse(None)
        await w.hub.publish(S1, event(1))
        assert degraded(w.hub) == []


async def test_a_lost_connection_is_another_matter() -> None:
    async with world(breaker_failures=1) as w:
        w.log.disconnect()
        for _ in range(5):
            with pytest.raises(LogUnavailable):
                await w.hub.publish(S1, event(1))
        w.log.reconnect()
        await w.hub.publish(S1, event(1))
        assert w.watcher.degradations == []


async def test_a_connection_lost_under_way_is_no_failure_of_storing() -> None:
    async with world(breaker_failures=1) as w:

        async def lose(method: str, session: str) -> None:
            w.log.disconnect()

        w.log.before = lose
        with pytest.raises(LogUnavailable):
            await w.hub.publish(S1, event(1))
        w.log.before = None
        w.log.reconnect()
        assert degraded(w.hub) == []


async def test_a_stored_event_ends_the_row_a_duplicate_does_not() -> None:
    async with world(breaker_failures=3, breaker_pause=60.0) as w:
        keyed = event(1)._replace(key="k")
        await w.hub.publish(S1, keyed)
        await fails(w, 2)
        w.store.refuse(None)
        await w.hub.publish(S1, event(2))
        await fails(w, 2)
        w.store.refuse(None)
        assert (await w.hub.publish(S1, keyed)).duplicate
        await fails(w, 1)
        assert degraded(w.hub) == [0]


async def test_a_batch_counts_once_and_one_stored_row_proves_that_the_log_stores() -> None:
    async with world(breaker_failures=3, breaker_pause=60.0) as w:
        w.store.refuse(NO)
        for expected in ([], [], [0]):
            results = await w.hub.publish_batch(S1, [event(n) for n in range(50)])
            assert {type(result) for result in results} == {LogUnavailable}
            assert degraded(w.hub) == expected
    async with world(breaker_failures=2) as w:
        await fails(w, 1)
        w.store.refuse(None)
        await w.hub.publish_batch(S1, [event(1)])
        await fails(w, 1)
        assert degraded(w.hub) == []


async def test_a_conditional_publish_whose_question_fails_is_no_failure_of_storing() -> None:
    async with world(breaker_failures=1) as w:
        w.put()
        w.store.recreate()

        async def away(method: str, session: str) -> None:
            if method == "last":
                raise NO

        w.log.before = away
        with pytest.raises(LogUnavailable):
            await w.hub.publish(S1, event(1), 1)
        assert degraded(w.hub) == []


async def test_a_shard_fails_alone() -> None:
    async with world(shards=2, breaker_failures=2, breaker_pause=60.0) as w:
        one, two = await w.connect(), await w.connect(session=S2)
        assert w.log.shard_of(S1) != w.log.shard_of(S2)
        await fails(w, 2)
        await w.settle()
        assert degraded(w.hub) == [w.log.shard_of(S1)]
        await w.hub.publish(S2, event(1))
        await w.settle()
        assert (one.types, two.types) == (["log_degraded"], ["t"])


async def test_a_probe_closes_it_without_any_publisher() -> None:
    async with world(breaker_failures=2, breaker_pause=1.0) as w:
        await fails(w, 2)
        await asyncio.sleep(10.0)
        assert 8 <= w.log.calls["probe"] <= 13
        assert degraded(w.hub) == [0]
        w.store.refuse(None)
        await asyncio.sleep(1.3)
        assert degraded(w.hub) == []
        [(shard, seconds)] = w.watcher.restorations
        assert shard == 0
        assert 10.0 <= seconds <= 11.3
        probes = w.log.calls["probe"]
        await w.hub.publish(S1, event(1))
        await asyncio.sleep(10.0)
        assert w.log.calls["probe"] == probes


async def test_it_opens_again_when_the_log_fails_again() -> None:
    async with world(breaker_failures=2, breaker_pause=1.0) as w:
        for _ in range(3):
            await fails(w, 2)
            assert degraded(w.hub) == [0]
            w.store.refuse(None)
            await asyncio.sleep(1.3)
            assert degraded(w.hub) == []
        assert len(w.watcher.degradations) == len(w.watcher.restorations) == 3


async def test_while_nats_is_away_nothing_is_probed_and_it_stays_open() -> None:
    async with world(breaker_failures=1, breaker_pause=1.0) as w:
        await fails(w, 1)
        w.store.refuse(None)
        w.log.disconnect()
        await asyncio.sleep(10.0)
        assert w.log.calls["probe"] == 0
        assert degraded(w.hub) == [0]
        w.log.reconnect()
        await asyncio.sleep(2.5)
        assert degraded(w.hub) == []


async def test_a_fault_in_the_probe_is_reported_and_the_next_probe_still_comes() -> None:
    async with world(breaker_failures=1, breaker_pause=1.0, faults_expected=True) as w:
        await fails(w, 1)

        async def fault(method: str, session: str) -> None:
            if method == "probe":
                raise ZeroDivisionError

        w.log.before = fault
        await asyncio.sleep(1.3)
        assert [type(one["exception"]) for one in w.faults] == [ZeroDivisionError]
        w.log.before = None
        w.store.refuse(None)
        await asyncio.sleep(1.3)
        assert degraded(w.hub) == []


async def test_a_hub_that_closes_probes_no_more() -> None:
    async with world(breaker_failures=1, breaker_pause=1.0) as w:
        await fails(w, 1)
        await w.hub.close()
        probes = w.log.calls["probe"]
        await asyncio.sleep(5.0)
        assert w.log.calls["probe"] == probes


async def test_a_publish_under_way_when_it_opens_still_gets_its_own_answer() -> None:
    async with world(breaker_failures=1, breaker_pause=60.0) as w:
        gate = asyncio.Event()

        async def hold(method: str, session: str) -> None:
            if method == "append" and session == S2:
                await gate.wait()

        w.log.before = hold
        under_way = asyncio.create_task(w.hub.publish(S2, event(1)))
        await asyncio.sleep(0.01)
        await fails(w, 1)
        w.store.refuse(None)
        gate.set()
        assert (await under_way).id == 1
        assert degraded(w.hub) == [0]


# Other instances.


async def test_other_instances_look_for_themselves_and_tell_their_streams_too() -> None:
    async with world(breaker_failures=3, breaker_pause=1.0) as w:
        other, _ = await w.add()
        here, there = await w.connect(), await w.connect(hub=other)
        await fails(w, 3)
        await eventually(lambda: degraded(other) == [0], 2.0)
        await w.settle()
        assert here.types == there.types == ["log_degraded"]
        with pytest.raises(LogUnavailable):
            await other.publish(S1, event(1))
        w.store.refuse(None)
        await eventually(lambda: there.types == here.types == ["log_degraded", "log_restored"], 3.0)
        await other.publish(S1, event(1))


async def test_an_instance_that_can_store_does_not_take_the_word_of_one_that_cannot() -> None:
    async with world(breaker_failures=1, breaker_pause=60.0) as w:
        other, _ = await w.add()
        reader = await w.connect(hub=other)
        w.store.refuse(NO)
        with pytest.raises(LogUnavailable):
            await w.hub.publish(S1, event(1))
        w.store.refuse(None)
        await w.settle()
        assert degraded(w.hub) == [0]
        assert degraded(other) == []
        assert w.watchers[1].degradations == []
        await other.publish(S1, event(1))
        await w.settle()
        assert reader.types == ["t"]


async def test_an_instance_that_joins_later_hears_of_it_with_the_next_failed_probe() -> None:
    async with world(breaker_failures=1, breaker_pause=1.0) as w:
        await fails(w, 1)
        other, _ = await w.add()
        reader = await w.connect(hub=other)
        await eventually(lambda: reader.types == ["log_degraded"], 3.0)


async def test_a_doubt_heard_while_nats_goes_away_says_nothing() -> None:
    async with world(breaker_failures=5, breaker_pause=1.0) as w:

        async def lose(method: str, session: str) -> None:
            if method == "probe":
                w.log.disconnect()

        w.log.before = lose
        w.hub.storing_doubted(0)
        await asyncio.sleep(1.0)
        assert w.log.calls["probe"] == 1
        w.log.before = None
        w.log.reconnect()
        await asyncio.sleep(2.5)
        assert w.log.calls["probe"] == 2
        assert w.watcher.degradations == []


async def test_the_tails_of_all_channels_are_looked_at_once_it_stores_again() -> None:
    async with world(breaker_failures=1, breaker_pause=1.0) as w:
        reader = await w.connect()
        await asyncio.sleep(40.0)
        await fails(w, 1)
        w.store.refuse(None)
        w.log.drop_live()
        w.store.append(0, S1, Row(event(1).payload), None)
        await eventually(lambda: reader.ids == [1], 2.5)
        assert reader.types[:1] == ["log_degraded"]
