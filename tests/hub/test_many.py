"""One stream of many sessions: every event once, in the order of its shard, resumed by one cursor."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ringmere.core.backlog import Overflow
from ringmere.core.errors import (
    LogUnavailable,
    MatchTooBroad,
    StreamMatches,
    StreamNotFound,
    SubscriberLimitExceeded,
    TooManySessions,
)
from ringmere.hub.membership import Change
from ringmere.hub.observer import Observer
from ringmere.hub.options import ManyOptions
from support.hub import Client, event, world
from support.many import connect, cursor, events, seen, story, stream_of
from support.virtual import eventually


async def test_live_events_of_all_sessions_come_in_the_order_of_their_shard() -> None:
    async with world() as w:
        client = await connect(w, "a", "b", "c")
        expected = []
        for turn in range(5):
            for name in ("b", "a", "x", "c"):
                (seq,) = w.put(session=name)
                if name != "x":
                    expected.append((name, seq))
            if turn % 2:
                await w.settle(0.01)
        await w.settle()
        assert events(client) == expected
        assert cursor(client) == str(expected[-1][1])


async def test_with_one_shard_the_cursor_is_the_events_own_id() -> None:
    async with world() as w:
        client = await connect(w, "a", "b")
        w.put(3, "a")
        w.put(2, "b")
        await w.settle()
        assert all(row.cursor == str(row.id) for row in seen(client))


async def test_a_cursor_brings_everything_behind_it_of_all_sessions_in_order() -> None:
    async with world() as w:
        for _ in range(3):
            w.put(2, "a")
            w.put(1, "b")
            w.put(1, "x")
        client = await connect(w, "a", "b", cursor="4")
        await w.settle()
        w.put(1, "b")
        await w.settle()
        assert story(client) == [
            ("a", 5), ("a", 6), ("b", 7), ("a", 9), ("a", 10), ("b", 11), "replay_complete", ("b", 13),
        ]  # fmt: skip
        (complete,) = [row.data for row in seen(client) if row.type == "replay_complete"]
        assert complete == {"replayedCount": 6, "lastReplayedEventId": 11}


async def test_from_the_start_all_rings_come_in_one_order() -> None:
    async with world() as w:
        for _ in range(4):
            w.put(1, "a")
            w.put(1, "b")
        client = await connect(w, "a", "b", from_start=True)
        await w.settle()
        assert events(client) == [("a" if seq % 2 else "b", seq) for seq in range(1, 9)]
        assert [row.type for row in seen(client) if row.id is None] == []


async def test_several_shards_have_a_point_each_in_the_cursor_and_all_are_resumed() -> None:
    async with world(shards=3) as w:
        names = [f"s{n}" for n in range(9)]
        client = await connect(w, *names)
        first = await connect(w, *names)
        for _ in range(4):
            for name in names:
                w.put(1, name)
        await w.settle()
        assert sorted(events(client)) == sorted(events(first))
        rows = seen(client)
        half = rows[len(rows) // 2]
        assert half.cursor.count(":") == 3
        again = await connect(w, *names, cursor=half.cursor)
        await w.settle()
        assert sorted(events(again)) == sorted(events(client)[len(rows) // 2 + 1 :])
        for shard in range(3):
            mine = [row for row in events(again) if w.log.shard_of(row[0]) == shard]
            assert mine == sorted(mine, key=lambda row: row[1])


async def test_a_session_that_lost_something_has_a_verdict_of_its_own() -> None:
    async with world(ring_size=3) as w:
        w.put(2, "a")
        w.put(2, "b")
        w.put(9, "b")
        w.put(1, "a")
        client = await connect(w, "a", "b", cursor="2")
        await w.settle()
        rows = seen(client)
        verdicts = [row for row in rows if row.type == "state_resync_required"]
        assert [row.data["sessionId"] for row in verdicts] == ["b"]
        assert verdicts[0].data["reason"] == "ring_evicted"
        assert verdicts[0].data["earliestAvailableId"] == 11
        assert story(client) == [
            "state_resync_required", ("b", 11), ("b", 12), ("b", 13), ("a", 14), "replay_complete",
        ]  # fmt: skip


async def test_a_quiet_session_whose_events_are_all_older_is_complete() -> None:
    async with world(ring_size=3) as w:
        w.put(9, "quiet")
        w.put(2, "empty")
        w.put(9, "busy")
        client = await connect(w, "quiet", "never", "busy", cursor="18")
        await w.settle()
        assert story(client) == [("busy", 19), ("busy", 20), "replay_complete"]


async def test_an_unknown_cursor_resets_every_session_of_its_shard() -> None:
    async with world() as w:
        w.put(2, "a")
        w.put(2, "b")
        client = await connect(w, "a", "b", cursor="99")
        await w.settle(3)
        rows = seen(client)
        assert sorted(row.data["sessionId"] for row in rows if row.type == "state_resync_required") == ["a", "b"]
        assert events(client) == [("a", 1), ("a", 2), ("b", 3), ("b", 4)]


async def test_the_stream_ends_when_all_named_sessions_are_closed() -> None:
    async with world() as w:
        client = await connect(w, "a", "b")
        w.put(1, "a", type="session_closed")
        await w.settle()
        assert not client.finished
        w.put(1, "b", type="session_closed")
        await w.settle()
        assert client.finished
        assert events(client) == [("a", 1), ("b", 2)]
        over = await w.hub.many.subscribe(["a", "b"], ManyOptions(points=(2,)))
        assert over.ended
        late = await connect(w, "a", "b")
        await w.settle()
        assert events(late) == [("a", 1), ("b", 2)]
        assert late.finished


async def test_what_a_hole_of_one_session_keeps_back_follows_it_in_order() -> None:
    async with world() as w:
        client = await connect(w, "a", "b")
        await w.settle()
        w.put(1, "a")
        await w.settle(0.01)
        w.log.drop_live(1)
        w.put(1, "a")
        w.put(1, "a")
        w.put(2, "b")
        await w.settle(1)
        assert events(client) == [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5)]


async def test_a_lost_last_message_comes_late_and_does_not_take_the_cursor_back() -> None:
    async with world() as w:
        client = await connect(w, "a", "b")
        await w.settle()
        w.log.drop_live(1)
        w.put(1, "a")
        w.put(1, "b")
        await w.settle(5)
        assert [(row.session, row.id, row.cursor) for row in seen(client)] == [("b", 2, "2"), ("a", 1, "2")]


async def test_a_slow_reader_of_many_is_warned_and_put_out_and_resumes_where_it_was() -> None:
    async with world(max_queued=16) as w:
        client = await connect(w, "a", "b")
        await w.settle()
        client.pause()
        for _ in range(10):
            w.put(1, "a")
            w.put(1, "b")
        await w.settle()
        client.resume()
        await w.settle()
        rows = seen(client)
        assert [row.type for row in rows if row.id is None] == ["slow_client_warning", "client_evicted"]
        assert rows[-1].data["droppedAfter"] == 16
        assert client.finished
        again = await connect(w, "a", "b", cursor=cursor(client))
        await w.settle()
        assert [id for _, id in events(client) + events(again)] == list(range(1, 21))


async def test_a_reader_that_would_rather_read_on_falls_back_and_misses_nothing() -> None:
    async with world(max_queued=16, shards=2) as w:
        names = [f"s{n}" for n in range(6)]
        client = await connect(w, *names, overflow=Overflow.CATCHUP)
        await w.settle()
        client.pause()
        for _ in range(20):
            for name in names:
                w.put(1, name)
        await w.settle()
        client.resume()
        await w.settle(1)
        for name in names:
            w.put(1, name)
        await w.settle(1)
        found = events(client)
        assert len(found) == len(set(found)) == 21 * 6
        for shard in (0, 1):
            mine = [id for name, id in found if w.log.shard_of(name) == shard]
            assert mine == sorted(mine)


async def test_a_full_session_refuses_the_whole_stream_and_leaves_no_slot_behind() -> None:
    async with world(max_subscribers=1) as w:
        await w.connect(session="a")
        with pytest.raises(SubscriberLimitExceeded):
            await connect(w, "b", "a")
        assert w.hub.slots == 1
        await connect(w, "b")
        assert w.hub.slots == 2


async def test_without_the_log_nobody_is_let_in_and_no_slot_is_kept() -> None:
    async with world() as w:
        w.log.disconnect()
        with pytest.raises(LogUnavailable):
            await connect(w, "a", "b")
        assert w.hub.slots == 0


async def test_a_lost_connection_to_the_log_loses_nothing_and_keeps_the_order() -> None:
    async with world() as w:
        client = await connect(w, "a", "b")
        await w.settle()
        w.log.disconnect()
        w.put(1, "a")
        w.put(1, "b")
        w.log.reconnect()
        w.put(1, "b")
        await w.settle(2)
        assert events(client) == [("a", 1), ("b", 2), ("b", 3)]


async def test_a_new_epoch_goes_on_for_those_whose_cursor_is_known() -> None:
    async with world() as w:
        client = await connect(w, "a", "b")
        w.put(2, "a")
        w.put(2, "b")
        await w.settle()
        w.store.recreate()
        w.put(1, "b")
        w.put(1, "a")
        await eventually(lambda: len(events(client)) == 6)
        rows = seen(client)
        assert sorted(row.data["sessionId"] for row in rows if row.type == "state_resync_required") == ["a", "b"]


@pytest.mark.parametrize("twice", [False, True])
async def test_a_session_added_ahead_of_the_cursor_misses_nothing_when_the_log_is_taken_back(twice: bool) -> None:
    async with world() as w:
        client = await connect(w, "a")
        w.put(1, "a")
        w.put(5, "b")
        await w.settle()
        await w.hub.many.membership.change(stream_of(client).stream_id, Change(add=("b",)))
        reading = asyncio.Event()

        async def wait(method: str, _: str) -> None:
            if method == "page":
                await reading.wait()

        w.log.before = wait
        w.store.rewind(3)
        table = w.log.table(0)
        expected = [(name, table.id_of(seq)) for name in ("b", "a") for seq in w.put(3, name)]
        await w.settle()
        if twice:
            w.put(1, "x")
            w.store.rewind(9)
            await w.settle()
        reading.set()
        await eventually(lambda: events(client)[-6:] == expected)
        assert events(client)[:-6] == [("a", 1), ("b", 2), ("b", 3)]
        assert "state_resync_required" not in story(client)


async def test_one_stream_counts_as_one_reader_and_gives_all_places_back() -> None:
    async with world() as w:
        client = await connect(w, "a", "b")
        assert w.hub.slots == 1
        assert w.hub.stats().subscribers["sse"] == 1
        assert {channel.slots for channel in w.hub.channels} == {1}
        client.leave()
        await w.settle(10)
        assert w.hub.slots == 0
        assert w.hub.channels == []
        assert w.hub.many.streams == {}


async def test_the_end_of_a_stream_is_told_with_the_sessions_that_its_beginning_was_told_with() -> None:
    class Told(Observer):
        opened: str
        closed: str

        def stream_opened(self, transport: str, session: str, *_: Any) -> None:
            self.opened = session

        def stream_closed(self, transport: str, session: str, *_: Any) -> None:
            self.closed = session

    async with world() as w:
        told = w.hub.observer = Told()
        for names, label in ((("a",), "a"), (("a", "b", "c"), "a and 2 more")):
            client = await connect(w, *names)
            client.leave()
            assert (told.opened, told.closed) == (label, label)
        client = await connect(w, match="run-")
        client.leave()
        assert told.closed == "run-*"


async def test_a_session_is_dropped_at_once() -> None:
    async with world() as w:
        client = await connect(w, "a", "b")
        await w.settle()
        w.put(1, "a")
        await w.settle()
        stream_of(client).leave("a")
        w.put(1, "a")
        w.put(1, "b")
        await w.settle()
        assert events(client) == [("a", 1), ("b", 3)]


async def test_what_matches_is_followed_and_what_begins_later_joins_in_order() -> None:
    async with world() as w:
        w.put(2, "run-1")
        w.put(1, "other")
        client = await connect(w, match="run-")
        await w.settle()
        w.put(1, "run-1")
        w.put(1, "run-2")
        w.put(1, "run-1")
        w.put(1, "other")
        w.put(2, "run-2")
        await w.settle(1)
        assert events(client) == [("run-1", 4), ("run-2", 5), ("run-1", 6), ("run-2", 8), ("run-2", 9)]
        assert cursor(client) == "9"


async def test_a_new_session_whose_first_message_nobody_told_of_is_found_by_looking() -> None:
    async with world() as w:
        client = await connect(w, match="run-")
        await w.settle()
        w.log.lose_news = True
        w.put(1, "run-1")
        await w.settle(1)
        assert events(client) == []
        await w.settle(12)
        assert events(client) == [("run-1", 1)]


async def test_a_new_session_that_began_while_the_log_was_away_is_found_on_its_return() -> None:
    async with world() as w:
        client = await connect(w, match="run-")
        w.put(1, "run-1")
        await w.settle()
        w.log.disconnect()
        w.put(1, "run-2")
        w.put(1, "run-1")
        w.log.reconnect()
        await w.settle(2)
        assert sorted(events(client)) == [("run-1", 1), ("run-1", 3), ("run-2", 2)]


async def test_a_closed_session_that_matches_is_left_and_found_again_when_it_goes_on() -> None:
    async with world(channel_linger=1.0) as w:
        client = await connect(w, match="run-")
        await w.settle()
        w.put(1, "run-1")
        w.put(1, "run-1", type="session_closed")
        await w.settle(5)
        assert stream_of(client).attachments == {}
        assert not client.finished
        w.put(2, "run-1")
        await w.settle(1)
        assert events(client) == [("run-1", seq) for seq in (1, 2, 3, 4)]


async def test_a_prefix_that_too_many_sessions_have_is_refused_and_one_that_grows_too_broad_ends() -> None:
    async with world(max_sessions_per_stream=2) as w:
        w.put(1, "run-1")
        w.put(1, "run-2")
        client = await connect(w, match="run-")
        await w.settle()
        w.put(1, "run-3")
        await w.settle(1)
        assert client.finished
        assert seen(client)[-1].data["errorKind"] == "match_too_broad"
        with pytest.raises(MatchTooBroad):
            await connect(w, match="run-")
        with pytest.raises(TooManySessions):
            await connect(w, "a", "b", "c")
        assert w.hub.slots == 0


async def test_a_matching_stream_is_resumed_with_sessions_that_began_meanwhile() -> None:
    async with world(shards=2) as w:
        client = await connect(w, match="run-")
        await w.settle()
        for number in range(6):
            w.put(1, f"run-{number}")
        await w.settle(1)
        half = seen(client)[2].cursor
        for number in range(9):
            w.put(1, f"run-{number}")
        again = await connect(w, match="run-", cursor=half)
        await w.settle(1)
        assert sorted(events(again)) == sorted(events(client)[3:])


async def test_sessions_are_added_and_dropped_from_any_instance() -> None:
    async with world() as w:
        hub, _ = await w.add()
        client = await connect(w, "a", "b")
        w.put(2, "c")
        await w.settle()
        stream_id = stream_of(client).stream_id
        changed = await hub.many.membership.change(stream_id, Change(add=("c",), drop=("a",)))
        assert changed.sessions == ("b", "c")
        w.put(1, "a")
        w.put(1, "b")
        w.put(1, "c")
        await w.settle()
        assert events(client) == [("b", 4), ("c", 5)]
        with pytest.raises(StreamNotFound):
            await hub.many.membership.change("nobody", Change(add=("c",)))
        client.leave()
        await w.settle()
        with pytest.raises(StreamNotFound):
            await hub.many.membership.change(stream_id, Change(add=("c",)))


async def test_a_session_added_from_its_start_replays_beside_the_others_and_says_when_it_is_complete() -> None:
    async with world() as w:
        client = await connect(w, "a")
        w.put(3, "b")
        w.put(1, "a")
        await w.settle()
        change = Change(add=("b",), from_start=True)
        changed = await w.hub.many.membership.change(stream_of(client).stream_id, change)
        assert changed.cursor == "4"
        await w.settle(1)
        w.put(1, "b")
        w.put(1, "a")
        await w.settle()
        assert story(client) == [
            ("a", 4), ("b", 1), ("b", 2), ("b", 3), "replay_complete", ("b", 5), ("a", 6),
        ]  # fmt: skip
        assert [row.cursor for row in seen(client)] == ["4", "4", "4", "4", "4", "5", "6"]
        (complete,) = [row.data for row in seen(client) if row.type == "replay_complete"]
        assert complete == {"sessionId": "b", "replayedCount": 3, "lastReplayedEventId": 3}


async def test_a_change_that_cannot_be_made_changes_nothing() -> None:
    async with world(max_sessions_per_stream=2, max_subscribers=1) as w:
        hub, _ = await w.add()
        await w.connect(session="full")
        client = await connect(w, "a", "b")
        stream_id = stream_of(client).stream_id
        for one in (w.hub, hub):
            with pytest.raises(TooManySessions):
                await one.many.membership.change(stream_id, Change(add=("c",)))
            with pytest.raises(SubscriberLimitExceeded):
                await one.many.membership.change(stream_id, Change(add=("full",), drop=("a",)))
        assert set(stream_of(client).attachments) == {"a", "b"}
        matching = await connect(w, match="run-")
        with pytest.raises(StreamMatches):
            await hub.many.membership.change(stream_of(matching).stream_id, Change(add=("c",)))


async def test_a_degradation_is_told_once_for_each_shard_that_the_stream_reads() -> None:
    async with world(breaker_failures=1, breaker_pause=1.0, shards=2) as w:
        names = [f"s{number}" for number in range(6)]
        client = await connect(w, *names)
        await w.settle()
        w.store.refuse(LogUnavailable("full"))
        for name in names:
            with pytest.raises(LogUnavailable):
                await w.hub.publish(name, event(1))
        await w.settle()
        assert story(client) == ["log_degraded", "log_degraded"]
        assert await w.hub.publish_degraded(names[0], [event(2)])
        await w.settle()
        late = await connect(w, *names)
        await w.settle()
        assert story(late) == ["log_degraded", "log_degraded"]
        w.store.refuse(None)
        await w.settle(3)
        assert story(client) == ["log_degraded"] * 2 + ["t"] + ["log_restored"] * 2
        (unstored,) = [row for row in seen(client) if row.type == "t"]
        assert (unstored.session, unstored.id, unstored.cursor) == (names[0], None, "")


async def test_the_memory_of_a_catch_up_does_not_grow_with_the_number_of_sessions() -> None:
    async with world(page_bytes=65_536, window_bytes=2000) as w:
        names = [f"s{number}" for number in range(40)]
        for _ in range(6):
            for name in names:
                w.put(1, name, size=5000)
        client = Client(high_water=20_000)
        stream = asyncio.ensure_future(connect(w, *names, from_start=True, client=client))
        most = 0
        await stream
        while len(events(client)) < 240:
            whole = stream_of(client)._course.whole
            if whole is not None:
                most = max(most, sum(len(i.frame.body) for s in whole.sources.values() for i in s.queue))
            client.read()
            await asyncio.sleep(0.001)
        assert events(client) == sorted(events(client), key=lambda row: row[1])
        assert 0 < most <= 65_536 + 8 * (16_384 + 6000)


async def test_a_drain_says_goodbye_to_a_stream_of_many_too() -> None:
    async with world() as w:
        client = await connect(w, "a", "b")
        await w.settle()
        await w.hub.drain()
        assert story(client) == ["server_draining"]
        assert client.finished
