"""Resume verdicts over HTTP on a real JetStream: exact at every boundary of contract 4."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from e2e.conftest import Instance, instance_on
from ringmere.core.cursor import MAX_ID, event_id
from ringmere.core.limits import Limits
from ringmere.embedded import EmbeddedServer
from support.doors import Gateway
from support.nats import Cluster, api, connected, eventually


async def resume(
    gateway: Gateway, session: str, cursor: int
) -> tuple[dict[str, Any] | None, list[int], dict[str, Any]]:
    """Resume and return the verdict's data (None when contiguous), the replayed ids, and the completion's data."""
    stream = await gateway.stream(session, headers={"Last-Event-ID": str(cursor)})
    verdict: dict[str, Any] | None = None
    ids: list[int] = []
    while True:
        frame = await stream.frame()
        assert frame is not None, "the stream ended"
        if frame.type == "replay_complete":
            stream.close()
            return verdict, ids, frame.data
        if frame.type == "state_resync_required":
            assert verdict is None, "a second verdict"
            assert not ids, "the verdict comes first"
            verdict = frame.data
        else:
            assert frame.id is not None
            ids.append(frame.id)


def done(ids: list[int]) -> dict[str, Any]:
    return {"replayedCount": len(ids), **({"lastReplayedEventId": ids[-1]} if ids else {})}


async def publish_interleaved(gateway: Gateway, rounds: int) -> list[int]:
    """Publish to three sessions in turn; return the ids of ``s``."""
    ids = []
    for n in range(rounds):
        for session in ("before", "s", "after"):
            (made,) = await gateway.publish(session, {"n": n})
            if session == "s":
                ids.append(made)
    return ids


@pytest.mark.parametrize("ring", [1, 3])
async def test_every_cursor_around_a_full_ring_of_interleaved_sessions_gets_its_exact_verdict(
    instance: Instance, ring: int
) -> None:
    async with instance(ring_size=ring) as gateway:
        ids = await publish_interleaved(gateway, 8)
        kept, fence, gone = ids[-ring:], ids[-ring - 1], ids[-ring - 2]
        for cursor in (gone, gone - 1, 1, fence - 1):
            verdict, got, complete = await resume(gateway, "s", cursor)
            assert verdict == {"reason": "ring_evicted", "lastDeliveredId": cursor, "earliestAvailableId": kept[0]}
            assert (got, complete) == (kept, done(kept))
        assert await resume(gateway, "s", fence) == (None, kept, done(kept))
        for index, cursor in enumerate(kept):
            assert await resume(gateway, "s", cursor) == (None, kept[index + 1 :], done(kept[index + 1 :]))
        verdict, got, _ = await resume(gateway, "s", 0)
        assert verdict == {"reason": "ring_evicted", "lastDeliveredId": 0, "earliestAvailableId": kept[0]}
        assert got == kept


async def test_a_cursor_of_another_session_is_foreign_and_one_beyond_the_tail_is_another_log(
    instance: Instance,
) -> None:
    async with instance(ring_size=3) as gateway:
        ids = await publish_interleaved(gateway, 8)
        tail = ids[-1] + 1
        for cursor in (ids[-1] + 1, ids[-2] + 1, ids[-4] + 1):  # of `after`, above the first of `s`
            verdict, got, _ = await resume(gateway, "s", cursor)
            assert verdict == {
                "reason": "epoch_reset",
                "detail": "foreign_cursor",
                "lastDeliveredId": cursor,
                "earliestAvailableId": ids[-3],
            }
            assert got == ids[-3:]
        for cursor in (tail + 1, tail + 1000):
            verdict, got, _ = await resume(gateway, "s", cursor)
            assert verdict == {"reason": "epoch_reset", "lastDeliveredId": cursor, "earliestAvailableId": ids[-3]}
            assert got == ids[-3:]
        for cursor in (MAX_ID, event_id(1, 2)):
            verdict, got, _ = await resume(gateway, "s", cursor)
            assert verdict is not None
            assert (verdict["reason"], verdict["detail"]) == ("epoch_reset", "epoch_mismatch")
            assert got == ids[-3:]


async def test_a_ring_of_8000_is_exact_at_its_edge(instance: Instance) -> None:
    async with instance(ring_size=8000) as gateway:
        for _ in range(9):
            answer = await gateway.post("s", [{"type": "t", "data": n} for n in range(890)])
            assert answer.status == 201
        verdict, got, _ = await resume(gateway, "s", 10)
        assert verdict is None
        assert got == list(range(11, 8011))
        verdict, got, _ = await resume(gateway, "s", 9)
        assert verdict == {"reason": "ring_evicted", "lastDeliveredId": 9, "earliestAvailableId": 11}
        assert got == list(range(11, 8011))


async def test_fewer_than_a_ring_lost_nothing_however_old_the_cursor(instance: Instance) -> None:
    async with instance(ring_size=10) as gateway:
        await gateway.publish("other", 1, 2, 3)
        ids = await gateway.publish("s", 1, 2, 3)
        for cursor in (0, 1, 3):
            assert await resume(gateway, "s", cursor) == (None, ids, done(ids))


async def test_res_3_after_a_purge_an_older_cursor_is_told_and_the_head_is_contiguous(
    instance: Instance, nats_server: EmbeddedServer
) -> None:
    async with instance(ring_size=8) as gateway:
        await gateway.publish("s", 1, 2, 3, 4, 5)

        async def mirrored() -> bool:
            head = await gateway.hub.log.head("s")
            return head is not None and head.seq == 5

        await eventually(mirrored, "the head stream has the last event")
        async with connected(nats_server) as operator:
            await api(operator, "STREAM.PURGE.RINGMERE_0", {"filter": "ringmere.events.0.s"})
        verdict, got, complete = await resume(gateway, "s", 2)
        assert verdict == {"reason": "ring_evicted", "lastDeliveredId": 2, "earliestAvailableId": 6}
        assert (got, complete) == ([], {"replayedCount": 0})
        assert await resume(gateway, "s", 5) == (None, [], {"replayedCount": 0})
        assert await gateway.publish("s", 6) == [6]


async def test_a_purge_through_the_hub_is_told_to_whoever_lost_something(instance: Instance) -> None:
    async with instance(ring_size=8) as gateway:
        await gateway.publish("s", 1, 2, 3)
        stream = await gateway.stream("s")
        await gateway.hub.purge("s")
        await gateway.publish("s", 4)
        verdict, got, _ = await resume(gateway, "s", 2)
        assert verdict == {"reason": "ring_evicted", "lastDeliveredId": 2, "earliestAvailableId": 4}
        assert got == [4]
        # Nothing behind 3 was purged, so a reader that had come so far has lost nothing.
        assert await resume(gateway, "s", 3) == (None, [4], done([4]))
        (frame,) = await stream.take(1)
        assert (frame.type, frame.id) == ("t", 4)


async def test_expiry_tells_who_lost_something_and_nobody_else(instance: Instance) -> None:
    """A live reader that was idle past the log's time to live gets no false frame; the head is contiguous."""
    async with instance(ring_size=8, log_ttl=2.0) as gateway:
        await gateway.publish("s", 1, 2, 3)
        idle = await gateway.stream("s", headers={"Last-Event-ID": "3"})
        assert [frame.type for frame in await idle.take(1)] == ["replay_complete"]

        async def expired() -> bool:
            return (await gateway.hub.log.bounds("s")).stored == 0

        await eventually(expired, "the log expires")
        assert await resume(gateway, "s", 3) == (None, [], {"replayedCount": 0})
        verdict, got, _ = await resume(gateway, "s", 2)
        assert verdict == {"reason": "ring_evicted", "lastDeliveredId": 2, "earliestAvailableId": 4}
        assert got == []
        assert await gateway.publish("s", 4) == [4]
        (frame,) = await idle.take(1)
        assert (frame.type, frame.id) == ("t", 4)
        # 3 has expired, but 4 is the very next of the stream: nothing lies between.
        assert await resume(gateway, "s", 3) == (None, [4], done([4]))


