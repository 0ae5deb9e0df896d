"""``POST /session/{id}/events``: what is taken, what is refused with which code, and that nothing else happens."""

from __future__ import annotations

from typing import Any

import pytest

from ringmere.core.errors import EventTooLarge, LogUnavailable, RingmereError
from ringmere.core.event import RESERVED_TYPES
from support.doors import JSON, Gateway, Start
from support.raw_http import fetch

EVENTS = "/session/s1/events"
GOOD = {"type": "t", "data": 1}


async def _refused(gateway: Gateway, body: Any, status: int, code: str, headers: dict[str, str] | None = None) -> None:
    """The request gets its status and code, stores nothing, and the next good one works."""
    before = await gateway.log.bounds("s1")
    answer = await gateway.post("s1", body, headers)
    assert (answer.status, answer.code) == (status, code), answer.body
    assert await gateway.log.bounds("s1") == before
    assert (await gateway.post("s1", GOOD)).status == 201


async def test_an_event_is_answered_with_its_id_once_it_is_stored(gateway: Gateway) -> None:
    answer = await gateway.post("s1", {"type": "note", "data": {"a": [1, None]}, "_meta": {"k": 1}})
    assert (answer.status, answer.json) == (201, {"id": 1, "sessionId": "s1", "duplicate": False})
    frames = await (await gateway.stream("s1", "?from=start")).take(1)
    assert (frames[0].type, frames[0].data) == ("note", {"a": [1, None]})


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"t","data":NaN}',
        b'{"type":"t","data":-Infinity}',
        b'{"type":"t","data":1e999}',
        b'{"type":"t","data":[Infinity]}',
    ],
)
async def test_pub_1_numbers_that_json_has_not_are_malformed(gateway: Gateway, body: bytes) -> None:
    await _refused(gateway, body, 400, "malformed_body")


@pytest.mark.parametrize(
    "body",
    [rb'{"type":"t","data":"hi \ud83d there"}', rb'{"type":"t","data":{"\udc00":1}}', rb'{"type":"\ud83d","data":1}'],
)
async def test_pub_2_a_lone_surrogate_is_malformed_and_the_stream_goes_on(gateway: Gateway, body: bytes) -> None:
    stream = await gateway.stream("s1")
    await _refused(gateway, body, 400, "malformed_body")
    assert [frame.data for frame in await stream.take(1)] == [1]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[" * 2000 + b"]" * 2000, "malformed_body"),
        (b'{"type":"t","data":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "malformed_body"),
        (b"null", "malformed_body"),
        (b"[]", "invalid_batch"),
        (b'"x"', "malformed_body"),
        (b"12", "malformed_body"),
        (b"", "malformed_body"),
        (b" ", "malformed_body"),
        (b'{"type":"t","data":1', "malformed_body"),
        (b'{"type":"t","data":1}x', "malformed_body"),
        (b'{"type":"t","data":1}{"type":"t","data":1}', "malformed_body"),
        (b'{"a":"\xff"}', "malformed_body"),
        ('{"type":"t","data":1}'.encode("utf-16"), "malformed_body"),
        (b'{"type":"t","data":' + b"9" * 5000 + b"}", "malformed_body"),
        (b"\x00", "malformed_body"),
    ],
    ids=lambda value: repr(value[:16]) if isinstance(value, bytes) else value,
)
async def test_pub_3_odd_bodies_are_400(gateway: Gateway, body: bytes, code: str) -> None:
    await _refused(gateway, body, 400, code)


@pytest.mark.parametrize(
    "body",
    [b'{"type":"ok","type":"client_evicted","data":1}', b'{"type":"t","data":{"a":1,"a":2}}'],
)
async def test_pub_5_a_repeated_key_is_malformed(gateway: Gateway, body: bytes) -> None:
    await _refused(gateway, body, 400, "malformed_body")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "x\ndata: forged\n\nevent: admin", "data": 1},
        {"type": "x\r", "data": 1},
        {"type": "x\x00", "data": 1},
        {"type": "x\u2028y", "data": 1},
    ],
)
async def test_frm_1_a_type_cannot_end_its_line(gateway: Gateway, event: dict[str, Any]) -> None:
    stream = await gateway.stream("s1")
    await _refused(gateway, event, 422, "invalid_event")
    [frame] = await stream.take(1)
    assert (frame.type, frame.data) == ("t", 1)


