"""Stored states and streams: what follows a verdict, what a stream begins with, where it ends (contract 4.7, 10)."""

from __future__ import annotations

import asyncio
import json

import pytest

from ringmere.core.errors import LogUnavailable, NewerSnapshot, SnapshotNotFound, UnknownEventId
from ringmere.core.reasons import CloseReason
from ringmere.core.snapshot import SnapshotDraft
from ringmere.hub.options import Resync, SubscribeOptions
from support.hub import S1, Client, World, arrived, over, world

URL = "/session/s1/snapshot"


async def keep(made: World, public_id: int, *, final: bool = False, session: str = S1) -> None:
    """Store a state that says up to which event it goes."""
    state = json.dumps({"upto": public_id}).encode()
    await made.hub.snapshots.put(session, SnapshotDraft(public_id, state, final))


def verdict(client: Client) -> dict[str, object]:
    (found,) = client.of("state_resync_required")
    return dict(found)


# What a verdict says of it.


async def test_a_verdict_names_the_snapshot_when_there_is_one() -> None:
    async with world(ring_size=3) as made:
        made.put(9)
        client = await made.connect(2)
        await arrived(client, 3)
        assert "snapshot" not in verdict(client)
        await keep(made, 7)
        client = await made.connect(2)
        await arrived(client, 3)
        assert verdict(client) == {
            "reason": "ring_evicted",
            "lastDeliveredId": 2,
            "earliestAvailableId": 7,
            "snapshot": URL,
        }
        assert client.ids == [7, 8, 9]
        # What the client does with it: load, and resume behind it.
        client = await made.connect((await made.hub.snapshots.get(S1)).last_event_id)
        await arrived(client, 2)
        assert client.story == [8, 9, "replay_complete"]


async def test_who_comes_back_with_the_snapshots_own_id_is_not_sent_there_again() -> None:
    async with world(ring_size=3) as made:
        made.put(9)
        await keep(made, 4)
        client = await made.connect(4)
        await arrived(client, 3)
        assert verdict(client) == {
            "reason": "ring_evicted",
            "detail": "snapshot_stale",
            "lastDeliveredId": 4,
            "earliestAvailableId": 7,
        }
        assert client.story == ["state_resync_required", 7, 8, 9, "replay_complete"]


async def test_an_unknown_cursor_is_offered_the_snapshot_of_the_log_as_it_is_now() -> None:
    async with world() as made:
        made.put(5)
        await keep(made, 3)
        client = await made.connect(5, epoch_birth="another")
        await arrived(client, 5)
        assert verdict(client)["snapshot"] == URL
        assert verdict(client)["detail"] == "epoch_mismatch"


@pytest.mark.parametrize("wish", list(Resync))
async def test_a_snapshot_that_cannot_be_read_costs_a_verdict_nothing_but_its_name(wish: Resync) -> None:
    async with world(ring_size=3) as made:
        made.put(9)
        await keep(made, 7)

        async def fail(method: str, session: str) -> None:
            if method == "snapshot":
                raise LogUnavailable("no leader")

        made.log.before = fail
        client = await made.connect(2, resync=wish)
        await made.settle(1.0)
        assert "snapshot" not in verdict(client)
        assert client.ids == ([] if wish is Resync.LIVE else [7, 8, 9])


async def test_a_snapshot_that_is_slow_to_read_holds_a_verdict_up_for_half_a_second_at_most() -> None:
    async with world(ring_size=3) as made:
        made.put(9)
        await keep(made, 7)
        asked = 0

        async def hang(method: str, session: str) -> None:
            nonlocal asked
            if method == "snapshot":
                asked += 1
                await asyncio.sleep(60)

        made.log.before = hang
        began = asyncio.get_running_loop().time()
        client = await made.connect(2)
        await arrived(client, 3)
        assert asyncio.get_running_loop().time() - began < 0.6
        assert "snapshot" not in verdict(client)
        assert asked == 1


