"""A reader that falls back to the log instead of being evicted (contract 6.7), and what a backlog takes of a turn."""

from __future__ import annotations

import asyncio

import pytest

from ringmere.core.backlog import Backlog, Frame, Overflow
from ringmere.core.coalesce import Rules
from ringmere.core.frames import control_frame
from ringmere.core.limits import KIB, MIB
from ringmere.core.reasons import CloseReason
from ringmere.hub.lagging import Overtakes, Taken, take_turn
from ringmere.hub.subscriber import State
from support.hub import Client, World, arrived, over, world
from support.virtual import eventually

CATCHUP = Overflow.CATCHUP


async def _falls_back(w: World, **options: object) -> Client:
    """Connect a reader, stop it, and publish until its backlog of 16 is full and one more has come."""
    client = await w.stalled(max_queued=16, overflow=CATCHUP, **options)
    w.put(17)
    await w.settle()
    return client


def _assert_once_in_order_but_for_verdicts(client: Client) -> None:
    last = 0
    for frame in client.frames:
        if frame.type == "state_resync_required":
            assert frame.data["lastDeliveredId"] == last
            last = frame.data["earliestAvailableId"] - 1
        elif frame.id is not None:
            assert frame.id == last + 1
            last = frame.id


async def test_a_full_backlog_is_written_first_and_the_log_read_on_behind_it_without_hole_or_duplicate() -> None:
    async with world(window_bytes=KIB) as w:
        client = await _falls_back(w)
        w.put(500, size=100)
        await w.settle()
        assert client.ids == []
        assert w.hub.stats().backlog_events == 16
        assert client.reader is not None
        assert (client.reader.state, client.reader.reached) == (State.CATCHING_UP, 16)
        client.resume()
        await arrived(client, 517)
        assert client.ids == [*range(1, 518)]
        assert client.reader.state is State.LIVE
        w.put(3)
        await arrived(client, 520)
        assert client.ids == [*range(1, 521)]
        assert client.types.count("slow_client_warning") == 1
        assert client.story.index("slow_client_warning") == 12
        assert not client.of("replay_complete")
        assert not client.of("client_evicted")
        assert (w.watcher.fallen_back, w.watcher.caught_up_with) == ([CloseReason.QUEUE_OVERFLOW], [501])
        client.leave()
        assert w.watcher.delivered_events == [520]


async def test_nothing_is_kept_for_it_while_it_has_fallen_back() -> None:
    async with world(window_bytes=KIB) as w:
        client = await _falls_back(w)
        held = w.hub.backlog_bytes
        assert held > 0
        for _ in range(50):
            w.put(100, size=1000)
            await w.settle()
        assert w.hub.backlog_bytes == held
        assert client.ids == []
        client.resume()
        await arrived(client, 5017)
        assert client.ids == [*range(1, 5018)]
        assert w.hub.backlog_bytes == 0
        assert not w.hub.paused


async def test_it_reads_the_log_no_faster_than_its_transport_takes_it() -> None:
    async with world(window_bytes=KIB, page_bytes=64 * KIB) as w:
        client = await w.connect(max_queued=16, overflow=CATCHUP, client=Client(high_water=10 * KIB))
        for round in range(100):
            w.put(20, size=1000)
            await w.settle(0.05)
            assert client.buffered < 80 * KIB
            if round % 8 < 4:
                client.read()
        await eventually(lambda: _read(client) or len(client.ids) == 2000, 100.0)
        assert client.ids == [*range(1, 2001)]
        assert len(w.watcher.fallen_back) > 3
        assert not client.over


def _read(client: Client) -> None:
    client.read()


async def test_bytes_overflow_falls_back_too_and_a_short_lag_is_served_from_memory() -> None:
    async with world(max_queued_bytes=1500) as w:
        client = await w.stalled(overflow=CATCHUP)
        w.put(5, size=500)
        await w.settle()
        client.resume()
        await arrived(client, 5)
        assert client.ids == [1, 2, 3, 4, 5]
        assert w.watcher.fallen_back == [CloseReason.QUEUE_BYTES_OVERFLOW]
        assert w.log.calls["page"] == 0