@pytest.mark.parametrize("type", sorted(RESERVED_TYPES))
async def test_ctl_2_no_publisher_can_use_the_services_own_types(gateway: Gateway, type: str) -> None:
    await _refused(gateway, {"type": type, "data": 1}, 422, "invalid_event")


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "t"},
        {"data": 1},
        {"type": 1, "data": 1},
        {"type": None, "data": 1},
        {"type": "", "data": 1},
        {"type": "t" * 129, "data": 1},
        {"type": "t", "data": 1, "id": 7},
        {"type": "t", "data": 1, "v": 1},
        {"type": "t", "data": 1, "extra": 1},
        {"type": "t", "data": 1, "originatorClientId": 1},
        {"type": "t", "data": 1, "promptId": []},
        {"type": "t", "data": 1, "_meta": 1},
        {"type": "t", "data": 1, "terminal": 1},
        {"type": "t", "data": 1, "terminal": "true"},
    ],
)
async def test_json_that_is_no_event_is_422(gateway: Gateway, event: dict[str, Any]) -> None:
    await _refused(gateway, event, 422, "invalid_event")


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=nope",
        "application/json; charset=utf-16",
        "application/xml",
        "",
        "json",
    ],
)
async def test_pub_3_another_content_type_or_charset_is_415(gateway: Gateway, content_type: str) -> None:
    await _refused(gateway, GOOD, 415, "unsupported_media_type", {"Content-Type": content_type})


async def test_a_missing_content_type_is_415(gateway: Gateway) -> None:
    answer = await fetch(gateway.port, "POST", EVENTS, {}, b'{"type":"t","data":1}')
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "content_type", ["application/json;charset=UTF-8", "Application/JSON", "application/json; x=1"]
)
async def test_json_in_utf_8_is_taken_however_it_is_spelled(gateway: Gateway, content_type: str) -> None:
    assert (await gateway.post("s1", GOOD, {"Content-Type": content_type})).status == 201


async def test_a_batch_is_stored_in_its_order(gateway: Gateway) -> None:
    answer = await gateway.post("s1", [{"type": "t", "data": n} for n in range(3)])
    assert answer.status == 201
    assert answer.json == {
        "sessionId": "s1",
        "results": [{"id": n, "duplicate": False} for n in (1, 2, 3)],
    }
    assert (await gateway.post("s1", [GOOD] * 1000)).status == 201


async def test_a_batch_of_none_or_of_too_many_is_400(gateway: Gateway) -> None:
    await _refused(gateway, [], 400, "invalid_batch")
    await _refused(gateway, [GOOD] * 1001, 400, "invalid_batch")


async def test_one_bad_row_refuses_the_whole_batch_and_is_named(gateway: Gateway) -> None:
    await _refused(gateway, [GOOD, {"type": "error", "data": 1}], 422, "invalid_event")
    answer = await gateway.post("s1", [GOOD, GOOD, 7])
    assert (answer.status, answer.json["index"]) == (422, 2)


async def test_a_row_that_is_too_large_refuses_the_whole_batch(start: Start) -> None:
    gateway = await start()
    large = {"type": "t", "data": "x" * gateway.log.max_event_bytes}
    await _refused(gateway, [GOOD, large], 413, "event_too_large")
    await _refused(gateway, large, 413, "event_too_large")
    answer = await gateway.post("s1", large)
    assert answer.json["limit"] == gateway.log.max_event_bytes
    assert answer.json["size"] > answer.json["limit"]


async def test_rows_that_the_log_lost_make_it_207_with_a_code_a_row(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gateway.hub.publish_batch

    async def lossy(*arguments: Any, **options: Any) -> list[Any]:
        results = await whole(*arguments, **options)
        return [results[0], LogUnavailable("gone"), results[2]]

    monkeypatch.setattr(gateway.hub, "publish_batch", lossy)
    answer = await gateway.post("s1", [GOOD] * 3)
    assert answer.status == 207
    assert answer.json["results"] == [
        {"id": 1, "duplicate": False},
        {"code": "log_unavailable", "detail": "gone"},
        {"id": 3, "duplicate": False},
    ]


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([LogUnavailable("gone"), LogUnavailable("gone")], 503),
        ([EventTooLarge(2, 1), LogUnavailable("gone")], 207),
    ],
)
async def test_a_batch_of_which_nothing_went_for_one_reason_is_that_reason(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, results: list[RingmereError], status: int
) -> None:
    async def fail(*_: object, **__: object) -> list[RingmereError]:
        return results

    monkeypatch.setattr(gateway.hub, "publish_batch", fail)
    assert (await gateway.post("s1", [GOOD, GOOD])).status == status


async def test_an_atomic_batch_is_stored_or_not_as_a_whole(gateway: Gateway) -> None:
    answer = await gateway.post("s1", [GOOD, GOOD], {"Expected-Last-Event-Id": "0"}, "?atomic=1")
    assert (answer.status, [row["id"] for row in answer.json["results"]]) == (201, [1, 2])
    answer = await gateway.post("s1", [GOOD, GOOD], {"Expected-Last-Event-Id": "1"}, "?atomic=1")
    assert (answer.status, answer.code, answer.json["lastEventId"]) == (409, "wrong_last_event_id", 2)
    assert await gateway.publish("s1", 1) == [3]