async def test_retention_that_overtakes_a_slow_replay_is_told_at_the_exact_place(instance: Instance) -> None:
    """RES-4: pages are read far apart; what went in between shows as one verdict between the right two ids."""
    limits = Limits(page_bytes=256 * 1024, window_bytes=64 * 1024)
    pad = "x" * 60_000
    async with instance(limits, ring_size=400) as gateway:
        for _ in range(20):
            answer = await gateway.post("s", [{"type": "t", "data": pad} for _ in range(20)])
            assert answer.status == 201
        stream = await gateway.stream("s", headers={"Last-Event-ID": "0"})
        await stream.take(1)
        await gateway.until(lambda: gateway.hub.paused, "the replay waits for its socket")
        for _ in range(40):
            answer = await gateway.post("s", [{"type": "t", "data": pad} for _ in range(20)])
            assert answer.status == 201
        last, verdicts = 1, 0
        while last < 1200:
            frame = await stream.frame()
            assert frame is not None
            if frame.type == "state_resync_required":
                assert frame.data["reason"] == "ring_evicted"
                assert frame.data["lastDeliveredId"] == last
                verdicts += 1
                last = frame.data["earliestAvailableId"] - 1
            elif frame.type == "t":
                assert frame.id == last + 1, "a jump with nothing before it"
                last = frame.id
        assert verdicts >= 1


