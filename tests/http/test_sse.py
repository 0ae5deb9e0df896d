"""``GET`` and ``HEAD`` of a stream: headers, verdicts, limits, ends."""

from __future__ import annotations

import asyncio
import re
import uuid

import pytest

from ringmere.core.errors import LogUnavailable
from ringmere.core.limits import Limits
from support.doors import Gateway, Start
from support.raw_http import connect, connection, fetch, request_bytes

EVENTS = "/session/s1/events"


async def test_prx_1_the_headers_forbid_every_box_on_the_way_to_hold_the_stream_back(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    stream = await gateway.stream("s1")
    headers = stream.answer.headers
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert "content-length" not in headers
    assert headers["connection"] == "close"
    assert headers["x-event-epoch"] == headers["x-qwen-event-epoch"] == gateway.hub.epoch_token("s1")
    assert str(uuid.UUID(headers["x-stream-id"])) == headers["x-stream-id"]
    assert headers["x-start-event-id"] == "3"


async def test_a_stream_with_a_cursor_has_no_start_id(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    stream = await gateway.stream("s1", headers={"Last-Event-ID": "1"})
    assert "x-start-event-id" not in stream.answer.headers


async def test_what_is_published_after_the_headers_were_seen_arrives(gateway: Gateway) -> None:
    for _ in range(20):
        stream = await gateway.stream("s1")
        [published] = await gateway.publish("s1", "x")
        [frame] = await stream.take(1)
        assert frame.id == published
        stream.close()


async def test_an_anchor_gives_the_client_its_cursor_before_the_first_event(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    stream = await gateway.stream("s1", "?anchor=1")
    [anchor] = await stream.take(1)
    assert re.fullmatch(r"retry: \d+\nid: 3", anchor.raw)


async def test_the_first_block_carries_a_jittered_retry_and_no_other_does(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    seen = set()
    for _ in range(8):
        stream = await gateway.stream("s1", "?from=start")
        first, second, third = await stream.take(3)
        assert first.retry is not None
        assert 2400 <= first.retry <= 3600
        assert second.retry is third.retry is None
        seen.add(first.retry)
    assert len(seen) > 1


async def test_prx_2_a_quiet_stream_has_bytes_at_once_and_comments_that_move_no_cursor(start: Start) -> None:
    gateway = await start(limits=Limits(heartbeat=0.05))
    stream = await gateway.stream("s1")
    blocks = [await stream.block() for _ in range(4)]
    assert all(blocks)
    assert all(re.fullmatch(r": .*", block.raw) for block in blocks if block)


async def test_res_1_a_cursor_older_than_the_ring_is_told_so_first(start: Start) -> None:
    gateway = await start(ring_size=3)
    await gateway.numbers("s1", 5)
    stream = await gateway.stream("s1", headers={"Last-Event-ID": "1"})
    verdict, *events, complete = await stream.take(5)
    assert (verdict.type, verdict.id) == ("state_resync_required", None)
    assert verdict.data == {"reason": "ring_evicted", "lastDeliveredId": 1, "earliestAvailableId": 3}
    assert [frame.id for frame in events] == [3, 4, 5]
    assert complete.type == "replay_complete"
    assert complete.data == {"replayedCount": 3, "lastReplayedEventId": 5}
    assert await gateway.publish("s1", 6) == [6]
    assert [frame.id for frame in await stream.take(1)] == [6]


async def test_res_2_a_gap_begins_exactly_behind_the_oldest_successor(start: Start) -> None:
    gateway = await start(ring_size=3)
    await gateway.numbers("s1", 5)
    fits = await (await gateway.stream("s1", headers={"Last-Event-ID": "2"})).take(4)
    assert [frame.id for frame in fits] == [3, 4, 5, None]
    late = await (await gateway.stream("s1", headers={"Last-Event-ID": "1"})).take(1)
    assert late[0].type == "state_resync_required"


async def test_res_5_ids_are_numbers_not_text(gateway: Gateway) -> None:
    await gateway.numbers("s1", 11)
    frames = await (await gateway.stream("s1", headers={"Last-Event-ID": "9"})).take(3)
    assert [frame.id for frame in frames] == [10, 11, None]


async def test_res_5_a_recent_cursor_is_found_behind_many_older_events(start: Start) -> None:
    gateway = await start(ring_size=20_000)
    batch = [{"type": "t", "data": n} for n in range(1000)]
    for _ in range(12):
        assert (await gateway.post("s1", batch)).status == 201
    stream = await gateway.stream("s1", headers={"Last-Event-ID": "11990"})
    assert [frame.id for frame in await stream.take(11)] == [*range(11_991, 12_001), None]


async def test_epo_1_a_cursor_ahead_of_the_log_is_another_epochs(start: Start) -> None:
    gateway = await start()
    await gateway.numbers("s1", 5)
    for cursor in (50, 6):
        stream = await gateway.stream("s1", headers={"Last-Event-ID": str(cursor)})
        verdict, *events, complete = await stream.take(7)
        assert verdict.data == {"reason": "epoch_reset", "lastDeliveredId": cursor, "earliestAvailableId": 1}
        assert [frame.id for frame in events] == [1, 2, 3, 4, 5]
        assert complete.data["replayedCount"] == 5
    stream = await gateway.stream("s1", headers={"Last-Event-ID": "5"})
    [complete] = await stream.take(1)
    assert (complete.type, complete.data) == ("replay_complete", {"replayedCount": 0})


async def test_epo_2_an_empty_log_disowns_a_cursor_too(start: Start) -> None:
    gateway = await start()
    stream = await gateway.stream("s1", headers={"Last-Event-ID": "50"})
    verdict, complete = await stream.take(2)
    assert verdict.data == {"reason": "epoch_reset", "lastDeliveredId": 50, "earliestAvailableId": 1}
    assert complete.data == {"replayedCount": 0}
    assert await gateway.publish("s1", "first") == [1]
    [frame] = await stream.take(1)
    assert frame.id == 1


async def test_ctl_1_no_control_frame_has_an_id_line(start: Start) -> None:
    gateway = await start(ring_size=3, limits=Limits(max_subscribers=1))
    await gateway.numbers("s1", 5)
    stream = await gateway.stream("s1", headers={"Last-Event-ID": "1"})
    refused = await gateway.stream("s1")
    frames = [*await stream.take(5), *await refused.all()]
    control = [frame for frame in frames if frame.id is None]
    assert [frame.type for frame in control] == ["state_resync_required", "replay_complete", "stream_error"]
    for frame in control:
        assert not any(line.startswith("id") for line in frame.raw.split("\n"))
        assert '"id"' not in frame.raw


async def test_ctl_3_replay_complete_comes_once_and_only_with_a_cursor(gateway: Gateway) -> None:
    await gateway.numbers("s1", 5)
    at_end = await gateway.stream("s1", headers={"Last-Event-ID": "5"})
    behind = await gateway.stream("s1", headers={"Last-Event-ID": "3"})
    none = await gateway.stream("s1")
    await gateway.publish("s1", 6)
    first = await at_end.take(2)
    assert [frame.type for frame in first] == ["replay_complete", "t"]
    assert first[0].data == {"replayedCount": 0}
    second = await behind.take(4)
    assert [frame.id for frame in second] == [4, 5, None, 6]
    assert second[2].data == {"replayedCount": 2, "lastReplayedEventId": 5}
    assert [frame.id for frame in await none.take(1)] == [6]


BAD_QUEUES = ["15", "2049", "-1", "abc", "16.5", "1e3", "", "+16", "%2016", "1_6", "%D9%A1%D9%A6", "9" * 400]


@pytest.mark.parametrize("value", BAD_QUEUES, ids=lambda text: text[:12])
async def test_bpr_7_a_queue_limit_out_of_range_is_400(gateway: Gateway, value: str) -> None:
    answer = await gateway.get(f"{EVENTS}?maxQueued={value}")
    assert (answer.status, answer.code) == (400, "invalid_max_queued")
    assert gateway.readers() == 0
    await gateway.stream("s1", "?maxQueued=16")
    await gateway.stream("s1", "?maxQueued=2048")


async def test_bpr_7_a_queue_limit_given_twice_is_400_before_the_session_is_looked_at(start: Start) -> None:
    gateway = await start(require_session=True)
    answer = await gateway.get(f"{EVENTS}?maxQueued=16&maxQueued=16")
    assert (answer.status, answer.code) == (400, "invalid_max_queued")


@pytest.mark.parametrize("query", ["?anchor=yes", "?anchor=", "?anchor=1&anchor=1"])
async def test_an_anchor_is_0_or_1(gateway: Gateway, query: str) -> None:
    answer = await gateway.get(EVENTS + query)
    assert (answer.status, answer.code) == (400, "invalid_anchor")


@pytest.mark.parametrize("value", ["", "Catchup", "evict,catchup", "1", "catchup&overflow=catchup"])
async def test_overflow_is_evict_or_catchup(gateway: Gateway, value: str) -> None:
    answer = await gateway.get(f"{EVENTS}?overflow={value}")
    assert (answer.status, answer.code) == (400, "invalid_overflow")
    assert gateway.readers() == 0
    await gateway.stream("s1", "?overflow=evict")
    await gateway.stream("s1", "?overflow=catchup")


@pytest.mark.parametrize("value", ["", "2", "yes", "true", "1&coalesce=1"])
async def test_coalesce_is_0_or_1_whether_anything_may_be_merged_or_not(gateway: Gateway, value: str) -> None:
    answer = await gateway.get(f"{EVENTS}?coalesce={value}")
    assert (answer.status, answer.code) == (400, "invalid_coalesce")
    await gateway.stream("s1", "?coalesce=0")
    await gateway.stream("s1", "?coalesce=1")


async def test_an_unknown_session_is_no_error_unless_sessions_are_required(start: Start) -> None:
    open_door, strict = await start(), await start(require_session=True)
    stream = await open_door.stream("new")
    assert stream.answer.headers["x-start-event-id"] == "0"
    answer = await strict.get("/session/new/events")
    assert (answer.status, answer.code) == (404, "session_not_found")
    await strict.publish("new", 1)
    await strict.stream("new")


async def test_a_closed_session_is_replayed_to_its_terminal_event_and_ends(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    await fetch(gateway.port, "DELETE", "/session/s1")
    frames = await (await gateway.stream("s1", headers={"Last-Event-ID": "1"})).all()
    assert [frame.id for frame in frames if frame.id] == [2, 3, 4]
    assert [frame.type for frame in frames if frame.id][-1] == "session_closed"
    late = await (await gateway.stream("s1")).all()
    assert [frame.id for frame in late] == [4]


async def test_prx_6_a_cursor_at_the_terminal_event_is_204(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    await fetch(gateway.port, "DELETE", "/session/s1")
    answer = await gateway.get(EVENTS, Last_Event_ID="4")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["x-event-epoch"] == gateway.hub.epoch_token("s1")
    assert gateway.readers() == 0


async def test_lif_2_head_is_answered_at_once_and_takes_no_slot(gateway: Gateway) -> None:
    connections = [await connect(gateway.port) for _ in range(100)]
    for raw in connections:
        await raw.send(request_bytes("HEAD", EVENTS))
        head = await raw.answer(empty=True)
        assert head.status == 200
        assert head.headers["content-type"] == "text/event-stream"
        assert head.headers["x-event-epoch"] == gateway.hub.epoch_token("s1")
        assert "content-length" not in head.headers
        assert "transfer-encoding" not in head.headers
    assert gateway.readers() == 0
    for raw in connections:
        await raw.send(request_bytes("GET", "/livez"))
        assert (await raw.answer()).body == b'{"status":"ok"}', "the kept connection goes on right behind the headers"
        raw.close()


async def test_head_refuses_what_get_refuses(gateway: Gateway) -> None:
    for query in ("maxQueued=1", "anchor=2", "overflow=x", "coalesce=x"):
        assert (await fetch(gateway.port, "HEAD", f"{EVENTS}?{query}")).status == 400
    head = await fetch(gateway.port, "HEAD", EVENTS, {"Last-Event-ID": "x"})
    assert head.headers["x-cursor-ignored"] == "malformed"


async def test_lif_1_a_client_that_leaves_a_quiet_session_is_noticed_at_once(gateway: Gateway) -> None:
    tasks = len(asyncio.all_tasks())
    for leave in ("close", "reset"):
        stream = await gateway.stream("quiet")
        assert gateway.readers() == 1
        getattr(stream.connection, leave)()
        await gateway.until(lambda: gateway.readers() == 0, "the reader's end")
    await gateway.until(lambda: len(asyncio.all_tasks()) <= tasks, "the tasks' end")
    assert gateway.watcher.closed == ["client_gone"] * 2


async def test_a_stream_holds_no_task(gateway: Gateway) -> None:
    await gateway.stream("s1")
    tasks = len(asyncio.all_tasks())
    for _ in range(20):
        await gateway.stream("s1")
    await gateway.until(lambda: len(asyncio.all_tasks()) <= tasks, "the request tasks' end")


async def test_lif_5_beyond_the_limit_a_stream_says_so_and_ends_while_the_rest_works(start: Start) -> None:
    gateway = await start()
    for _ in range(64):
        await gateway.stream("s1")
    refused = await gateway.stream("s1")
    [frame] = await refused.all()
    assert frame.type == "stream_error"
    assert frame.data["errorKind"] == "subscriber_limit_exceeded"
    assert frame.data["retryAfterMs"] == 5000
    assert frame.retry is not None
    assert frame.retry >= 5000
    assert refused.answer.headers["content-type"] == "text/event-stream"
    assert refused.answer.headers["x-event-epoch"] == gateway.hub.epoch_token("s1")
    assert await gateway.publish("s1", 1) == [1]
    assert (await gateway.get("/livez")).status == 200
    await gateway.stream("s2")


async def test_lif_5_the_instance_has_a_limit_too(start: Start) -> None:
    gateway = await start(limits=Limits(max_connections=3))
    for session in ("a", "b", "c"):
        await gateway.stream(session)
    [frame] = await (await gateway.stream("d")).all()
    assert frame.data["errorKind"] == "subscriber_limit_exceeded"


async def test_lif_6_slots_neither_leak_nor_go_below_zero(start: Start) -> None:
    gateway = await start()
    streams = [await gateway.stream("s1") for _ in range(64)]
    for _ in range(20):
        assert len(await (await gateway.stream("s1")).all()) == 1
    assert gateway.readers() == 64
    for stream in streams:
        stream.close()
    await gateway.until(lambda: gateway.readers() == 0)
    for _ in range(20):
        raw = await connect(gateway.port)
        await raw.send(request_bytes("GET", EVENTS))
        raw.reset()
    for _ in range(20):
        raw = await connect(gateway.port)
        raw.writer.write(request_bytes("GET", EVENTS))
        raw.close()
    await gateway.get("/livez")
    await gateway.until(lambda: gateway.readers() == 0)
    again = [await gateway.stream("s1") for _ in range(64)]
    assert gateway.readers() == 64
    assert all(stream.answer.headers["x-stream-id"] for stream in again)
    for stream in again:
        stream.close()
    await gateway.until(lambda: gateway.readers() == 0)


async def test_a_client_that_leaves_while_it_is_judged_gives_its_slot_back(gateway: Gateway) -> None:
    going_on = asyncio.Event()
    asked = asyncio.Event()

    async def hold(method: str, session: str) -> None:
        asked.set()
        await going_on.wait()

    gateway.log.before = hold
    raw = await connect(gateway.port)
    await raw.send(request_bytes("GET", EVENTS))
    await asked.wait()
    raw.reset()
    await gateway.until(lambda: not _connected_to(gateway, raw.writer.get_extra_info("sockname")))
    going_on.set()
    gateway.log.before = None
    await gateway.until(lambda: gateway.readers() == 0)
    for _ in range(64):
        await gateway.stream("s1")


def _connected_to(gateway: Gateway, peer: tuple[str, int]) -> bool:
    return any(handler.peername == peer and handler.connected for handler in gateway.server.connections)


async def test_a_log_that_is_away_is_a_stream_error_in_time_and_the_client_can_come_back(start: Start) -> None:
    gateway = await start(limits=Limits(connect_deadline=0.2))

    async def away(method: str, session: str) -> None:
        raise LogUnavailable("away", 1.5)

    async def silent(method: str, session: str) -> None:
        await asyncio.sleep(60)

    for trouble in (away, silent):
        gateway.log.before = trouble
        async with asyncio.timeout(2):
            stream = await gateway.stream("s1", headers={"Last-Event-ID": "1"})
            [frame] = await stream.all()
        assert frame.data["errorKind"] == "log_unavailable"
        assert frame.data["error"]
        assert frame.retry is not None
        assert frame.retry >= 3000
    gateway.log.before = None
    await gateway.publish("s1", 1)
    assert gateway.readers() == 0


async def test_a_draining_instance_takes_no_stream(gateway: Gateway) -> None:
    await gateway.hub.drain()
    [frame] = await (await gateway.stream("s1")).all()
    assert frame.data["errorKind"] == "draining"


async def test_with_status_errors_trouble_is_a_status(start: Start) -> None:
    gateway = await start(stream_errors="status", limits=Limits(max_subscribers=1))
    await gateway.stream("s1")
    answer = await gateway.get(EVENTS)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "subscriber_limit_exceeded", "5")
    await gateway.hub.drain()
    answer = await gateway.get(EVENTS)
    assert (answer.status, answer.code) == (503, "draining")
    assert int(answer.headers["retry-after"]) >= 1


async def test_http_1_0_gets_an_unframed_body_and_a_close(gateway: Gateway) -> None:
    await gateway.numbers("s1", 2)
    await fetch(gateway.port, "DELETE", "/session/s1")
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", f"{EVENTS}?from=start", version="1.0"))
        head = await raw.head()
        assert head.version == "HTTP/1.0"
        assert "transfer-encoding" not in head.headers
        assert "content-length" not in head.headers
        body = (await raw.rest()).decode()
    blocks = re.sub(r"(?m)^:.*\n", "", body).split("\n\n")
    assert re.match(r"retry: \d+\nid: 1\nevent: t\ndata: \{", blocks[0])
    assert [block.split("\n")[-3] for block in blocks[:-1]] == ["id: 1", "id: 2", "id: 3"]
    assert blocks[-1] == ""


async def test_http_1_0_gets_a_bare_error_stream_too(start: Start) -> None:
    gateway = await start(limits=Limits(max_subscribers=1))
    await gateway.stream("s1")
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", EVENTS, {"Connection": "keep-alive"}, version="1.0"))
        head = await raw.head()
        assert "transfer-encoding" not in head.headers
        assert (await raw.rest()).startswith(b"retry: ")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (
            {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQCAAAAAAIAAAAA"},
            b"",
        ),
        ({"Content-Length": "15"}, b'{"some":"body"}'),
        ({"Content-Length": "100000"}, b"x" * 100_000),
        ({"Transfer-Encoding": "chunked"}, b"zz\r\n"),
    ],
    ids=["an offer of http/2", "a body", "a body that comes late", "a broken body"],
)
async def test_what_a_stream_has_no_use_for_does_not_disturb_it(
    gateway: Gateway, headers: dict[str, str], body: bytes
) -> None:
    stream = await gateway.stream("s1", headers=headers)
    await stream.connection.send(body)
    await gateway.publish("s1", 1, 2)
    assert [frame.id for frame in await stream.take(2)] == [1, 2]