async def test_a_ring_that_has_overtaken_it_is_told_exactly_where_and_the_stream_goes_on() -> None:
    async with world(ring_size=50, window_bytes=KIB) as w:
        client = await _falls_back(w)
        w.put(200)
        await w.settle()
        client.resume()
        await arrived(client, 66)
        [verdict] = client.of("state_resync_required")
        assert verdict == {"reason": "ring_evicted", "lastDeliveredId": 16, "earliestAvailableId": 168}
        assert client.ids == [*range(1, 17), *range(168, 218)]
        _assert_once_in_order_but_for_verdicts(client)
        w.put()
        await arrived(client, 67)
        assert not client.over


async def test_a_reader_overtaken_three_times_in_a_minute_is_evicted_as_too_slow_behind_its_verdicts() -> None:
    async with world(ring_size=50, window_bytes=KIB) as w:
        client = await w.connect(max_queued=16, overflow=CATCHUP)
        for round in range(3):
            assert not client.over
            client.pause()
            w.put(200)
            await w.settle()
            client.resume()
            await eventually(lambda told=round + 1: len(client.of("state_resync_required")) == told)
            await asyncio.sleep(15)
        assert await over(client) is CloseReason.TOO_SLOW
        _assert_once_in_order_but_for_verdicts(client)
        [evicted] = client.of("client_evicted")
        assert client.types[-1] == "client_evicted"
        assert evicted["reason"] == "too_slow"
        assert evicted["droppedAfter"] == client.ids[-1]
        again = await w.connect(evicted["droppedAfter"])
        await eventually(lambda: again.of("replay_complete"))
        assert [*client.ids, *again.ids][-50:] == [*range(551, 601)]


async def test_overtaken_twice_a_minute_it_goes_on_for_ever() -> None:
    async with world(ring_size=50, window_bytes=KIB) as w:
        client = await w.connect(max_queued=16, overflow=CATCHUP)
        for round in range(6):
            client.pause()
            w.put(200)
            await w.settle()
            client.resume()
            await eventually(lambda told=round + 1: len(client.of("state_resync_required")) == told)
            await asyncio.sleep(31)
        assert not client.over
        _assert_once_in_order_but_for_verdicts(client)


async def test_a_replay_that_is_overtaken_counts_for_nobody_who_has_not_fallen_back() -> None:
    async with world(ring_size=50, page_bytes=2 * KIB, window_bytes=KIB) as w:
        w.put(50, size=300)
        client = await w.connect(0, overflow=CATCHUP, client=Client(high_water=KIB))
        for _ in range(5):
            w.put(200, size=300)
            await w.settle()
            client.read()
            await w.settle()
        assert len(client.of("state_resync_required")) >= 3
        assert not client.over


@pytest.mark.parametrize("fallen_back", [False, True])
async def test_a_transport_that_stays_paused_is_evicted_all_the_same(fallen_back: bool) -> None:
    async with world() as w:
        client = await _falls_back(w)
        if not fallen_back:
            client.resume()
            await arrived(client, 17)
            client.pause()
        await asyncio.sleep(29)
        assert client.reader is not None
        assert client.reader.state is (State.CATCHING_UP if fallen_back else State.LIVE)
        await asyncio.sleep(2)
        assert client.reader.state is State.WINDING_DOWN
        client.resume()
        assert await over(client) is CloseReason.WRITE_TIMEOUT
        [evicted] = client.of("client_evicted")
        assert evicted["reason"] == "write_timeout"
        assert evicted["droppedAfter"] == client.ids[-1]


async def test_a_fallen_back_reader_that_leaves_frees_everything_at_once() -> None:
    async with world() as w:
        client = await _falls_back(w)
        client.leave()
        assert w.hub.backlog_bytes == 0
        assert not w.hub.paused


async def test_a_session_that_closes_meanwhile_is_read_to_its_end() -> None:
    async with world() as w:
        client = await _falls_back(w)
        w.put(1, type="session_closed")
        await w.settle()
        assert not client.over
        client.resume()
        assert await over(client) is CloseReason.SESSION_CLOSED
        assert client.ids == [*range(1, 19)]


async def test_it_waits_for_a_log_that_is_away() -> None:
    async with world(window_bytes=KIB) as w:
        client = await _falls_back(w)
        w.put(100, size=100)
        await w.settle()
        w.log.disconnect()
        client.resume()
        await asyncio.sleep(5)
        assert client.ids == [*range(1, 17)]
        w.log.reconnect()
        await arrived(client, 117)
        assert client.ids == [*range(1, 118)]


