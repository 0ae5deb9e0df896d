"""``/session/{id}/snapshot`` and the parameters that streams take of it (contract 10.1, 10.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from support.doors import JSON, Gateway, Start
from support.raw_http import Answer, fetch

PATH = "/session/s1/snapshot"


async def put(gateway: Gateway, body: Any, **headers: str) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await fetch(gateway.port, "PUT", PATH, {**JSON, **named}, raw)


async def test_a_state_is_stored_read_replaced_and_removed(gateway: Gateway) -> None:
    await gateway.numbers("s1", 5)
    assert (await gateway.get(PATH)).code == "snapshot_not_found"
    token = gateway.hub.epoch_token("s1")
    answer = await put(gateway, {"lastEventId": 3, "state": {"n": 1.50}})
    assert (answer.status, answer.json) == (
        201,
        {"sessionId": "s1", "lastEventId": 3, "final": False, "eventEpoch": token},
    )
    assert (await put(gateway, {"lastEventId": 3, "state": [None], "final": True})).status == 200
    found = await gateway.get(PATH)
    updated_at = found.json["updatedAt"]
    assert found.json == {
        "sessionId": "s1",
        "lastEventId": 3,
        "state": [None],
        "final": True,
        "eventEpoch": token,
        "updatedAt": updated_at,
    }
    assert updated_at > 1_600_000_000_000
    for _ in range(2):
        assert (await fetch(gateway.port, "DELETE", PATH)).status == 204
    assert (await gateway.get(PATH)).status == 404


async def test_a_state_comes_back_as_it_was_written(gateway: Gateway) -> None:
    await gateway.numbers("s1", 1)
    await put(gateway, b'{"lastEventId":1,"state":{"price":1.50,"big":12345678901234567890,"name":"\\u00fc"}}')
    assert b'"state":{"price":1.50,"big":12345678901234567890,"name":"\\u00fc"}' in (await gateway.get(PATH)).body


async def test_who_names_the_state_that_it_has_gets_304(gateway: Gateway) -> None:
    await gateway.numbers("s1", 2)
    await put(gateway, {"lastEventId": 1, "state": 1})
    first = await gateway.get(PATH)
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "private, no-cache"
    for known in (tag, f'"x", {tag}', "*", f"W/{tag}"):
        again = await gateway.get(PATH, If_None_Match=known)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    await put(gateway, {"lastEventId": 2, "state": 1})
    changed = await gateway.get(PATH, If_None_Match=tag)
    assert changed.status == 200
    assert changed.headers["etag"] != tag


async def test_a_state_that_covers_less_is_409_with_what_is_stored(gateway: Gateway) -> None:
    await gateway.numbers("s1", 5)
    await put(gateway, {"lastEventId": 4, "state": 1})
    answer = await put(gateway, {"lastEventId": 3, "state": 2})
    assert (answer.status, answer.code, answer.json["lastEventId"]) == (409, "newer_snapshot", 4)


@pytest.mark.parametrize("public_id", [6, 1 << 40 | 1, (1 << 53) - 1])
async def test_an_id_that_the_session_has_not_had_is_409(gateway: Gateway, public_id: int) -> None:
    await gateway.numbers("s1", 5)
    answer = await put(gateway, {"lastEventId": public_id, "state": 1})
    assert (answer.status, answer.code) == (409, "unknown_event_id")


async def test_a_writer_that_followed_another_log_is_409(gateway: Gateway) -> None:
    await gateway.numbers("s1", 5)
    assert (await put(gateway, {"lastEventId": 5, "state": 1}, X_Event_Epoch="another-0")).code == "unknown_event_id"
    token = gateway.hub.epoch_token("s1")
    assert (await put(gateway, {"lastEventId": 5, "state": 1}, X_Event_Epoch=token)).status == 201


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed_body"),
        (b'{"lastEventId":0,"state":NaN}', 400, "malformed_body"),
        (b'{"lastEventId":0,"state":{"a":1,"a":2}}', 400, "malformed_body"),
        (b'{"lastEventId":0}', 422, "invalid_snapshot"),
        (b'{"lastEventId":"0","state":1}', 422, "invalid_snapshot"),
        (b"[]", 422, "invalid_snapshot"),
    ],
)
async def test_what_is_no_snapshot_is_refused(gateway: Gateway, body: bytes, status: int, code: str) -> None:
    answer = await put(gateway, body)
    assert (answer.status, answer.code) == (status, code)
    assert (await gateway.get(PATH)).status == 404


async def test_a_state_that_is_too_large_is_413_with_sizes(gateway: Gateway) -> None:
    gateway.log.snapshots.max_bytes = 100
    answer = await put(gateway, {"lastEventId": 0, "state": "x" * 99})
    assert (answer.status, answer.code) == (413, "snapshot_too_large")
    assert (answer.json["size"], answer.json["limit"]) == (101, 100)
    assert (await put(gateway, {"lastEventId": 0, "state": "x" * 98})).status == 201


async def test_a_body_that_is_no_json_by_its_type_is_415(gateway: Gateway) -> None:
    answer = await fetch(gateway.port, "PUT", PATH, {"Content-Type": "text/plain"}, b"{}")
    assert answer.code == "unsupported_media_type"


async def test_a_stream_begins_with_the_state_and_names_no_starting_point(gateway: Gateway) -> None:
    await gateway.numbers("s1", 4)
    await put(gateway, {"lastEventId": 2, "state": {"n": 2}})
    stream = await gateway.stream("s1", "?snapshot=1")
    assert "x-start-event-id" not in stream.answer.headers
    frames = await stream.take(4)
    assert [frame.type for frame in frames] == ["session_snapshot", "t", "t", "replay_complete"]
    assert frames[0].json["data"] == {"lastEventId": 2, "state": {"n": 2}}


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_verdict_is_followed_by_the_state(start: Start, version: str) -> None:
    gateway = await start(ring_size=3)
    await gateway.numbers("s1", 9)
    await put(gateway, {"lastEventId": 8, "state": {"n": 8}})
    stream = await gateway.stream("s1", "?resync=snapshot&last_event_id=1", version=version)
    frames = await stream.take(4)
    assert [frame.type for frame in frames] == ["state_resync_required", "session_snapshot", "t", "replay_complete"]
    assert frames[0].json["data"]["snapshot"] == PATH


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?resync=", "invalid_resync"),
        ("?resync=Replay", "invalid_resync"),
        ("?resync=live&resync=live", "invalid_resync"),
        ("?snapshot=yes", "invalid_snapshot_parameter"),
    ],
)
async def test_a_wish_that_is_none_is_400_by_get_and_by_head(gateway: Gateway, query: str, code: str) -> None:
    answer = await gateway.get(f"/session/s1/events{query}")
    assert (answer.status, answer.code) == (400, code)
    assert (await fetch(gateway.port, "HEAD", f"/session/s1/events{query}")).status == 400


async def test_an_expired_session_with_a_final_state_is_the_state_and_then_204(start: Start) -> None:
    gateway = await start(log=MemoryLog(MemoryStore(log_ttl=0.5)))
    await gateway.numbers("s1", 3)
    await put(gateway, {"lastEventId": 3, "state": {"n": 3}, "final": True})
    await gateway.until(lambda: not gateway.log.store.stream(0).subjects, "the log expires")
    stream = await gateway.stream("s1")
    state, anchor = await stream.all()
    assert (state.type, state.id, state.json["data"]) == (
        "session_snapshot",
        None,
        {"lastEventId": 3, "state": {"n": 3}, "final": True},
    )
    assert anchor.raw == "id: 3"
    assert (await gateway.get("/session/s1/events", Last_Event_ID="3")).status == 204
