"""``/events``: many sessions on one connection, over real sockets."""

from __future__ import annotations

import json

import pytest

from ringmere.core.errors import LogUnavailable
from ringmere.core.limits import Limits
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from support.doors import JSON, Gateway, Start
from support.raw_http import Answer, Stream, connect, fetch, request_bytes


async def follow(gateway: Gateway, query: str, headers: dict[str, str] | None = None, status: int = 200) -> Stream:
    connection = await connect(gateway.port)
    await connection.send(request_bytes("GET", f"/events{query}", headers))
    stream = Stream(connection, await connection.head())
    gateway._streams.append(stream)
    assert stream.answer.status == status, stream.answer
    return stream


async def change(gateway: Gateway, stream: Stream, **body: object) -> Answer:
    target = f"/streams/{stream.answer.headers['x-stream-id']}/sessions"
    return await fetch(gateway.port, "POST", target, JSON, json.dumps(body).encode())


async def test_events_of_all_named_sessions_come_on_one_connection_and_name_theirs(gateway: Gateway) -> None:
    await gateway.numbers("a", 2)
    stream = await follow(gateway, "?session=a&session=b,c")
    assert stream.answer.headers["content-type"] == "text/event-stream"
    assert stream.answer.headers["x-start-event-id"] == "2"
    assert stream.answer.headers["x-event-epoch"] == gateway.hub.many.epoch_tokens()
    await gateway.publish("a", 1)
    await gateway.publish("x", 1)
    await gateway.publish("c", 2)
    frames = await stream.take(2)
    assert [(frame.id, frame.json["id"], frame.json["sessionId"], frame.json["data"]) for frame in frames] == [
        (3, 3, "a", 1),
        (5, 5, "c", 2),
    ]
    assert gateway.readers() == 1


async def test_a_cursor_in_header_or_query_resumes_all_of_them(gateway: Gateway) -> None:
    for _ in range(3):
        await gateway.numbers("a", 1)
        await gateway.numbers("b", 1)
    for query, headers in (("", {"Last-Event-ID": "2"}), ("&last_event_id=2", {}), ("&from=2", {})):
        stream = await follow(gateway, f"?session=a&session=b{query}", headers)
        frames = await stream.take(5)
        assert [frame.json.get("id") for frame in frames] == [3, 4, 5, 6, None]
        assert frames[-1].json["data"] == {"replayedCount": 4, "lastReplayedEventId": 6}


async def test_several_shards_have_a_composite_cursor_and_garbage_degrades_to_live_only(start: Start) -> None:
    gateway = await start(log=MemoryLog(MemoryStore(shards=2)))
    names = [next(n for n in "abcdefgh" if gateway.log.shard_of(n) == shard) for shard in (0, 1)]
    query = "?session=" + ",".join(names)
    stream = await follow(gateway, f"{query}&anchor=1&from=live")
    assert stream.answer.headers["x-start-event-id"] == "0:0,1:0"
    for name in (*names, *names):
        await gateway.numbers(name, 1)
    frames = await stream.take(5)
    assert "id: 0:0,1:0" in frames[0].raw
    assert frames[-1].raw.startswith("id: 0:2,1:2\n")
    assert stream.answer.headers["x-event-epoch"].count(",") == 1
    token = {"X-Event-Epoch": stream.answer.headers["x-event-epoch"]}
    again = await follow(gateway, query, {"Last-Event-ID": "0:1,1:2", **token})
    assert [frame.json.get("id") for frame in await again.take(2)] == [2, None]
    other = {"X-Event-Epoch": f"x-0,{token['X-Event-Epoch'].split(',')[1]}"}
    reset = await follow(gateway, query, {"Last-Event-ID": "0:2,1:2", **other})
    (verdict,) = await reset.take(1)
    assert verdict.json["data"]["sessionId"] == names[0]
    assert verdict.json["data"]["detail"] == "epoch_mismatch"
    for garbage in ("2", "0:1", "1:1,0:1", "0:1,1:x"):
        ignored = await follow(gateway, query, {"Last-Event-ID": garbage})
        assert ignored.answer.headers["x-cursor-ignored"] == "malformed"
        assert ignored.answer.headers["x-start-event-id"] == "0:2,1:2"


async def test_what_matches_is_followed_also_what_begins_later(gateway: Gateway) -> None:
    stream = await follow(gateway, "?match=run-*")
    await gateway.publish("other", 0)
    await gateway.publish("run-7", 1)
    (frame,) = await stream.take(1)
    assert (frame.json["sessionId"], frame.json["data"]) == ("run-7", 1)


