"""The verdict on a cursor: what is told, and where the stream begins (contract 3.3, 3.4, 3.9, 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ringmere.core.cursor import event_id
from ringmere.core.errors import LogUnavailable
from ringmere.core.reasons import CloseReason
from ringmere.hub.subscriber import SubscribeOptions
from support.hub import S1, Client, arrived, over, world
from support.virtual import eventually


def _gap(client: Client) -> dict[str, Any]:
    [data] = client.of("state_resync_required")
    return dict(data)


async def _at_end(client: Client) -> None:
    await eventually(lambda: client.of("replay_complete"))


@pytest.mark.parametrize("warm", [False, True])
async def test_res_1_a_cursor_older_than_the_ring_gets_the_verdict_first_and_the_rest_of_the_ring(warm: bool) -> None:
    async with world(ring_size=3) as w:
        if warm:
            await w.connect()
        w.put(5)
        await w.settle()
        client = await w.connect(1)
        await _at_end(client)
        assert client.story == ["state_resync_required", 3, 4, 5, "replay_complete"]
        assert _gap(client) == {"reason": "ring_evicted", "lastDeliveredId": 1, "earliestAvailableId": 3}
        assert client.of("replay_complete") == [{"replayedCount": 3, "lastReplayedEventId": 5}]
        w.put()
        await arrived(client, 4)
        assert client.ids == [3, 4, 5, 6]
        assert not client.over


@pytest.mark.parametrize("warm", [False, True])
async def test_res_2_at_the_edge_of_the_ring_only_a_lost_event_is_a_gap(warm: bool) -> None:
    async with world(ring_size=3) as w:
        if warm:
            await w.connect()
        w.put(5)
        await w.settle()
        two, one = await w.connect(2), await w.connect(1)
        await _at_end(two)
        await _at_end(one)
        assert two.story == [3, 4, 5, "replay_complete"]
        assert one.story == ["state_resync_required", 3, 4, 5, "replay_complete"]


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("how", ["purge", "expire"])
async def test_res_3_a_cursor_into_an_emptied_log_is_a_gap_and_ids_go_on(how: str, warm: bool) -> None:
    async with world(log_ttl=10.0) as w:
        if warm:
            await w.connect()
        w.put(5)
        await w.settle()
        if how == "purge":
            await w.hub.purge(S1)
        else:
            await asyncio.sleep(12)
        client = await w.connect(2)
        await _at_end(client)
        assert _gap(client) == {"reason": "ring_evicted", "lastDeliveredId": 2, "earliestAvailableId": 6}
        assert client.of("replay_complete") == [{"replayedCount": 0}]
        w.put()
        await arrived(client, 1)
        assert client.story == ["state_resync_required", "replay_complete", 6]


async def test_res_4_a_replay_overtaken_by_retention_says_so_at_the_place_of_the_jump() -> None:
    async with world(ring_size=50, page_bytes=256 * 1024) as w:
        w.put(50, size=64 * 1024)
        client = await w.connect(0, client=Client(high_water=100 * 1024))
        await arrived(client, 1)
        w.put(200, size=64 * 1024)
        await w.settle()
        while not client.ids or client.ids[-1] < 250:
            client.read()
            await w.settle(0.05)
        last = 0
        for item in client.story:
            if item == "state_resync_required":
                last = -1
            elif isinstance(item, int):
                assert last in (-1, item - 1), f"a silent jump to {item}"
                last = item
        gaps = client.of("state_resync_required")
        assert gaps
        before = [client.story[i - 1] for i, item in enumerate(client.story) if item == "state_resync_required"]
        after = [client.story[i + 1] for i, item in enumerate(client.story) if item == "state_resync_required"]
        assert [gap["lastDeliveredId"] for gap in gaps] == before
        assert [gap["earliestAvailableId"] for gap in gaps] == after
        assert client.types.count("replay_complete") == 1


async def test_res_5_ids_are_numbers_and_a_recent_cursor_never_reads_the_old_end() -> None:
    async with world(ring_size=20_000) as w:
        w.put(11)
        client = await w.connect(9)
        await _at_end(client)
        assert client.ids == [10, 11]
        w.put(12_000, session="long")
        late = await w.connect(11 + 11_990, session="long")
        await _at_end(late)
        assert late.ids == [*range(12_002, 12_012)]
        assert w.log.calls["page"] <= 2


async def test_epo_1_a_cursor_beyond_the_end_is_another_logs_and_gets_the_whole_ring() -> None:
    async with world() as w:
        w.put(5)
        for cursor in (50, 6):
            client = await w.connect(cursor)
            await _at_end(client)
            assert client.story == ["state_resync_required", 1, 2, 3, 4, 5, "replay_complete"]
            assert _gap(client) == {"reason": "epoch_reset", "lastDeliveredId": cursor, "earliestAvailableId": 1}
        at_end = await w.connect(5)
        await _at_end(at_end)
        assert at_end.story == ["replay_complete"]


async def test_epo_2_a_cursor_into_a_new_and_empty_log_is_an_epoch_reset() -> None:
    async with world() as w:
        client = await w.connect(50)
        await _at_end(client)
        assert _gap(client) == {"reason": "epoch_reset", "lastDeliveredId": 50, "earliestAvailableId": 1}
        w.put()
        await arrived(client, 1)
        assert client.story == ["state_resync_required", "replay_complete", 1]


async def test_a_cursor_of_a_voided_epoch_is_known_from_the_number_alone() -> None:
    async with world() as w:
        w.put(5)
        w.store.recreate()
        w.put(3)
        client = await w.connect(3)
        await _at_end(client)
        first = event_id(1, 1)
        assert client.ids == [first, first + 1, first + 2]
        assert _gap(client) == {
            "reason": "epoch_reset",
            "detail": "epoch_mismatch",
            "lastDeliveredId": 3,
            "earliestAvailableId": first,
        }


async def test_another_birth_is_an_unknown_cursor_and_the_same_birth_changes_nothing() -> None:
    async with world() as w:
        w.put(3)
        birth = w.hub.epoch_token(S1).rsplit("-", 1)[0]
        same = await w.connect(1, epoch_birth=birth)
        other = await w.connect(1, epoch_birth="other")
        await _at_end(same)
        await _at_end(other)
        assert same.story == [2, 3, "replay_complete"]
        assert other.story == ["state_resync_required", 1, 2, 3, "replay_complete"]
        assert _gap(other)["detail"] == "epoch_mismatch"


async def test_sid_3_a_cursor_of_another_session_never_gets_that_sessions_events() -> None:
    async with world() as w:
        for _ in range(5):
            w.put(1, "s1")
            w.put(1, "s2")
        foreign = await w.connect(5, session="s2")
        await _at_end(foreign)
        assert foreign.story == ["state_resync_required", 2, 4, 6, 8, 10, "replay_complete"]
        assert _gap(foreign)["detail"] == "foreign_cursor"
        tail = await w.connect(10, session="s1")
        await _at_end(tail)
        assert tail.ids == [1, 3, 5, 7, 9]


async def test_survivors_with_numbers_between_them_are_no_gap() -> None:
    async with world(ring_size=3) as w:
        for _ in range(5):
            w.put(1, "s1")
            w.put(1, "s2")
        client = await w.connect(3)
        await _at_end(client)
        assert client.story == [5, 7, 9, "replay_complete"]


async def test_cursor_0_is_the_whole_ring_and_a_gap_exactly_when_a_fence_is_stored() -> None:
    async with world(ring_size=3) as w:
        w.put(3)
        whole = await w.connect(0)
        await _at_end(whole)
        assert whole.story == [1, 2, 3, "replay_complete"]
        w.put(1)
        cut = await w.connect(0)
        quiet = await w.connect(from_start=True)
        await _at_end(cut)
        await arrived(quiet, 3)
        assert cut.story == ["state_resync_required", 2, 3, 4, "replay_complete"]
        assert quiet.story == [2, 3, 4]


async def test_cursor_0_on_a_log_that_has_been_emptied_is_no_gap_and_its_replay_completes() -> None:
    async with world(log_ttl=10.0) as w:
        w.put(5)
        await w.connect()
        await asyncio.sleep(12)
        expired = await w.connect(0)
        await _at_end(expired)
        w.put(2)
        await w.hub.purge(S1)
        purged = await w.connect(0)
        await _at_end(purged)
        assert purged.story == ["replay_complete"]
        w.put(1)
        await arrived(purged, 1)
        assert purged.ids == [8]
        assert expired.story[0] == "replay_complete"


async def test_a_cursor_at_the_head_of_an_expired_log_is_contiguous() -> None:
    async with world(log_ttl=10.0) as w:
        w.put(5)
        await asyncio.sleep(12)
        client = await w.connect(5)
        await _at_end(client)
        w.put(1)
        await arrived(client, 1)
        assert client.story == ["replay_complete", 6]


async def test_a_cursor_at_the_terminal_event_is_204_and_holds_no_slot() -> None:
    async with world() as w:
        w.put(2)
        await w.hub.close_session(S1)
        reader = await w.hub.subscribe(S1, SubscribeOptions(cursor=3))
        assert reader.ended
        assert w.hub.slots == 0
        before = await w.connect(2)
        assert before.story == [3, "replay_complete"]
        assert before.finished
        live = await w.connect()
        assert live.story == [3]
        assert await over(live) is CloseReason.SESSION_CLOSED


async def test_a_message_that_is_no_event_behind_the_terminal_event_opens_nothing() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(2)
        await w.hub.close_session(S1)
        w.put_raw(b"hello")
        await w.settle()
        assert client.finished
        reader = await w.hub.subscribe(S1, SubscribeOptions(cursor=3))
        assert reader.ended


async def test_a_later_event_reopens_a_closed_session() -> None:
    async with world() as w:
        w.put(1)
        await w.hub.close_session(S1)
        w.put(1)
        client = await w.connect(2)
        await _at_end(client)
        w.put(1)
        await arrived(client, 2)
        assert client.ids == [3, 4]
        assert not client.over


@pytest.mark.parametrize(("cursor", "gap"), [(0, False), (1, True), (2, True), (None, False)])
async def test_a_closed_session_shows_its_last_word_also_after_its_log_expired(cursor: int | None, gap: bool) -> None:
    async with world(log_ttl=10.0) as w:
        w.put(2)
        await w.hub.close_session(S1)
        await asyncio.sleep(12)
        client = await w.connect(cursor)
        assert await over(client) is CloseReason.SESSION_CLOSED
        assert client.ids == [3]
        assert client.types.count("state_resync_required") == int(gap)
        at_end = await w.hub.subscribe(S1, SubscribeOptions(cursor=3))
        assert at_end.ended


@pytest.mark.parametrize("window_bytes", [1, 1 << 20])
async def test_a_terminal_event_larger_than_the_window_is_still_the_last_word(window_bytes: int) -> None:
    async with world(window_bytes=window_bytes) as w:
        w.put(3, size=1000)
        w.put(1, size=2000, type="session_closed")
        first = await w.connect()
        second = await w.connect()
        third = await w.connect(3)
        assert await over(third) is CloseReason.SESSION_CLOSED
        assert first.story == second.story == [4]
        assert third.story == [4, "replay_complete"]


async def test_the_judgement_of_a_cursor_is_made_again_when_the_log_is_replaced_meanwhile() -> None:
    async with world() as w:
        await w.connect()
        w.put(5)
        await w.settle()
        gate, reached = asyncio.Event(), asyncio.Event()

        async def hold(method: str, session: str) -> None:
            if method == "contains" and not reached.is_set():
                reached.set()
                await gate.wait()

        w.hub.channels[0].window.reset(w.hub.channels[0].last)
        w.log.before = hold
        connecting = asyncio.create_task(w.connect(3))
        await reached.wait()
        w.store.recreate()
        w.put(4)
        await w.settle()
        gate.set()
        client = await connecting
        await _at_end(client)
        assert client.story[0] == "state_resync_required"
        assert client.ids == [event_id(1, n) for n in (1, 2, 3, 4)]


async def test_the_second_look_at_a_cursor_beyond_the_tail_finds_an_event_that_was_on_its_way() -> None:
    async with world() as w:
        w.put(5)
        connecting = asyncio.create_task(w.connect(6))
        await asyncio.sleep(0.5)
        w.put(1)
        client = await connecting
        await _at_end(client)
        assert client.story == ["replay_complete"]


async def test_a_log_that_is_away_is_said_so_within_the_deadline_and_leaves_no_slot() -> None:
    async with world() as w:
        w.log.disconnect()
        with pytest.raises(LogUnavailable):
            await w.connect(1)
        w.log.reconnect()

        async def never(method: str, session: str) -> None:
            await asyncio.Event().wait()

        w.log.before = never
        began = asyncio.get_running_loop().time()
        with pytest.raises(LogUnavailable):
            await asyncio.gather(*(w.connect(1) for _ in range(5)))
        assert asyncio.get_running_loop().time() - began <= w.limits.connect_deadline + 0.1
        await w.settle()
        assert w.hub.slots == 0
        w.log.before = None
        w.put(2)
        await asyncio.sleep(w.limits.channel_linger + 1)
        client = await w.connect(1)
        await arrived(client, 1)


async def test_a_failed_look_at_the_bounds_is_not_remembered() -> None:
    async with world() as w:
        await w.connect()
        w.put(5)
        await w.settle()
        w.log.disconnect()
        with pytest.raises(LogUnavailable):
            await w.connect(3)
        w.log.reconnect()
        client = await w.connect(3)
        await _at_end(client)
        assert client.ids == [4, 5]


async def test_a_reader_without_a_cursor_is_told_its_point_and_resumes_there() -> None:
    async with world() as w:
        empty = await w.hub.subscribe(S1, SubscribeOptions())
        assert empty.start_id == 0
        empty.cancel()
        w.put(3)
        await w.settle()
        reader = await w.hub.subscribe(S1, SubscribeOptions())
        assert reader.start_id == 3
        reader.cancel()
        other = await w.hub.subscribe("other", SubscribeOptions())
        assert other.start_id == 3
        other.cancel()
        anchored = await w.connect(anchor=True)
        assert anchored.frames == []
        assert anchored.last_id == 3
        assert anchored.body.startswith(b"retry: ")
        whole = await w.connect(from_start=True, anchor=True)
        await arrived(whole, 3)
        assert b"id: 1\n" in whole.body.split(b"\n\n")[0] + b"\n"
