"""What readers see while the log does not store: notices, and events that no log has (contract 8.2)."""

from __future__ import annotations

import json

import pytest

from ringmere.core.backlog import Overflow
from ringmere.core.errors import LogUnavailable
from ringmere.core.reasons import CloseReason
from support.hub import S1, Client, World, arrived, event, over, world
from support.virtual import eventually

NO = LogUnavailable("no quorum")
QUIET = {"breaker_failures": 1, "breaker_pause": 3600.0}
"""It opens at once and does not close by itself within a test."""


async def cease(w: World) -> None:
    w.store.refuse(NO)
    with pytest.raises(LogUnavailable):
        await w.hub.publish(S1, event(0))


async def restore(w: World) -> None:
    w.store.refuse(None)
    await eventually(lambda: not any(w.hub.stats().log_degraded.values()), 3.0)
    await w.settle()


async def send(w: World, count: int = 1, size: int = 0) -> None:
    assert await w.hub.publish_degraded(S1, [event(number, size) for number in range(count)])
    await w.settle()


def envelopes(client: Client) -> list[dict[str, object]]:
    return [json.loads(line[6:]) for line in client.body.decode().split("\n") if line.startswith("data: ")]


async def test_the_notice_names_its_beginning_and_the_last_event() -> None:
    async with world(breaker_failures=1, breaker_pause=1.0) as w:
        client = await w.connect()
        ids = w.put(3)
        await arrived(client, 3)
        began = w.store.clock() // 1_000_000
        await cease(w)
        await restore(w)
        assert client.story == [*ids, "log_degraded", "log_restored"]
        [start], [end] = client.of("log_degraded"), client.of("log_restored")
        assert start == end
        assert start["lastEventId"] == 3
        assert began <= start["since"] <= began + 100
        stamps = [one["_meta"]["serverTimestamp"] for one in envelopes(client)[-2:]]  # type: ignore[index]
        assert stamps[0] == start["since"]
        assert stamps[1] > stamps[0]


async def test_every_stream_is_told_once_also_those_that_open_later() -> None:
    async with world(breaker_failures=1, breaker_pause=5.0) as w:
        w.put(3)
        before = await w.connect()
        await cease(w)
        await w.settle()
        live, replay, start = await w.connect(), await w.connect(1), await w.connect(from_start=True)
        await w.settle()
        w.store.refuse(None)
        await eventually(lambda: not w.hub.stats().log_degraded[0], 10.0)
        await w.settle()
        after = await w.connect()
        w.put()
        await w.settle()
        told = ["log_degraded", "log_restored"]
        assert before.story == live.story == [*told, 5]
        assert replay.story == [2, 3, "replay_complete", *told, 5]
        assert start.story == [1, 2, 3, *told, 5]
        assert after.story == [5]


async def test_a_session_whose_log_cannot_be_read_says_3_10() -> None:
    async with world(**QUIET) as w:
        await cease(w)

        async def away(method: str, session: str) -> None:
            raise NO

        w.log.before = away
        with pytest.raises(LogUnavailable):
            await w.connect()


async def test_an_event_that_is_not_stored_has_no_id_and_moves_no_cursor() -> None:
    async with world(**QUIET) as w:
        client = await w.connect()
        w.put(2)
        await arrived(client, 2)
        await cease(w)
        await send(w, 3)
        assert client.story == [1, 2, "log_degraded", "t", "t", "t"]
        assert client.last_id == 2
        assert [one["data"] for one in envelopes(client)[3:]] == [{"n": n} for n in range(3)]
        assert all("id" not in one and one["_meta"]["degraded"] is True for one in envelopes(client)[3:])  # type: ignore[index]


async def test_it_reaches_the_readers_of_all_instances_and_of_its_session_only() -> None:
    async with world(**QUIET) as w:
        other, _ = await w.add()
        here, there = await w.connect(), await w.connect(hub=other)
        elsewhere = await w.connect(session="s2", hub=other)
        await cease(w)
        await w.settle()
        await send(w)
        assert here.types == there.types == ["log_degraded", "t"]
        assert elsewhere.types == ["log_degraded"]


async def test_an_instance_that_has_not_noticed_yet_hands_it_out_too() -> None:
    async with world(**QUIET) as w:
        other, log = await w.add()
        reader = await w.connect(hub=other)

        async def unsure(method: str, session: str) -> None:
            if method == "probe":
                log.calls["waiting"] += 1
                await w.settle(5.0)

        log.before = unsure
        await cease(w)
        await send(w)
        assert reader.types == ["t"]


async def test_it_is_in_no_replay_and_in_no_window() -> None:
    async with world(breaker_failures=1, breaker_pause=1.0) as w:
        client = await w.connect()
        w.put(2)
        await cease(w)
        await send(w)
        await restore(w)
        w.put(2)
        await arrived(client, 4)
        assert client.story == [1, 2, "log_degraded", "t", "log_restored", 4, 5]
        again = await w.connect(1)
        await arrived(again, 3)
        assert again.story == [2, 4, 5, "replay_complete"]
        assert [one["data"] for one in envelopes(again)][:3] == [{"n": 1}, {"n": 0}, {"n": 1}]