async def test_all_closed_is_204_for_a_cursor_at_the_end(gateway: Gateway) -> None:
    for name in ("a", "b"):
        await fetch(gateway.port, "DELETE", f"/session/{name}")
    await follow(gateway, "?session=a&session=b", {"Last-Event-ID": "2"}, status=204)
    stream = await follow(gateway, "?session=a&session=b", {"Last-Event-ID": "1"})
    frames = await stream.all()
    assert [frame.json["type"] for frame in frames] == ["session_closed", "replay_complete"]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "invalid_sessions"),
        ("?session=a&match=b*", 400, "invalid_sessions"),
        ("?session=", 400, "invalid_session_id"),
        ("?session=a,,b", 400, "invalid_session_id"),
        ("?session=a.b", 400, "invalid_session_id"),
        ("?session=a%3E", 400, "invalid_session_id"),
        ("?match=a", 400, "invalid_match"),
        ("?match=a*&match=b*", 400, "invalid_match"),
        ("?match=a.*", 400, "invalid_match"),
        ("?match=", 400, "invalid_match"),
        ("?session=a&maxQueued=1", 400, "invalid_max_queued"),
        ("?session=a,b,c,d", 413, "too_many_sessions"),
        ("?match=s*", 413, "match_too_broad"),
    ],
)
async def test_what_cannot_be_followed_is_refused_for_good(start: Start, query: str, status: int, code: str) -> None:
    gateway = await start(limits=Limits(max_sessions_per_stream=3))
    for number in range(4):
        await gateway.numbers(f"s{number}", 1)
    answer = await gateway.get(f"/events{query}")
    assert (answer.status, answer.json["code"]) == (status, code)
    assert gateway.hub.slots == 0


async def test_head_tells_the_headers_and_takes_no_slot(gateway: Gateway) -> None:
    answer = await fetch(gateway.port, "HEAD", "/events?session=a", {})
    assert answer.status == 200
    assert answer.headers["x-event-epoch"]
    assert gateway.hub.slots == 0


async def test_without_the_log_the_stream_says_so_and_ends(gateway: Gateway) -> None:
    gateway.log.disconnect()
    stream = await follow(gateway, "?session=a&session=b")
    (frame,) = await stream.all()
    assert frame.json["data"]["errorKind"] == LogUnavailable.code
    answer = await fetch(gateway.port, "POST", "/streams/x/sessions", JSON, b'{"add":["a"]}')
    assert answer.status == 503


async def test_sessions_are_added_and_dropped_and_the_answer_says_how_to_come_back(start: Start) -> None:
    gateway = await start()
    other = await start(log=MemoryLog(gateway.log.store))
    stream = await follow(gateway, "?session=a&session=b")
    await gateway.numbers("a", 1)
    await stream.take(1)
    answer = await change(other, stream, add=["c", "b"], drop=["a", "never"])
    assert answer.status == 200
    assert answer.json == {
        "sessions": ["b", "c"],
        "lastEventId": "1",
        "url": "/events?session=b,c&last_event_id=1",
    }
    await gateway.numbers("a", 1)
    await other.numbers("c", 1)
    (frame,) = await stream.take(1)
    assert frame.json["sessionId"] == "c"
    again = await follow(other, answer.json["url"].removeprefix("/events"))
    assert [frame.json["type"] for frame in await again.take(2)] == ["t", "replay_complete"]


async def test_added_sessions_can_be_replayed(gateway: Gateway) -> None:
    await gateway.numbers("c", 2)
    stream = await follow(gateway, "?session=a")
    assert (await change(gateway, stream, add=["c"], **{"from": "start"})).status == 200
    frames = await stream.take(3)
    assert [frame.json.get("id") for frame in frames] == [1, 2, None]
    assert frames[-1].json["data"]["sessionId"] == "c"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"[]", 400, "malformed_body"),
        (b'{"add":"a"}', 400, "malformed_body"),
        (b'{"add":[1]}', 400, "malformed_body"),
        (b'{"plus":["a"]}', 400, "malformed_body"),
        (b'{"add":["a"],"from":"5"}', 400, "malformed_body"),
        (b'{"add":["a"],"from_start":true}', 400, "malformed_body"),
        (b'{"add":["a.b"]}', 400, "invalid_session_id"),
        (b'{"drop":["*"]}', 400, "invalid_session_id"),
        (b'{"add":["c","d"]}', 413, "too_many_sessions"),
    ],
)
async def test_a_change_that_is_none_is_refused(start: Start, body: bytes, status: int, code: str) -> None:
    gateway = await start(limits=Limits(max_sessions_per_stream=3))
    stream = await follow(gateway, "?session=a,b")
    target = f"/streams/{stream.answer.headers['x-stream-id']}/sessions"
    answer = await fetch(gateway.port, "POST", target, JSON, body)
    assert (answer.status, answer.json["code"]) == (status, code)
    assert (await fetch(gateway.port, "POST", "/streams/nobody/sessions", JSON, b'{"add":["a"]}')).status == 404


async def test_what_a_prefix_chose_is_not_changed_by_name(gateway: Gateway) -> None:
    stream = await follow(gateway, "?match=a*")
    answer = await change(gateway, stream, add=["b"])
    assert (answer.status, answer.json["code"]) == (409, "stream_matches")


async def test_each_followed_session_shows_the_reader(gateway: Gateway) -> None:
    await gateway.numbers("a", 1)
    stream = await follow(gateway, "?session=a&session=b")
    (row,) = (await gateway.get("/session/a")).json["readers"]
    assert row["streamId"] == stream.answer.headers["x-stream-id"]
    assert row["sessions"] == 2
    stream.close()
    await gateway.until(lambda: gateway.hub.slots == 0, "the slot is free")