@pytest.mark.parametrize("query", ["?atomic=yes", "?atomic=", "?atomic=1&atomic=1"])
async def test_atomic_is_0_or_1(gateway: Gateway, query: str) -> None:
    answer = await gateway.post("s1", [GOOD], query=query)
    assert (answer.status, answer.code) == (400, "invalid_atomic")


async def test_a_key_makes_a_retry_safe_and_belongs_to_its_body(gateway: Gateway) -> None:
    key = {"Idempotency-Key": "k1"}
    first, again = await gateway.post("s1", GOOD, key), await gateway.post("s1", GOOD, key)
    assert (first.status, again.status) == (201, 200)
    assert again.json == {"id": 1, "sessionId": "s1", "duplicate": True}
    other = await gateway.post("s1", {"type": "t", "data": 2}, key)
    assert (other.status, other.code) == (422, "key_reused")
    elsewhere = await gateway.post("s2", GOOD, key)
    assert (elsewhere.status, elsewhere.json["duplicate"]) == (201, False)


async def test_a_batch_retried_with_its_key_is_stored_once(gateway: Gateway) -> None:
    key = {"Idempotency-Key": "k"}
    batch = [{"type": "t", "data": n} for n in range(3)]
    first, again = await gateway.post("s1", batch, key), await gateway.post("s1", batch, key)
    assert (first.status, again.status) == (201, 200)
    assert again.json["results"] == [{"id": n, "duplicate": True} for n in (1, 2, 3)]


async def test_a_rows_own_key_wins_over_the_requests(gateway: Gateway) -> None:
    row = {"type": "t", "data": 1, "key": "mine"}
    await gateway.post("s1", row)
    answer = await gateway.post("s1", [{"type": "t", "data": 0}, row], {"Idempotency-Key": "batch"})
    assert answer.json["results"] == [{"id": 2, "duplicate": False}, {"id": 1, "duplicate": True}]


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 256, "a\tb"])
async def test_a_key_that_is_none_is_400(gateway: Gateway, key: str) -> None:
    await _refused(gateway, GOOD, 400, "invalid_key", {"Idempotency-Key": key})


async def test_a_key_given_twice_is_400(gateway: Gateway) -> None:
    headers = [*JSON.items(), ("Idempotency-Key", "a"), ("Idempotency-Key", "a")]
    answer = await fetch(gateway.port, "POST", EVENTS, headers, b'{"type":"t","data":1}')
    assert (answer.status, answer.code) == (400, "invalid_key")


async def test_an_expected_id_is_compared_with_the_sessions_last(gateway: Gateway) -> None:
    assert (await gateway.post("s1", GOOD, {"Expected-Last-Event-Id": "0"})).status == 201
    assert (await gateway.post("s1", GOOD, {"Expected-Last-Event-Id": "1"})).status == 201
    answer = await gateway.post("s1", GOOD, {"Expected-Last-Event-Id": "1"})
    assert (answer.status, answer.code, answer.json["lastEventId"]) == (409, "wrong_last_event_id", 2)


async def test_a_retry_with_its_key_is_a_duplicate_and_no_conflict(gateway: Gateway) -> None:
    headers = {"Idempotency-Key": "k", "Expected-Last-Event-Id": "0"}
    assert (await gateway.post("s1", GOOD, headers)).status == 201
    again = await gateway.post("s1", GOOD, headers)
    assert (again.status, again.json["id"], again.json["duplicate"]) == (200, 1, True)


@pytest.mark.parametrize("value", ["", "-1", "x", "1.0", "9007199254740992", "9" * 400])
async def test_an_expected_id_that_is_no_id_is_400(gateway: Gateway, value: str) -> None:
    await _refused(gateway, GOOD, 400, "invalid_expected_last_event_id", {"Expected-Last-Event-Id": value})


async def test_an_expected_id_on_a_plain_batch_is_400(gateway: Gateway) -> None:
    await _refused(gateway, [GOOD], 400, "invalid_expected_last_event_id", {"Expected-Last-Event-Id": "0"})


async def test_a_log_that_is_away_is_503_with_a_time_to_come_back(gateway: Gateway) -> None:
    async def away(method: str, session: str) -> None:
        raise LogUnavailable("away", 2.0)

    gateway.log.before = away
    answer = await gateway.post("s1", GOOD)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "log_unavailable", "2")
    answer = await gateway.post("s1", [GOOD, GOOD])
    assert (answer.status, answer.code) == (503, "log_unavailable")
    gateway.log.before = None
    assert await gateway.publish("s1", 1) == [1]