async def test_a_storm_of_readers_reads_the_snapshot_a_few_times_only() -> None:
    async with world(ring_size=3) as made:
        made.put(9)
        await keep(made, 7)
        before = made.log.calls["snapshot"]
        clients = await asyncio.gather(*(made.connect(2, resync=Resync.SNAPSHOT) for _ in range(60)))
        for client in clients:
            await arrived(client, 2)
            assert client.story == ["state_resync_required", "session_snapshot", 8, 9, "replay_complete"]
        assert made.log.calls["snapshot"] - before <= 4


async def test_who_asks_after_a_put_gets_what_was_put_also_while_an_older_read_is_under_way() -> None:
    async with world() as made:
        made.put(5)
        await keep(made, 2)
        held = asyncio.Event()

        async def hold(method: str, session: str) -> None:
            if method == "snapshot" and not held.is_set():
                await held.wait()

        made.log.before = hold
        first = asyncio.create_task(made.hub.snapshots.read(S1))
        await made.settle()
        other, _ = await made.add()
        await other.snapshots.put(S1, SnapshotDraft(4, b"{}"))
        second = asyncio.create_task(made.hub.snapshots.read(S1))
        await made.settle()
        held.set()
        assert await first is not None
        found = await second
        assert found is not None
        assert found.id == 4


# What follows a verdict.


async def test_with_resync_snapshot_the_state_follows_the_verdict_and_then_what_came_behind_it() -> None:
    async with world(ring_size=5) as made:
        made.put(12)
        await keep(made, 9)
        client = await made.connect(2, resync=Resync.SNAPSHOT)
        await arrived(client, 3)
        assert client.story == ["state_resync_required", "session_snapshot", 10, 11, 12, "replay_complete"]
        assert client.of("session_snapshot") == [{"lastEventId": 9, "state": {"upto": 9}}]
        assert verdict(client) == {
            "reason": "ring_evicted",
            "lastDeliveredId": 2,
            "earliestAvailableId": 10,
            "snapshot": URL,
        }
        assert client.of("replay_complete") == [{"replayedCount": 3, "lastReplayedEventId": 12}]
        made.put(2)
        await arrived(client, 5)
        assert client.ids == [10, 11, 12, 13, 14]


async def test_a_state_at_the_tail_is_followed_by_what_comes_live() -> None:
    async with world(ring_size=3) as made:
        made.put(9)
        await keep(made, 9)
        client = await made.connect(2, resync=Resync.SNAPSHOT)
        await made.settle()
        assert client.story == ["state_resync_required", "session_snapshot", "replay_complete"]
        assert verdict(client)["earliestAvailableId"] == 10
        made.put(1)
        await arrived(client, 1)
        assert client.ids == [10]


async def test_a_cursor_without_a_loss_gets_no_state() -> None:
    async with world() as made:
        made.put(9)
        await keep(made, 7)
        for options in ({"resync": Resync.SNAPSHOT}, {"snapshot": True}):
            client = await made.connect(5, **options)
            await arrived(client, 4)
            assert client.story == [6, 7, 8, 9, "replay_complete"]


async def test_a_state_whose_own_successors_are_gone_is_sent_and_the_verdict_says_so() -> None:
    async with world(ring_size=3) as made:
        made.put(12)
        await keep(made, 5)
        client = await made.connect(2, resync=Resync.SNAPSHOT)
        await arrived(client, 3)
        assert client.story == ["state_resync_required", "session_snapshot", 10, 11, 12, "replay_complete"]
        assert verdict(client) == {
            "reason": "ring_evicted",
            "detail": "snapshot_stale",
            "lastDeliveredId": 2,
            "earliestAvailableId": 10,
        }


@pytest.mark.parametrize("cursor", [5, 6])
async def test_a_state_that_is_no_newer_than_the_cursor_takes_nothing_away(cursor: int) -> None:
    async with world(ring_size=3) as made:
        made.put(12)
        await keep(made, 5)
        client = await made.connect(cursor, resync=Resync.SNAPSHOT)
        await arrived(client, 3)
        assert client.story == ["state_resync_required", 10, 11, 12, "replay_complete"]
        assert verdict(client)["detail"] == "snapshot_stale"