async def test_an_epoch_that_begins_meanwhile_is_told_behind_what_was_accepted() -> None:
    async with world() as w:
        client = await _falls_back(w)
        w.store.recreate()
        w.put(3)
        await asyncio.sleep(3)
        client.resume()
        await arrived(client, 19)
        [verdict] = client.of("state_resync_required")
        assert verdict["reason"] == "epoch_reset"
        assert verdict["lastDeliveredId"] == client.ids[15] == 16
        assert client.ids[16:] == [verdict["earliestAvailableId"] + n for n in range(3)]
        assert client.story.index("state_resync_required") == 17


async def test_the_instances_memory_makes_it_give_its_backlog_up_and_read_it_again() -> None:
    async with world(backlog_bytes_total=64 * KIB, window_bytes=KIB) as w:
        w.put(1)
        clients = [await w.connect(overflow=CATCHUP) for _ in range(4)]
        patient = await w.connect()
        w.put(1)
        await arrived(patient, 1)
        for client in (*clients, patient):
            client.pause()
        w.put(100, size=500)
        await w.settle()
        assert w.hub.backlog_bytes <= 64 * KIB
        assert CloseReason.MEMORY in w.watcher.fallen_back
        for client in clients:
            client.resume()
            await arrived(client, 101)
            assert client.ids == [*range(2, 103)]
            assert not client.over


async def test_a_reader_with_nothing_behind_which_it_could_read_again_is_evicted_for_memory() -> None:
    async with world(backlog_bytes_total=4 * KIB) as w:
        client = await w.stalled(overflow=CATCHUP)
        w.put(20, size=500)
        await w.settle()
        client.resume()
        assert await over(client) is CloseReason.QUEUE_BYTES_OVERFLOW
        assert client.ids == [*range(1, 21)]


async def test_readers_that_did_not_ask_are_evicted_as_ever() -> None:
    async with world() as w:
        client = await w.stalled(max_queued=16)
        w.put(17)
        await w.settle()
        client.resume()
        assert await over(client) is CloseReason.QUEUE_OVERFLOW
        assert w.watcher.fallen_back == []


# -- coalescing ---------------------------------------------------------------------------------------------


RULES = Rules({"t": "/data/pad"})


async def _same(w: World, texts: list[str]) -> None:
    for text in texts:
        w.put_raw(b'{"type":"t","data":{"pad":"%b"}}' % text.encode())
    await w.settle()


async def test_a_backlog_merges_what_is_mergeable_and_a_reader_that_keeps_up_sees_every_event() -> None:
    async with world(coalesce=RULES) as w:
        keeps_up, slow = await w.connect(coalesce=True), await w.stalled(coalesce=True)
        plain = await w.stalled()
        await _same(w, ["a", "b", "c"])
        assert (w.hub.stats().backlog_events, w.watcher.coalesced_events) == (1 + 3, 2)
        slow.resume()
        plain.resume()
        assert keeps_up.ids == plain.ids == [1, 2, 3]
        assert slow.ids == [3]
        assert slow.of("t") == [{"pad": "abc"}]
        assert slow.last_id == 3
        assert w.hub.backlog_bytes == 0
        await _same(w, ["d", "e"])
        assert slow.ids == [3, 4, 5]
        slow.leave()
        assert w.watcher.delivered_events == [3]


async def test_merging_keeps_a_reader_of_many_small_texts_from_ever_being_warned() -> None:
    async with world(coalesce=RULES) as w:
        slow = await w.stalled(coalesce=True, max_queued=16)
        await _same(w, ["x"] * 5000)
        assert w.hub.stats().backlog_events == 1
        slow.resume()
        assert slow.types == ["t"]
        assert slow.of("t") == [{"pad": "x" * 5000}]
        assert not slow.over


async def test_the_warning_stands_behind_a_merged_event_and_nothing_is_merged_across_it() -> None:
    async with world(coalesce=RULES, max_queued_bytes=2000) as w:
        slow = await w.stalled(coalesce=True)
        await _same(w, ["x" * 100] * 16)
        slow.resume()
        assert slow.story == [slow.story[0], "slow_client_warning", 16]
        [warning] = slow.of("slow_client_warning")
        assert warning["lastEventId"] == slow.ids[0]
        assert (warning["queueSize"], warning["threshold"]) == (1, "bytes")
        assert warning["queuedBytes"] >= 1500
        assert "".join(data["pad"] for data in slow.of("t")) == "x" * 1600
        assert w.hub.backlog_bytes == 0
        slow.pause()
        await _same(w, ["x" * 100] * 16)
        slow.resume()
        assert slow.types.count("slow_client_warning") == 2


