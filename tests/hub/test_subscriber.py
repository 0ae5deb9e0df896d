"""One reader: backpressure, eviction, and every way a stream can end (contract 6)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ringmere.core.errors import SubscriberLimitExceeded
from ringmere.core.frames import HEARTBEAT, OPENING_COMMENT
from ringmere.core.reasons import CloseReason
from ringmere.hub.subscriber import SubscribeOptions
from support.hub import S1, Client, arrived, over, world
from support.virtual import eventually


def _no_ids(client: Client) -> None:
    """Control frames never carry an id line (contract 5.2)."""
    for block in client.body.split(b"\n\n"):
        if b"data: " not in block:
            continue
        data = json.loads(block.split(b"data: ", 1)[1])
        lines = block.split(b"\n")
        assert ("id" in data) == any(line.startswith(b"id") for line in lines)


async def test_bpr_1_a_client_that_never_reads_is_evicted_and_the_healthy_one_gets_everything() -> None:
    async with world() as w:
        stalled = await w.stalled(max_queued=16)
        healthy = await w.connect()
        for _ in range(100):
            w.put(100, size=200)
            await asyncio.sleep(0)
        await arrived(healthy, 10_000)
        assert healthy.ids == [*range(1, 10_001)]
        assert await over(stalled) is CloseReason.QUEUE_OVERFLOW
        assert stalled.ids == []


async def test_bpr_2_an_evicted_client_that_reads_no_more_is_cut_off_within_the_grace() -> None:
    async with world(evict_grace=5.0) as w:
        client = await w.stalled(max_queued=16)
        w.put(17)
        began = asyncio.get_running_loop().time()
        assert await over(client) is CloseReason.QUEUE_OVERFLOW
        assert 4.5 < asyncio.get_running_loop().time() - began <= 5.6
        assert client.aborted
        assert not client.finished
        w.assert_empty()


async def test_bpr_3_huge_events_are_counted_in_bytes_and_the_eviction_says_so() -> None:
    async with world(max_queued_bytes=1 << 20) as w:
        client = await w.stalled()
        w.put(3, size=400_000)
        await w.settle()
        client.resume()
        assert await over(client) is CloseReason.QUEUE_BYTES_OVERFLOW
        [data] = client.of("client_evicted")
        assert client.ids == [1, 2]
        assert data["reason"] == "queue_bytes_overflow"
        assert data["droppedAfter"] == 2
        assert (data["queueSize"], data["maxQueued"], data["maxQueuedBytes"]) == (2, 256, 1 << 20)
        assert 800_000 < data["queuedBytes"] < 810_000
        assert 400_000 < data["eventBytes"] < 401_000
        _no_ids(client)


async def test_ten_huge_events_against_the_byte_cap_behave_as_the_order_of_questions_says() -> None:
    async with world() as w:
        stalled = await w.stalled()
        healthy = await w.connect()
        w.put(10, size=400_000)
        await arrived(healthy, 10)
        stalled.resume()
        assert stalled.story == [1, 2, 3, 4, "slow_client_warning", 5, "client_evicted"]
        assert await over(stalled) is CloseReason.QUEUE_BYTES_OVERFLOW
        back = await w.connect(5)
        await arrived(back, 5)
        assert back.ids == [6, 7, 8, 9, 10]


async def test_one_event_above_the_byte_cap_is_accepted_on_an_empty_backlog() -> None:
    async with world(max_queued_bytes=100_000) as w:
        client = await w.stalled()
        w.put(1, size=300_000)
        await w.settle()
        client.resume()
        assert client.story == [1, "slow_client_warning"]
        assert not client.over


async def test_bpr_4_the_warning_comes_once_an_episode_and_re_arms_below_three_eighths() -> None:
    async with world() as w:
        client = await w.stalled(max_queued=16)
        reader = client.reader
        assert reader is not None

        async def fill(to: int) -> None:
            assert reader.backlog is not None
            w.put(to - reader.backlog.frames)
            await w.settle(0.01)
            assert reader.backlog.frames == to

        def drain(to: int) -> None:
            backlog = reader.backlog
            assert backlog is not None
            while backlog.frames > to:
                freed = backlog.bytes
                backlog.take(1)
                w.hub.backlog_bytes -= freed - backlog.bytes

        for step in (12, 13, 14):
            await fill(step)
        drain(6)
        await fill(12)
        drain(5)
        await fill(12)
        assert reader.backlog is not None
        queued = [frame for frame in reader.backlog.queue if not frame.seq]
        assert len(queued) == 1
        assert b"slow_client_warning" in queued[0].sse
        assert b"\nid" not in queued[0].sse
        client.resume()
        [warning] = client.of("slow_client_warning")
        assert warning["queueSize"] == 12
        assert warning["maxQueued"] == 16
        assert warning["threshold"] == "frames"
        assert warning["lastEventId"] == client.ids[-1]


async def test_bpr_5_a_full_socket_delays_nobody_else() -> None:
    async with world() as w:
        await w.stalled()
        healthy = await w.connect()
        other = await w.connect(session="s2")
        for _ in range(100):
            w.put(1)
            w.put(1, "s2")
            seen = len(healthy.ids)
            await asyncio.sleep(0.02)
            assert len(healthy.ids) == seen + 1
        assert len(other.ids) == 100


async def test_bpr_6_an_evicted_client_that_reads_again_gets_its_queue_the_reason_and_the_end() -> None:
    async with world() as w:
        await w.settle(1)
        tasks = len(asyncio.all_tasks())
        client = await w.stalled(max_queued=16)
        w.put(20)
        await w.settle()
        client.resume()
        assert client.ids == [*range(1, 17)]
        assert client.types[-1] == "client_evicted"
        assert client.finished
        assert await over(client) is CloseReason.QUEUE_OVERFLOW
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks)
        w.assert_empty()


async def test_a_healthy_reader_survives_5000_events_accepted_in_one_turn() -> None:
    async with world() as w:
        client = await w.connect(max_queued=16)
        w.put(5000, size=200)
        await arrived(client, 5000)
        assert client.ids == [*range(1, 5001)]
        assert client.controls == []


async def test_hov_2_a_replay_longer_than_the_queue_evicts_nobody() -> None:
    async with world() as w:
        w.put(300)
        client = await w.connect(0, max_queued=16)
        w.put(1)
        await arrived(client, 301)
        assert client.ids == [*range(1, 302)]
        assert client.types.count("client_evicted") == 0


@pytest.mark.parametrize("state", ["live", "replay", "winding"])
async def test_a_transport_that_stays_paused_is_evicted_after_the_write_timeout(state: str) -> None:
    async with world(write_timeout=30.0, evict_grace=5.0, page_bytes=1000) as w:
        if state == "replay":
            w.put(100)
        client = await w.connect(0 if state == "replay" else None, client=Client(high_water=100))
        if state == "live":
            client.pause()
        if state == "winding":
            client.pause()
            w.put(300)
        await w.settle()
        began = asyncio.get_running_loop().time()
        reason = await over(client, 60.0)
        spent = asyncio.get_running_loop().time() - began
        if state == "winding":
            assert reason is CloseReason.QUEUE_OVERFLOW
            assert spent < 6
        else:
            assert reason is CloseReason.WRITE_TIMEOUT
            assert 33 < spent < 36
        assert client.aborted
        w.assert_empty()


async def test_a_write_timeout_says_where_to_resume_when_the_client_reads_at_last() -> None:
    async with world(write_timeout=1.0) as w:
        client = await w.connect()
        w.put(3)
        await arrived(client, 3)
        client.pause()
        w.put(2)
        await asyncio.sleep(2)
        client.resume()
        assert client.story == [1, 2, 3, 4, 5, "client_evicted"]
        assert client.of("client_evicted")[0]["droppedAfter"] == 5
        assert await over(client) is CloseReason.WRITE_TIMEOUT


async def test_a_pause_that_ends_in_time_costs_nothing() -> None:
    async with world(write_timeout=1.0) as w:
        client = await w.connect()
        for _ in range(10):
            client.pause()
            w.put(1)
            await asyncio.sleep(0.7)
            client.resume()
            await asyncio.sleep(0.7)
        assert client.ids == [*range(1, 11)]
        assert not client.over


async def test_a_pause_inside_a_write_keeps_the_order() -> None:
    async with world() as w:
        client = await w.connect(client=Client(high_water=150))
        for _ in range(30):
            w.put(3)
            await w.settle(0.01)
            client.read()
        assert client.ids == [*range(1, 91)]


@pytest.mark.parametrize("framed", [True, False])
async def test_the_retry_travels_in_the_block_of_the_first_frame_and_never_alone(framed: bool) -> None:
    async with world() as w:
        quiet = await w.connect(client=Client(framed=framed))
        assert quiet.body == OPENING_COMMENT
        w.put(1)
        await arrived(quiet, 1)
        w.put(1)
        await arrived(quiet, 2)
        assert quiet.body.startswith(OPENING_COMMENT + b"retry: ")
        assert quiet.body.count(b"retry:") == 1
        replayed = await w.connect(0, client=Client(framed=framed))
        assert replayed.body.startswith(b"retry: ")
        assert replayed.body.count(b"retry:") == 1
        retry = int(replayed.body.split(b"\n")[0].split(b" ")[1])
        assert 2400 <= retry <= 3600
        for client in (quiet, replayed):
            assert client.ids == [1, 2]


async def test_heartbeats_come_on_a_quiet_stream_and_not_into_a_full_one() -> None:
    async with world(heartbeat=15.0, write_timeout=100.0) as w:
        client = await w.connect()
        await asyncio.sleep(46)
        assert client.body.count(HEARTBEAT) == 3
        client.pause()
        size = len(client.raw)
        await asyncio.sleep(46)
        assert len(client.raw) == size


async def test_a_stream_ends_by_itself_at_its_age() -> None:
    async with world(max_stream_age=100.0) as w:
        client = await w.connect()
        began = asyncio.get_running_loop().time()
        assert await over(client, 200) is CloseReason.MAX_AGE
        assert 89 < asyncio.get_running_loop().time() - began < 111
        assert client.finished


async def test_a_closed_session_ends_a_paused_reader_after_its_backlog() -> None:
    async with world() as w:
        client = await w.connect()
        client.pause()
        w.put(2)
        await w.hub.close_session(S1)
        await w.settle()
        assert not client.finished
        client.resume()
        assert client.ids == [1, 2, 3]
        assert client.finished
        assert await over(client) is CloseReason.SESSION_CLOSED


async def test_lif_6_slots_neither_leak_nor_go_negative() -> None:
    async with world(max_subscribers=64) as w:
        clients = [await w.connect() for _ in range(64)]
        for _ in range(20):
            with pytest.raises(SubscriberLimitExceeded):
                await w.connect()
        assert w.hub.slots == 64
        for client in clients:
            client.leave()
            client.leave()
        assert w.hub.slots == 0
        for _ in range(20):
            reader = await w.hub.subscribe(S1, SubscribeOptions())
            reader.cancel()
            reader.cancel()
            reader.lost()
        evicted = [await w.stalled(max_queued=16) for _ in range(5)]
        w.put(20)
        for client in evicted:
            await over(client)
            client.leave()
        clients = [await w.connect() for _ in range(64)]
        assert w.hub.slots == 64
        assert w.hub.stats().subscribers == {"sse": 64, "websocket": 0}


async def test_a_reader_that_ended_before_its_sink_came_ends_the_sink_at_once() -> None:
    async with world() as w:
        reader = await w.hub.subscribe(S1, SubscribeOptions())
        await w.hub.drain()
        client = Client()
        client.reader = reader
        reader.attach(client)
        assert client.finished
        assert client.raw == b""


@pytest.mark.parametrize("when", ["replay", "paused", "live", "winding"])
async def test_a_lost_connection_frees_everything_at_once(when: str) -> None:
    async with world(page_bytes=500) as w:
        w.put(50)
        client = Client(high_water=200 if when in ("replay", "winding") else None)
        await w.connect(0 if when == "replay" else None, client=client, max_queued=16)
        if when in ("paused", "winding"):
            client.pause()
            w.put(5 if when == "paused" else 20)
        await w.settle(0.05)
        client.leave()
        w.assert_empty()
        assert client.reader is not None
        expected = CloseReason.QUEUE_OVERFLOW if when == "winding" else CloseReason.CLIENT_GONE
        assert await client.reader.wait() is expected


async def test_jsc_2_readers_that_come_and_go_leave_no_task_and_no_timer() -> None:
    async with world() as w:
        w.put(1)
        keeper = await w.connect()
        tasks, timers = len(asyncio.all_tasks()), w.hub.wheel.pending
        for _ in range(500):
            client = await w.connect(0)
            await arrived(client, 1)
            client.leave()
        await asyncio.sleep(10)
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks)
        assert w.hub.wheel.pending == timers
        keeper.leave()


async def test_jsc_4_no_event_is_lost_to_a_heartbeat_at_the_same_moment() -> None:
    async with world(heartbeat=0.25) as w:
        client = await w.connect()
        for _ in range(400):
            w.put(1)
            await asyncio.sleep(0.0625)
        await arrived(client, 400)
        assert client.ids == [*range(1, 401)]
        assert client.body.count(HEARTBEAT) > 40


async def test_can_1_a_disconnect_is_no_cancel_and_all_events_are_there_later() -> None:
    async with world() as w:
        client = await w.connect()

        async def task() -> None:
            for _ in range(20):
                w.put(1)
                await asyncio.sleep(0.5)

        running = asyncio.create_task(task())
        await asyncio.sleep(3)
        cursor = client.last_id
        client.leave()
        await running
        back = await w.connect(cursor)
        await arrived(back, 20 - (cursor or 0))
        assert client.ids + back.ids == [*range(1, 21)]


async def test_ctl_1_no_control_frame_carries_an_id() -> None:
    async with world(ring_size=3) as w:
        w.put(5)
        gap = await w.connect(1)
        await eventually(lambda: gap.of("replay_complete"))
        slow = await w.stalled(max_queued=16)
        w.put(17)
        await w.settle()
        slow.resume()
        going = await w.connect()
        await w.hub.drain()
        seen: set[str] = set()
        for client in (gap, slow, going):
            _no_ids(client)
            seen |= {frame.type for frame in client.controls}
        assert seen == {
            "state_resync_required",
            "replay_complete",
            "slow_client_warning",
            "client_evicted",
            "server_draining",
        }


async def test_ctl_3_replay_complete_comes_once_for_a_cursor_and_never_without_one() -> None:
    async with world() as w:
        w.put(5)
        at_end, behind, live = await w.connect(5), await w.connect(3), await w.connect()
        await eventually(lambda: at_end.of("replay_complete") and behind.of("replay_complete"))
        w.put(1)
        await arrived(live, 1)
        await arrived(behind, 3)
        assert at_end.story == ["replay_complete", 6]
        assert behind.story == [4, 5, "replay_complete", 6]
        assert live.story == [6]
        assert at_end.of("replay_complete") == [{"replayedCount": 0}]
        assert behind.of("replay_complete") == [{"replayedCount": 2, "lastReplayedEventId": 5}]


async def test_all_backlogs_together_too_large_cost_only_as_many_readers_as_needed() -> None:
    async with world(backlog_bytes_total=30_000) as w:
        large = [await w.stalled() for _ in range(2)]
        small = [await w.stalled(session="s2") for _ in range(5)]
        w.put(1, "s2", size=100)
        w.put(1, size=12_000)
        await w.settle()
        assert not any(client.over or client.reader.state.value == "winding_down" for client in [*large, *small])
        w.put(1, size=5_000)
        await w.settle()
        states: list[Any] = [client.reader.state.value for client in large if client.reader is not None]
        assert sorted(states) == ["live", "winding_down"]
        for client in [*large, *small]:
            client.resume()
        assert [client.ids for client in small] == [[1]] * 5
        assert w.hub.backlog_bytes == 0


async def test_a_fault_while_a_reader_catches_up_ends_its_stream_and_is_reported() -> None:
    async with world(faults_expected=True) as w:
        w.put(5)

        async def fault(method: str, session: str) -> None:
            if method == "page":
                raise ZeroDivisionError("a fault of this program")

        w.log.before = fault
        client = await w.connect(1)
        assert await over(client) is CloseReason.INTERNAL
        assert client.of("stream_error")[0]["errorKind"] == "internal_error"
        assert client.finished
        assert w.faults
        w.log.before = None
        back = await w.connect(1)
        await arrived(back, 4)