async def test_without_a_snapshot_resync_snapshot_is_a_replay() -> None:
    async with world(ring_size=3) as made:
        made.put(9)
        client = await made.connect(2, resync=Resync.SNAPSHOT)
        await arrived(client, 3)
        assert client.story == ["state_resync_required", 7, 8, 9, "replay_complete"]


async def test_with_resync_live_the_rest_of_the_ring_is_skipped() -> None:
    async with world(ring_size=3) as made:
        made.put(9)
        client = await made.connect(2, resync=Resync.LIVE)
        await made.settle()
        assert client.story == ["state_resync_required", "replay_complete"]
        assert verdict(client)["earliestAvailableId"] == 10
        assert client.of("replay_complete") == [{"replayedCount": 0}]
        made.put(2)
        await arrived(client, 2)
        assert client.ids == [10, 11]


async def test_with_resync_live_a_cursor_without_a_loss_gets_everything() -> None:
    async with world() as made:
        made.put(5)
        client = await made.connect(2, resync=Resync.LIVE)
        await arrived(client, 3)
        assert client.story == [3, 4, 5, "replay_complete"]


async def test_with_resync_live_a_closed_session_still_says_its_last_word() -> None:
    async with world(ring_size=3) as made:
        made.put(8)
        made.put(1, type="session_closed")
        client = await made.connect(2, resync=Resync.LIVE)
        assert await over(client) is CloseReason.SESSION_CLOSED
        assert client.ids == [9]


async def test_a_live_reader_that_loses_events_gets_the_state_too() -> None:
    async with world(ring_size=3) as made:
        made.put(1)
        default, wishing = await made.connect(1), await made.connect(1, resync=Resync.SNAPSHOT)
        await made.settle()
        made.log.disconnect()
        made.put(9)
        other, _ = await made.add()
        await other.snapshots.put(S1, SnapshotDraft(9, b'{"upto":9}'))
        made.log.reconnect()
        await arrived(wishing, 1)
        await arrived(default, 3)
        assert wishing.story == ["replay_complete", "state_resync_required", "session_snapshot", 10]
        assert default.story == ["replay_complete", "state_resync_required", 8, 9, 10]
        for client in (default, wishing):
            assert verdict(client)["lastDeliveredId"] == 1
            assert verdict(client)["snapshot"] == URL


async def test_a_log_made_anew_is_told_and_followed_by_its_own_state_only() -> None:
    async with world() as made:
        made.put(5)
        await keep(made, 5)
        client = await made.connect(5, resync=Resync.SNAPSHOT)
        await made.settle()
        made.store.recreate()
        await made.settle(2.0)
        assert client.story == ["replay_complete", "state_resync_required"]
        assert "snapshot" not in verdict(client)
        with pytest.raises(SnapshotNotFound):
            await made.hub.snapshots.get(S1)


# What a stream begins with.


async def test_with_snapshot_1_a_stream_begins_with_the_state_and_goes_on_behind_it() -> None:
    async with world() as made:
        made.put(5)
        await keep(made, 3)
        client = await made.connect(snapshot=True)
        await arrived(client, 2)
        assert client.story == ["session_snapshot", 4, 5, "replay_complete"]
        assert client.reader is not None
        assert client.reader.start_id is None
        made.put(1)
        await arrived(client, 3)
        assert client.ids == [4, 5, 6]


@pytest.mark.parametrize("from_start", [False, True])
async def test_without_a_stored_state_snapshot_1_changes_nothing(from_start: bool) -> None:
    async with world() as made:
        made.put(3)
        client = await made.connect(snapshot=True, from_start=from_start)
        await made.settle()
        made.put(1)
        expected = [1, 2, 3, 4] if from_start else [4]
        await arrived(client, len(expected))
        assert client.ids == expected


