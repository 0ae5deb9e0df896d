"""The tail in: chain, holes, expiry, purges, another epoch (contract 4.6, design's hot path)."""

from __future__ import annotations

import asyncio

import pytest

from ringmere.core.cursor import event_id
from ringmere.core.reasons import CloseReason
from ringmere.hub.subscriber import SubscribeOptions
from support.hub import S1, Client, arrived, event, over, world
from support.virtual import eventually


@pytest.mark.parametrize("lost", [1, 3])
async def test_a_hole_in_the_live_tail_is_filled_from_the_log_by_the_next_message(lost: int) -> None:
    async with world() as w:
        client = await w.connect()
        w.put(2)
        await arrived(client, 2)
        w.log.drop_live(lost)
        w.put(lost + 2)
        await arrived(client, lost + 4)
        assert client.story == [*range(1, lost + 5)]
        assert w.watcher.gaps == 1


async def test_a_lost_last_message_is_found_by_the_sweep() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(2)
        await arrived(client, 2)
        w.log.drop_live()
        w.put(1)
        await arrived(client, 3, within=2.5)
        assert client.story == [1, 2, 3]


async def test_hov_3_what_came_while_the_log_was_away_arrives_after_it_is_back() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(1)
        await arrived(client, 1)
        w.log.disconnect()
        w.put(2)
        await asyncio.sleep(60)
        assert client.ids == [1]
        assert not client.over
        w.log.reconnect()
        await arrived(client, 3, within=1.0)
        assert client.story == [1, 2, 3]


async def test_a_look_at_all_tails_that_fails_is_taken_again() -> None:
    async with world() as w:
        client = await w.connect()
        await asyncio.sleep(100)
        w.log.disconnect()
        w.put(1)
        w.log.reconnect()
        w.log.connected = False
        await asyncio.sleep(0.5)
        w.log.connected = True
        await arrived(client, 1, within=1.0)


async def test_hov_1_readers_that_join_at_any_moment_see_every_event_once() -> None:
    async with world() as w:
        clients: list[Client] = []

        async def publish() -> None:
            for _ in range(2000):
                w.put(1)
                await asyncio.sleep(0.001)

        async def join() -> None:
            for _ in range(20):
                await asyncio.sleep(0.09)
                clients.append(await w.connect(0))

        await asyncio.gather(publish(), join())
        for client in clients:
            await arrived(client, 2000)
            assert client.ids == [*range(1, 2001)]


async def test_hov_4_a_late_reader_of_the_same_session_has_a_position_of_its_own() -> None:
    async with world() as w:
        early = await w.connect()
        w.put(10)
        late = await w.connect(0)
        w.put(10)
        await arrived(early, 20)
        await arrived(late, 20)
        assert early.ids == late.ids == [*range(1, 21)]


async def test_mdc_5_the_publishing_instance_sends_its_own_readers_nothing_twice() -> None:
    async with world() as w:
        other, _ = await w.add()
        here, there = await w.connect(), await w.connect(hub=other)
        ids = [(await w.hub.publish(S1, event(number))).id for number in range(10)]
        await arrived(here, 10)
        await arrived(there, 10)
        assert here.ids == there.ids == ids == [*range(1, 11)]


async def test_pub_4_what_is_no_event_is_skipped_and_makes_no_gap() -> None:
    async with world(ring_size=3) as w:
        live = await w.connect()
        for payload in (b"hello", b"", b"\xff\xfe"):
            w.put_raw(payload)
        w.put(1)
        await arrived(live, 1)
        for _ in range(2):
            client = await w.connect(1)
            await eventually(lambda client=client: client.of("replay_complete"))
            assert client.story == [4, "replay_complete"]
        assert live.story == [4]
        assert {seq for seq, _ in w.watcher.skips} == {1, 2, 3}


async def test_a_session_idle_for_longer_than_the_log_keeps_goes_on_without_a_verdict() -> None:
    async with world(log_ttl=10.0) as w:
        client, empty = await w.connect(), await w.connect(session="s2")
        w.put(1)
        for round in range(3):
            await asyncio.sleep(25)
            w.put(1, S1)
            w.put(1, "s2")
            await arrived(client, round + 2)
            await arrived(empty, round + 1)
        assert client.controls == empty.controls == []