async def test_a_recreated_stream_resets_open_readers_and_swallows_nothing(
    instance: Instance, nats_server: EmbeddedServer
) -> None:
    """EPO-1 under open connections."""
    async with instance(ring_size=8) as gateway:
        await gateway.publish("s", *range(1, 6))
        reader = await gateway.stream("s", headers={"Last-Event-ID": "5"})
        fresh = await gateway.stream("s")
        await reader.take(1)
        async with connected(nats_server) as operator:
            config = (await api(operator, "STREAM.INFO.RINGMERE_0"))["config"]
            await api(operator, "STREAM.DELETE.RINGMERE_0")
            created = await api(operator, "STREAM.CREATE.RINGMERE_0", config)
            assert "error" not in created
            sent = 0
            for sent in range(1, 4):
                await operator.request("ringmere.events.0.s", json.dumps({"type": "t", "data": sent}).encode())
        for stream in (reader, fresh):
            verdict, *events = await stream.take(1 + sent)
            assert verdict.type == "state_resync_required"
            assert verdict.data == {
                "reason": "epoch_reset",
                "detail": "epoch_mismatch",
                "lastDeliveredId": 5,
                "earliestAvailableId": event_id(1, 1),
            }
            assert [event.id for event in events] == [event_id(1, n) for n in range(1, sent + 1)]
            assert [event.data for event in events] == [1, 2, 3]
        verdict_data, got, _ = await resume(gateway, "s", 5)
        assert verdict_data is not None
        assert verdict_data["detail"] == "epoch_mismatch"
        assert len(got) == sent
        assert await resume(gateway, "s", event_id(1, 2)) == (None, [event_id(1, 3)], done([event_id(1, 3)]))


async def test_who_connects_first_and_drops_before_the_first_event_is_not_told_of_a_loss(instance: Instance) -> None:
    """The anchor of an empty session is the stream's tail; nothing of the session was ever behind it."""
    async with instance(ring_size=8) as gateway:
        await gateway.publish("other", 1, 2, 3)
        stream = await gateway.stream("s", "?anchor=1")
        (anchor,) = await stream.take(1)
        assert anchor.id == int(stream.answer.headers["x-start-event-id"]) == 3
        stream.close()
        await gateway.publish("other", 4, 5)
        assert await resume(gateway, "s", 3) == (None, [], {"replayedCount": 0})
        assert await gateway.publish("s", 1) == [6]
        assert await resume(gateway, "s", 3) == (None, [6], done([6]))


async def test_what_a_smaller_ring_evicted_stays_lost_when_rings_are_enlarged(instance: Instance) -> None:
    """Under the larger ring there is no fence yet; that must not read as "nothing was ever evicted"."""
    async with instance(ring_size=2) as gateway:
        await gateway.publish("other", 1)
        ids = await gateway.publish("s", *range(6))
    async with instance(ring_size=10, reconcile=True) as gateway:
        for cursor in ids[:3]:
            verdict, got, _ = await resume(gateway, "s", cursor)
            assert verdict == {"reason": "ring_evicted", "lastDeliveredId": cursor, "earliestAvailableId": ids[3]}
            assert got == ids[3:]
        assert await resume(gateway, "s", ids[3]) == (None, ids[4:], done(ids[4:]))
        later = await gateway.publish("t", *range(3))
        assert await resume(gateway, "t", ids[-1]) == (None, later, done(later))


async def test_epo_2_a_cursor_on_an_empty_new_log_is_reset_and_live_follows(instance: Instance) -> None:
    async with instance(ring_size=8) as gateway:
        stream = await gateway.stream("s", headers={"Last-Event-ID": "50"})
        verdict, complete = await stream.take(2)
        assert verdict.data == {"reason": "epoch_reset", "lastDeliveredId": 50, "earliestAvailableId": 1}
        assert complete.data == {"replayedCount": 0}
        await gateway.publish("s", 1)
        (frame,) = await stream.take(1)
        assert frame.id == 1


async def test_a_token_of_another_birth_makes_the_cursor_unknown_and_the_same_one_does_not(instance: Instance) -> None:
    async with instance(ring_size=8) as gateway:
        await gateway.publish("s", 1, 2, 3)
        token = (await gateway.stream("s")).answer.headers["x-event-epoch"]
        same = await gateway.stream("s", headers={"Last-Event-ID": "2", "X-Event-Epoch": token})
        assert [frame.id for frame in await same.take(1)] == [3]
        other = await gateway.stream("s", headers={"Last-Event-ID": "2", "X-Event-Epoch": "0123456789abcdef-0"})
        (verdict,) = await other.take(1)
        assert verdict.data["detail"] == "epoch_mismatch"


async def test_no_false_verdict_on_a_replicated_stream_under_concurrent_publish(nats_cluster: Cluster) -> None:
    """1,000 resumes at the newest ids, asked of three instances on three nodes, while two sessions are written."""
    async with (
        instance_on(nats_cluster.urls[:1], ring_size=200, replicas=3) as one,
        instance_on(nats_cluster.urls[1:2], ring_size=200, replicas=3) as two,
        instance_on(nats_cluster.urls[2:], ring_size=200, replicas=3) as three,
    ):
        newest = 0
        running = True

        async def write(gateway: Gateway, session: str) -> None:
            nonlocal newest
            while running:
                (made,) = await gateway.publish(session, "x" * 100)
                if session == "s":
                    newest = made

        writers = [asyncio.create_task(write(one, "s")), asyncio.create_task(write(two, "noise"))]
        await eventually(lambda: newest > 0, "a first event")

        async def readers(gateway: Gateway, count: int) -> None:
            for _ in range(count):
                cursor = newest
                verdict, ids, _ = await resume(gateway, "s", cursor)
                assert verdict is None, (cursor, verdict)
                assert all(later > cursor for later in ids)

        await asyncio.gather(*(readers(gateway, 84) for gateway in (one, two, three) for _ in range(4)))
        running = False
        await asyncio.gather(*writers)