async def test_what_a_state_to_begin_with_has_lost_is_told_right_behind_it() -> None:
    async with world(ring_size=3) as made:
        made.put(9)
        await keep(made, 2)
        client = await made.connect(snapshot=True)
        await arrived(client, 3)
        assert client.story == ["session_snapshot", "state_resync_required", 7, 8, 9, "replay_complete"]
        assert verdict(client) == {
            "reason": "ring_evicted",
            "detail": "snapshot_stale",
            "lastDeliveredId": 2,
            "earliestAvailableId": 7,
        }


async def test_the_state_before_the_first_event_is_followed_by_all_of_them() -> None:
    async with world() as made:
        await keep(made, 0)
        client = await made.connect(snapshot=True)
        await made.settle()
        made.put(2)
        await arrived(client, 2)
        assert client.story == ["session_snapshot", "replay_complete", 1, 2]


async def test_a_state_that_was_asked_for_and_cannot_be_read_is_a_reason_to_come_back() -> None:
    async with world() as made:
        made.put(5)

        async def fail(method: str, session: str) -> None:
            if method == "snapshot":
                raise LogUnavailable("no leader")

        made.log.before = fail
        with pytest.raises(LogUnavailable):
            await made.connect(snapshot=True)


async def test_a_closed_session_gives_its_state_and_its_end_an_id_to_come_back_with() -> None:
    async with world() as made:
        made.put(2)
        made.put(1, type="session_closed")
        await keep(made, 3)
        client = await made.connect(snapshot=True)
        assert await over(client) is CloseReason.SESSION_CLOSED
        assert client.story == ["session_snapshot", "replay_complete"]
        assert client.last_id == 3
        again = await made.hub.subscribe(S1, SubscribeOptions(cursor=3))
        assert again.ended


# A session of which a final state is all that is left (contract 3.9).


@pytest.mark.parametrize("head_ttl", [7 * 86400.0, 0.0])
@pytest.mark.parametrize("closed", [True, False])
async def test_an_expired_session_with_a_final_state_gives_it_and_ends_and_then_is_204(
    head_ttl: float, closed: bool
) -> None:
    async with world(log_ttl=60.0, head_ttl=head_ttl) as made:
        made.put(4)
        made.put(1, type="session_closed" if closed else "t")
        await keep(made, 5, final=True)
        await made.settle(61.0)
        for options in ({}, {"from_start": True}, {"snapshot": True}):
            client = await made.connect(**options)
            assert await over(client) is CloseReason.SESSION_CLOSED
            assert client.of("session_snapshot") == [{"lastEventId": 5, "state": {"upto": 5}, "final": True}]
            assert client.ids == []
            assert client.last_id == 5
        for cursor in (5, 6):
            made.put(1, session="other")
            assert (await made.hub.subscribe(S1, SubscribeOptions(cursor=cursor))).ended


async def test_who_had_less_than_a_final_state_is_told_and_given_it_and_ends() -> None:
    async with world(log_ttl=60.0) as made:
        made.put(4)
        made.put(1, type="session_closed")
        await keep(made, 5, final=True)
        await made.settle(61.0)
        client = await made.connect(2)
        assert await over(client) is CloseReason.SESSION_CLOSED
        assert client.story == ["state_resync_required", "session_snapshot", "replay_complete"]
        assert verdict(client)["reason"] == "ring_evicted"
        assert client.last_id == 5


async def test_what_came_behind_a_final_state_makes_it_an_ordinary_one() -> None:
    async with world(log_ttl=60.0) as made:
        made.put(5)
        await keep(made, 5, final=True)
        made.put(1)
        made.put(1, type="session_closed")
        await made.settle(61.0)
        client = await made.connect()
        assert await over(client) is CloseReason.SESSION_CLOSED
        assert client.story == [7]
        client = await made.connect(5)
        assert await over(client) is CloseReason.SESSION_CLOSED
        assert client.story == ["state_resync_required", 7, "replay_complete"]