async def test_while_the_log_stores_nothing_goes_out_unstored() -> None:
    async with world() as w:
        client = await w.connect()
        assert not await w.hub.publish_degraded(S1, [event(1)])
        await w.settle()
        assert client.types == []
        assert w.log.calls["publish_degraded"] == 0


async def test_it_counts_for_the_backlog_and_evicts_at_the_cap() -> None:
    async with world(**QUIET) as w:
        stalled = await w.stalled(max_queued=16)
        w.put(4)
        await w.settle()
        await cease(w)
        await send(w, 12)
        assert w.hub.stats().backlog_events == 16
        await send(w)
        assert await over_after_reading(stalled) is CloseReason.QUEUE_OVERFLOW
        assert stalled.types[:5] == ["t"] * 4 + ["log_degraded"]
        assert stalled.types.count("t") == 16
        [warning] = stalled.of("slow_client_warning")
        assert warning["lastEventId"] == 4
        [evicted] = stalled.of("client_evicted")
        assert (evicted["droppedAfter"], evicted["queueSize"]) == (4, 16)


async def over_after_reading(client: Client) -> CloseReason:
    client.resume()
    return await over(client)


async def test_its_bytes_count_too_and_are_given_back() -> None:
    async with world(**QUIET) as w:
        stalled = await w.stalled()
        await cease(w)
        await send(w, 3, size=1000)
        assert w.hub.backlog_bytes > 3000
        stalled.resume()
        await w.settle()
        assert w.hub.backlog_bytes == 0
        assert stalled.types == ["log_degraded", "t", "t", "t"]


async def test_a_reader_that_falls_back_to_the_log_misses_what_had_no_room_and_nothing_else() -> None:
    async with world(**QUIET) as w:
        slow = await w.stalled(max_queued=16, overflow=Overflow.CATCHUP)
        w.put(4)
        await w.settle()
        await cease(w)
        await send(w, 13)
        slow.resume()
        w.store.refuse(None)
        w.put(3)
        await arrived(slow, 7)
        assert slow.ids == [1, 2, 3, 4, 5, 6, 7]
        assert slow.types.count("t") == 7 + 12
        assert not slow.over


async def test_a_terminal_one_is_seen_and_closes_nothing() -> None:
    async with world(**QUIET) as w:
        client = await w.connect()
        await cease(w)
        assert await w.hub.publish_degraded(S1, [event(1, type="session_closed")])
        await send(w)
        assert client.types == ["log_degraded", "session_closed", "t"]
        assert not client.over


async def test_what_is_no_event_is_skipped_and_told_to_the_observer() -> None:
    async with world() as w:
        client = await w.connect()
        w.hub.degraded_event(S1, b"{")
        w.hub.degraded_event("nobody", b"{")
        await w.settle()
        assert (client.types, w.watcher.skips) == ([], [(0, "not_json")])


async def test_a_flood_within_a_turn_is_written_by_the_turn_s_bound() -> None:
    async with world(turn_bytes=10_000, **QUIET) as w:
        client = await w.connect()
        await cease(w)
        await w.settle()
        for number in range(100):
            w.hub.degraded_event(S1, event(number, 1000).payload)
        assert client.types.count("t") >= 80
        await w.settle()
        assert client.types.count("t") == 100
        assert max(map(len, client.body.split(b"\n\n"))) < 2000


async def test_a_reader_that_is_read_anew_while_the_log_returns_hears_the_end() -> None:
    async with world(breaker_failures=1, breaker_pause=1.0) as w:
        client = await w.connect()
        w.put(2)
        await cease(w)
        await w.settle()

        async def away(method: str, session: str) -> None:
            if method in ("page", "bounds", "contains"):
                raise NO

        w.log.before = away
        w.store.rewind(1)
        await restore(w)
        assert client.types == ["t", "t", "log_degraded"]
        w.log.before = None
        await eventually(lambda: "log_restored" in client.types, 5.0)
        assert client.types.count("log_degraded") == client.types.count("log_restored") == 1


async def test_a_turn_without_stored_events_says_nothing_about_the_tail() -> None:
    async with world(**QUIET) as w:
        await w.connect()
        w.put()
        await w.settle()
        [channel] = w.hub.channels
        confirmed, active = channel.feed.confirmed_at, channel.active_at
        await cease(w)
        await send(w, 3)
        assert channel.active_at == active
        assert channel.feed.confirmed_at == confirmed


async def test_the_count_of_a_stream_s_events_holds_what_it_was_shown() -> None:
    async with world(**QUIET) as w:
        client = await w.connect()
        w.put(2)
        await w.settle()
        await cease(w)
        await send(w, 3)
        client.leave()
        assert w.watcher.delivered_events == [5]