async def test_a_reader_that_merges_falls_back_behind_the_last_id_of_what_it_has() -> None:
    async with world(coalesce=RULES, max_queued_bytes=1000, window_bytes=KIB) as w:
        slow = await w.stalled(coalesce=True, overflow=CATCHUP)
        await _same(w, [f"{n:03}" for n in range(400)])
        assert w.watcher.fallen_back == [CloseReason.QUEUE_BYTES_OVERFLOW]
        slow.resume()
        await eventually(lambda: slow.ids and slow.ids[-1] == 400)
        assert "".join(data["pad"] for data in slow.of("t")) == "".join(f"{n:03}" for n in range(400))
        assert slow.ids == sorted(set(slow.ids))
        assert w.hub.backlog_bytes == 0
        slow.leave()
        assert w.watcher.delivered_events == [len(slow.ids)]


async def test_an_evicted_reader_that_merges_resumes_behind_the_last_id_of_what_it_was_given() -> None:
    async with world(coalesce=RULES, max_queued_bytes=1000) as w:
        slow = await w.stalled(coalesce=True)
        await _same(w, [f"{n:03}" for n in range(400)])
        slow.resume()
        assert await over(slow) is CloseReason.QUEUE_BYTES_OVERFLOW
        [evicted] = slow.of("client_evicted")
        assert evicted["droppedAfter"] == slow.ids[-1] < 400
        again = await w.connect(evicted["droppedAfter"])
        await arrived(again, 400 - slow.ids[-1])
        texts = [data["pad"] for data in (*slow.of("t"), *again.of("t"))]
        assert "".join(texts) == "".join(f"{n:03}" for n in range(400))


async def test_asking_for_it_without_rules_changes_nothing() -> None:
    async with world() as w:
        slow = await w.stalled(coalesce=True)
        await _same(w, ["a", "b"])
        slow.resume()
        assert slow.ids == [1, 2]


# -- the parts ----------------------------------------------------------------------------------------------


def test_a_turn_is_taken_up_to_the_event_that_finds_no_room() -> None:
    backlog = Backlog(16, MIB)
    notice = Frame(0, control_frame("log_degraded", {}, 1), 0)
    turn = [notice, *(Frame(seq, b"x", 10 * seq) for seq in range(1, 20)), notice]
    warned: list[int] = []
    taken = take_turn(backlog, turn, lambda: warned.append(backlog.last_seq))
    assert taken == Taken(10 * sum(range(1, 17)), 0, 16, 3, CloseReason.QUEUE_OVERFLOW, 170)
    assert warned == [12]
    assert len(backlog.queue) == 17


def test_who_falls_back_keeps_the_notices_of_the_rest_but_no_verdict_that_the_log_will_give_again() -> None:
    backlog = Backlog(16, MIB, CATCHUP)
    notice = Frame(0, control_frame("log_degraded", {}, 1), 0)
    take_turn(backlog, [Frame(seq, b"<%d>" % seq, 1) for seq in range(1, 17)], lambda: None)
    backlog.push_verdict(control_frame("state_resync_required", {}, 1), 19)
    taken = take_turn(backlog, [Frame(20, b"<20>", 1), notice, Frame(22, b"<22>", 1)], lambda: None)
    assert taken == Taken(0, 0, 0, 2, CloseReason.QUEUE_OVERFLOW, 1)
    assert backlog.last_seq == 16
    assert backlog.take(MIB) == b"".join(b"<%d>" % seq for seq in range(1, 17)) + notice.sse


def test_three_times_in_a_minute_is_too_often() -> None:
    overtakes = Overtakes()
    seen = []
    for last_id, now in enumerate((0.0, 59.0, 61.0, 118.9, 119.0)):
        overtakes.note(now, last_id)
        seen.append(overtakes.too_many())
    assert seen == [False, False, False, True, True]


def test_a_loss_that_grows_with_no_event_in_between_counts_once() -> None:
    overtakes = Overtakes()
    for last_id in (0, 7, 7, 7):
        overtakes.note(1.0, last_id)
    assert not overtakes.too_many()
    overtakes.note(2.0, 8)
    assert overtakes.too_many()