async def test_a_final_state_does_not_end_a_session_whose_log_is_there() -> None:
    async with world() as made:
        made.put(5)
        await keep(made, 5, final=True)
        client = await made.connect(5)
        made.put(1)
        await arrived(client, 1)
        assert not client.over


async def test_a_session_that_goes_on_after_its_final_state_is_followed_again() -> None:
    async with world(log_ttl=60.0) as made:
        made.put(5)
        await keep(made, 5, final=True)
        await made.settle(61.0)
        made.put(1)
        client = await made.connect(snapshot=True)
        await arrived(client, 1)
        assert client.story == ["session_snapshot", 6, "replay_complete"]
        assert not client.over


async def test_a_session_that_has_only_a_state_exists() -> None:
    async with world(log_ttl=60.0, head_ttl=0.0, require_session=True) as made:
        made.put(5)
        await keep(made, 5, final=True)
        await made.settle(61.0)
        client = await made.connect()
        await over(client)
        assert client.types == ["session_snapshot"]
        shown = await made.hub.session(S1)
        assert shown["snapshot"]["lastEventId"] == 5
        assert shown["events"] == 0


# Writing.


async def test_a_writer_of_another_log_is_refused() -> None:
    async with world() as made:
        made.put(5)
        birth = made.log.epochs(S1).birth
        with pytest.raises(UnknownEventId):
            await made.hub.snapshots.put(S1, SnapshotDraft(5, b"1"), "another")
        assert await made.hub.snapshots.put(S1, SnapshotDraft(5, b"1"), birth) is False
        with pytest.raises(NewerSnapshot):
            await made.hub.snapshots.put(S1, SnapshotDraft(4, b"1"), birth)
        assert made.watcher.snapshots_written == ["unknown_event_id", "stored", "newer_snapshot"]
        await made.hub.snapshots.drop(S1)
        assert made.watcher.snapshots_written[-1] == "removed"


async def test_a_purge_takes_the_state_with_it() -> None:
    async with world() as made:
        made.put(5)
        await keep(made, 5)
        await made.hub.purge(S1)
        with pytest.raises(SnapshotNotFound):
            await made.hub.snapshots.get(S1)


async def test_the_observer_hears_what_follows_verdicts_and_which_states_are_sent() -> None:
    async with world(ring_size=3) as made:
        made.put(9)
        await keep(made, 8)
        for wish in Resync:
            await made.connect(2, resync=wish)
        await made.connect(snapshot=True)
        await made.settle(1.0)
        assert sorted(made.watcher.resync_modes) == ["live", "replay", "snapshot"]
        assert sorted(made.watcher.snapshots_sent) == ["connect", "resync"]


async def test_a_state_whose_rest_has_expired_without_a_trace_is_told_to_be_stale() -> None:
    async with world(log_ttl=20.0, head_ttl=0.0) as there:
        there.put(3)
        await there.hub.snapshots.put(S1, SnapshotDraft(2, b'"two"'))
        await asyncio.sleep(21)
        client = await there.connect(snapshot=True)
        await there.settle()
        assert client.types == ["session_snapshot", "state_resync_required", "replay_complete"]
        [verdict] = client.of("state_resync_required")
        assert (verdict["detail"], verdict["lastDeliveredId"]) == ("snapshot_stale", 2)
        client.leave()


async def test_a_verdict_says_so_when_the_rest_of_the_state_it_brings_has_expired_without_a_trace() -> None:
    async with world(log_ttl=20.0, head_ttl=0.0) as there:
        there.put(3)
        await there.hub.snapshots.put(S1, SnapshotDraft(2, b'"two"'))
        await asyncio.sleep(21)
        client = await there.connect(1, resync=Resync.SNAPSHOT)
        await there.settle()
        assert client.types == ["state_resync_required", "session_snapshot", "replay_complete"]
        assert client.of("state_resync_required")[0]["detail"] == "snapshot_stale"
        client.leave()