async def test_a_lost_message_that_expired_unseen_is_a_gap_before_the_next_event() -> None:
    async with world(log_ttl=10.0) as w:
        client = await w.connect()
        w.put(1)
        await arrived(client, 1)
        w.log.disconnect()
        w.put(1)
        await asyncio.sleep(20)
        w.log.reconnect()
        await asyncio.sleep(5)
        w.put(1)
        await arrived(client, 2)
        assert client.story == [1, "state_resync_required", 3]
        assert client.of("state_resync_required") == [
            {"reason": "ring_evicted", "lastDeliveredId": 1, "earliestAvailableId": 3}
        ]


async def test_a_hole_that_the_ring_has_overtaken_is_a_gap_at_its_place() -> None:
    async with world(ring_size=3) as w:
        client = await w.connect()
        w.put(1)
        await arrived(client, 1)
        w.log.disconnect()
        w.put(9)
        w.log.reconnect()
        await arrived(client, 4)
        assert client.story == [1, "state_resync_required", 8, 9, 10]


async def test_a_fill_that_the_ring_overtakes_again_and_again_is_one_verdict_from_what_readers_have() -> None:
    """Retention takes each page while it is read; the one verdict names the last event that was really sent."""
    async with world(ring_size=3) as w:
        client = await w.connect()
        w.put(1)
        await arrived(client, 1)
        w.log.disconnect()
        w.put(9)
        overtaken = 0

        async def overtake(method: str, session: str) -> None:
            nonlocal overtaken
            if method == "bounds" and overtaken < 2:
                overtaken += 1
                w.put(20)

        w.log.before = overtake
        w.log.reconnect()
        await arrived(client, 4)
        assert overtaken == 2
        assert client.story == [1, "state_resync_required", *client.ids[1:]]
        assert client.of("state_resync_required") == [
            {"reason": "ring_evicted", "lastDeliveredId": 1, "earliestAvailableId": client.ids[1]}
        ]
        assert client.ids[1:] == [48, 49, 50]


async def test_a_second_loss_with_no_event_since_the_first_names_the_same_last_event() -> None:
    async with world(ring_size=3) as w:
        client = await w.connect()
        w.put(1)
        await arrived(client, 1)
        channel = w.hub.channels[0]
        for last in (10, 20):
            channel.feed.last = last
            channel.push_gap(last + 1)
        await w.settle()
        assert [verdict["lastDeliveredId"] for verdict in client.of("state_resync_required")] == [1, 1]


async def test_a_purge_that_took_nothing_unseen_is_no_gap_and_one_that_did_is() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(2)
        await arrived(client, 2)
        await w.hub.purge(S1)
        await w.settle()
        w.put(1)
        await arrived(client, 3)
        w.log.drop_live()
        w.put(1)
        await w.hub.purge(S1)
        await w.settle()
        w.put(1)
        await arrived(client, 4)
        assert client.story == [1, 2, 3, "state_resync_required", 5]


async def test_a_hole_that_a_purge_made_for_good_is_not_looked_for_for_ever() -> None:
    async with world() as w:
        client = await w.connect()
        w.log.drop_live()
        w.put(2)
        await w.hub.purge(S1)
        await asyncio.sleep(0.5)
        calls = w.log.calls["last"]
        await asyncio.sleep(5)
        assert w.log.calls["last"] - calls < 5
        w.put(1)
        await arrived(client, 1)
        assert client.story == ["state_resync_required", 3]


async def test_more_than_can_be_parked_is_read_from_the_log() -> None:
    async with world(parked_bytes=2000, turn_bytes=4000) as w:
        client = await w.connect()
        w.put(1)
        await arrived(client, 1)
        w.log.drop_live()
        w.put(500, size=100)
        await arrived(client, 501)
        assert client.story == [*range(1, 502)]


async def test_a_ring_of_one_under_a_fast_publisher_neither_hangs_nor_loses_silently() -> None:
    async with world(ring_size=1) as w:
        live = await w.connect()
        late: list[Client] = []

        async def publish() -> None:
            for _ in range(3000):
                w.put(1)
                await asyncio.sleep(0)

        async def join() -> None:
            for cursor in (0, 1, 5):
                await asyncio.sleep(0)
                late.append(await w.connect(cursor))

        await asyncio.gather(publish(), join())
        await arrived(live, 3000)
        assert live.ids == [*range(1, 3001)]
        for client in late:
            await eventually(lambda client=client: client.ids and client.ids[-1] == 3000)
            assert client.types.count("replay_complete") == 1
            last = None
            for item in client.story:
                if isinstance(item, int) and isinstance(last, int):
                    assert item == last + 1
                if item != "replay_complete":
                    last = item


