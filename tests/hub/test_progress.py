"""What a reader is told of a loss: each verdict names the last event that this reader really has (contract 4.7)."""

from __future__ import annotations

from typing import Any

import pytest

from ringmere.core.backlog import Overflow
from ringmere.core.limits import KIB
from ringmere.core.reasons import CloseReason
from support.hub import S1, Client, World, arrived, over, world

CATCHUP = Overflow.CATCHUP


async def _lose(w: World, count: int = 1) -> None:
    """Let the session's own tail be overtaken: events that this instance never saw are gone, nothing is behind them."""
    channel = w.hub.channels[0]
    for _ in range(count):
        w.log.drop_live()
        [channel.feed.last] = w.put(1)
    channel.push_gap(channel.last + 1)
    await w.hub.purge(S1)
    await w.settle()


def _edges(client: Client) -> list[tuple[int, int]]:
    """The verdicts: the last event that is named, and the earliest that can come."""
    verdicts: list[Any] = client.of("state_resync_required")
    return [(verdict["lastDeliveredId"], verdict["earliestAvailableId"]) for verdict in verdicts]


def assert_strict(client: Client) -> None:
    """The ids of a session alone in its stream are 1, 2, 3…: each verdict names the event really before it."""
    last, due, named = 0, 1, -1
    for frame in client.frames:
        if frame.type == "state_resync_required":
            assert frame.data["lastDeliveredId"] == last
            assert frame.data["earliestAvailableId"] > due, "one loss told twice" if named == last else "no loss"
            due, named = frame.data["earliestAvailableId"], last
        elif frame.id is not None:
            assert frame.id == due
            last, due = frame.id, frame.id + 1


async def test_losses_that_follow_each_other_name_the_same_last_event_and_a_higher_earliest() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(2)
        await arrived(client, 2)
        await _lose(w)
        await _lose(w, 3)
        assert _edges(client) == [(2, 4), (2, 7)]
        w.put(1)
        await arrived(client, 3)
        assert_strict(client)


async def test_each_reader_is_told_from_its_own_last_event() -> None:
    """One came back with an old cursor and has had no event since; the other has what was sent before."""
    async with world() as w:
        early = await w.connect()
        w.put(5)
        await arrived(early, 5)
        await _lose(w)
        late = await w.connect(2)
        await w.settle()
        assert (_edges(early), _edges(late)) == ([(5, 7)], [(2, 7)])
        await _lose(w)
        assert (_edges(early), _edges(late)) == ([(5, 7), (5, 8)], [(2, 7), (2, 8)])
        w.put(1)
        await arrived(late, 1)
        await _lose(w)
        assert _edges(early)[-1] == _edges(late)[-1] == (8, 10)
        assert_strict(early)


async def test_a_live_reader_without_an_event_is_told_from_its_start() -> None:
    async with world() as w:
        w.put(4)
        client = await w.connect()
        await _lose(w)
        assert _edges(client) == [(4, 6)]


async def test_losses_that_a_full_transport_has_not_been_told_of_yet_become_one_verdict() -> None:
    async with world() as w:
        client = await w.stalled()
        w.put(3)
        await w.settle()
        await _lose(w)
        await _lose(w, 3)
        client.resume()
        assert client.story == [1, 2, 3, "state_resync_required"]
        assert _edges(client) == [(3, 8)]
        w.put(1)
        await arrived(client, 4)
        assert_strict(client)


async def test_a_verdict_that_waits_with_no_event_queued_names_what_the_reader_had_before() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(2)
        await arrived(client, 2)
        client.pause()
        await _lose(w)
        w.put(2)
        await w.settle()
        await _lose(w)
        client.resume()
        assert client.story == [1, 2, "state_resync_required", 4, 5, "state_resync_required"]
        assert_strict(client)


@pytest.mark.parametrize("overflow", [Overflow.EVICT, CATCHUP])
async def test_who_overflows_right_behind_a_verdict_is_told_of_its_loss_once(overflow: Overflow) -> None:
    async with world(window_bytes=KIB) as w:
        client = await w.stalled(max_queued=16, overflow=overflow)
        w.put(16)
        await w.settle()
        await _lose(w)
        w.put(1)
        await w.settle()
        client.resume()
        if overflow is CATCHUP:
            await arrived(client, 17)
        else:
            assert await over(client) is CloseReason.QUEUE_OVERFLOW
            assert client.of("client_evicted")[0]["droppedAfter"] == 16
        assert _edges(client) == [(16, 18)]
        assert_strict(client)


async def test_an_eviction_behind_a_verdict_names_the_last_event_and_not_where_the_loss_ends() -> None:
    async with world(write_timeout=5) as w:
        client = await w.connect()
        w.put(2)
        await arrived(client, 2)
        await _lose(w)
        client.pause()
        await w.settle(6)
        client.resume()
        assert client.story == [1, 2, "state_resync_required", "client_evicted"]
        assert client.of("client_evicted")[0]["droppedAfter"] == 2


async def test_a_backlog_given_up_for_memory_with_a_verdict_in_front_loses_neither_the_verdict_nor_its_place() -> None:
    async with world(backlog_bytes_total=8 * KIB, window_bytes=KIB) as w:
        client = await w.connect(overflow=CATCHUP)
        w.put(2)
        await arrived(client, 2)
        client.pause()
        await _lose(w)
        w.put(40, size=500)
        await w.settle()
        assert w.watcher.fallen_back == [CloseReason.MEMORY]
        client.resume()
        await arrived(client, 42)
        assert _edges(client) == [(2, 4)]
        assert_strict(client)


async def test_memory_given_up_behind_a_verdict_that_was_written_tells_the_loss_no_second_time() -> None:
    async with world(backlog_bytes_total=8 * KIB, window_bytes=KIB) as w:
        client = await w.connect(overflow=CATCHUP)
        w.put(2)
        await arrived(client, 2)
        client.pause()
        await _lose(w)
        w.put(2, size=500)
        await w.settle()
        client.resume()
        client.pause()
        w.put(40, size=500)
        await w.settle()
        assert w.watcher.fallen_back == [CloseReason.MEMORY]
        client.resume()
        await arrived(client, 44)
        assert _edges(client) == [(2, 4)]
        assert_strict(client)


async def test_a_reader_that_was_overtaken_and_then_its_session_too_is_told_from_the_same_event() -> None:
    """It falls back, the whole ring goes, it joins with its verdict; then the session's tail is overtaken."""
    async with world(window_bytes=KIB) as w:
        client = await w.stalled(max_queued=16, overflow=CATCHUP)
        w.put(30)
        await w.settle()
        await w.hub.purge(S1)
        client.resume()
        await w.settle()
        assert _edges(client) == [(16, 31)]
        await _lose(w)
        assert _edges(client) == [(16, 31), (16, 32)]
        w.put(1)
        await arrived(client, 17)
        assert_strict(client)


async def test_the_sessions_own_losses_count_for_a_reader_that_would_rather_read_on() -> None:
    async with world() as w:
        client = await w.connect(overflow=CATCHUP)
        other = await w.connect()
        for sent in (1, 2, 3):
            w.put(1)
            await arrived(client, sent)
            await _lose(w)
        assert await over(client) is CloseReason.TOO_SLOW
        assert client.of("client_evicted")[0]["droppedAfter"] == client.ids[-1]
        assert len(_edges(client)) == 3
        assert_strict(client)
        assert not other.over


async def test_an_epoch_is_told_from_the_last_event_under_the_old_one() -> None:
    async with world() as w:
        client = await w.connect()
        w.put(3)
        await arrived(client, 3)
        await _lose(w)
        w.store.recreate()
        w.put(1)
        await arrived(client, 4, 30)
        first, second = client.of("state_resync_required")
        assert (first["reason"], second["reason"]) == ("ring_evicted", "epoch_reset")
        assert first["lastDeliveredId"] == second["lastDeliveredId"] == 3