@pytest.mark.parametrize("state", ["admitted", "catching_up", "live", "backlog", "winding_down"])
async def test_a_recreated_log_is_told_to_every_reader_in_whatever_state(state: str) -> None:
    async with world(page_bytes=300) as w:
        w.put(20)
        client = Client(high_water=200 if state == "catching_up" else None)
        reader = await w.hub.subscribe(S1, SubscribeOptions(cursor=5, max_queued=16))
        client.reader = reader
        if state != "admitted":
            reader.attach(client)
            await w.settle()
        if state in ("backlog", "winding_down"):
            client.pause()
            w.put(3 if state == "backlog" else 20)
            await w.settle()
        w.store.recreate()
        w.put(2)
        await w.settle()
        if state == "admitted":
            reader.attach(client)
        for _ in range(20):
            client.read()
            await w.settle(0.05)
        new = [event_id(1, 1), event_id(1, 2)]
        if state == "winding_down":
            assert await over(client) is CloseReason.QUEUE_OVERFLOW
            assert client.types.count("state_resync_required") == 0
            return
        assert client.ids[-2:] == new
        [verdict] = client.of("state_resync_required")
        before = [id for id in client.ids if id < new[0]]
        assert before == [*range(6, 6 + len(before))]
        assert verdict["lastDeliveredId"] == (before[-1] if before else 5)
        assert verdict["earliestAvailableId"] == new[0]
        assert client.story.index("state_resync_required") < client.story.index(new[0])
        assert client.types.count("replay_complete") == 1


async def test_a_verdict_that_waits_for_a_full_transport_survives_a_second_change_of_the_log() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(2)
        await arrived(client, 2)
        client.pause()
        w.store.recreate()
        w.put(1)
        await w.settle()
        w.store.rewind(0)
        w.put(1)
        await w.settle()
        client.resume()
        await arrived(client, 3)
        assert client.story == [1, 2, "state_resync_required", event_id(2, 1)]
        assert client.of("state_resync_required")[0]["lastDeliveredId"] == 2


async def test_a_promotion_that_lost_nothing_of_a_reader_goes_on_without_a_verdict_or_a_loss() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(3)
        await arrived(client, 3)
        w.log.disconnect()
        w.put(2)
        w.store.rewind(3)
        w.put(4)
        w.log.reconnect()
        await arrived(client, 7)
        assert client.story == [1, 2, 3, *(event_id(1, n) for n in (4, 5, 6, 7))]


async def test_a_change_of_the_log_is_told_also_when_the_log_fails_in_the_middle_of_it() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(2)
        await arrived(client, 2)
        w.log.connected = False
        w.store.recreate()
        w.put(2)
        await asyncio.sleep(3)
        w.log.connected = True
        await arrived(client, 4)
        assert client.story == [1, 2, "state_resync_required", event_id(1, 1), event_id(1, 2)]


async def test_an_unnoticed_new_log_is_noticed_by_its_first_messages() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(3)
        await arrived(client, 3)
        await asyncio.sleep(1)
        w.store.recreate(noticed=False)
        w.put(2)
        await arrived(client, 5)
        assert client.story == [1, 2, 3, "state_resync_required", event_id(1, 1), event_id(1, 2)]


async def test_a_fault_in_a_fill_ends_the_streams_instead_of_silencing_them() -> None:
    async with world(faults_expected=True) as w:
        client = await w.connect()
        w.put(1)
        await arrived(client, 1)

        async def fault(method: str, session: str) -> None:
            if method == "page":
                raise ZeroDivisionError("a fault of this program")

        w.log.before = fault
        w.log.drop_live()
        w.put(2)
        assert await over(client) is CloseReason.INTERNAL
        assert client.types[-1] == "stream_error"
        assert len(w.faults) == 1
        w.log.before = None
        back = await w.connect(1)
        await arrived(back, 2)
        assert back.ids == [2, 3]


async def test_a_fault_in_a_sweep_does_not_end_the_sweeps() -> None:
    async with world(faults_expected=True) as w:
        client = await w.connect()
        w.put(1)
        await arrived(client, 1)
        broken = True

        async def fault(method: str, session: str) -> None:
            if method == "newer" and broken:
                raise ZeroDivisionError("a fault of this program")

        w.log.before = fault
        await asyncio.sleep(10)
        assert w.faults
        broken = False
        w.log.drop_live()
        w.put(1)
        await arrived(client, 2, within=40)
