"""CloudEvents over HTTP in all three forms, as the official SDK sends them and by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from support.doors import Gateway
from support.raw_http import Answer, fetch

LEAST = {"specversion": "1.0", "id": "1", "source": "/here", "type": "note"}
TIME = datetime(2026, 1, 1, 12, tzinfo=UTC)
EVENTS = "/session/s1/events"


def event(data: Any, **attributes: Any) -> CloudEvent:
    own = {"id": "own", "source": "/here", "type": "note", "specversion": "1.0", "time": TIME}
    return CloudEvent({**own, **attributes}, data)


async def send(gateway: Gateway, message: HTTPMessage) -> Answer:
    return await fetch(gateway.port, "POST", EVENTS, message.headers, message.body)


async def post(gateway: Gateway, body: Any, content_type: str, **headers: str) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await fetch(gateway.port, "POST", EVENTS, {"Content-Type": content_type, **headers}, raw)


@pytest.mark.parametrize("form", [to_structured, to_binary])
@pytest.mark.parametrize(
    ("data", "content_type", "stored"),
    [
        ({"text": "Ü"}, "application/json", {"text": "Ü"}),
        ("plain", "text/plain", "plain"),
        (b"\x00\x01", "application/octet-stream", "AAE="),
    ],
)
async def test_what_the_official_sdk_sends_is_stored(
    gateway: Gateway, form: Any, data: Any, content_type: str, stored: Any
) -> None:
    sent = form(event(data, datacontenttype=content_type, subject="ä b"), JSONFormat())
    answer = await send(gateway, sent)
    assert (answer.status, answer.json["duplicate"]) == (201, False), answer.body
    [frame] = await (await gateway.stream("s1", "?from=start")).take(1)
    assert (frame.type, frame.data) == ("note", stored)
    kept = frame.json["_meta"]["cloudevent"]
    assert (kept["id"], kept["subject"], kept["datacontenttype"]) == ("own", "ä b", content_type)
    assert kept["time"] == "2026-01-01T12:00:00Z"


async def test_a_second_try_with_the_same_source_and_id_is_a_duplicate(gateway: Gateway) -> None:
    first, second = [await send(gateway, to_structured(event({"a": 1}), JSONFormat())) for _ in range(2)]
    assert (first.status, second.status, second.json["duplicate"]) == (201, 200, True)
    other = await send(gateway, to_structured(event({"a": 2}), JSONFormat()))
    assert (other.status, other.code) == (422, "key_reused")


async def test_a_key_of_the_request_stands_above_that(gateway: Gateway) -> None:
    body = {**LEAST, "data": 1}
    first = await post(gateway, body, "application/cloudevents+json", **{"Idempotency-Key": "a"})
    second = await post(gateway, body, "application/cloudevents+json", **{"Idempotency-Key": "b"})
    assert (first.status, second.status) == (201, 201)


async def test_a_batch_is_a_batch(gateway: Gateway) -> None:
    rows = [{**LEAST, "id": str(n), "data": n} for n in range(3)]
    answer = await post(gateway, rows, "application/cloudevents-batch+json")
    assert (answer.status, len(answer.json["results"])) == (201, 3)
    again = await post(gateway, rows, "application/cloudevents-batch+json")
    assert (again.status, {row["duplicate"] for row in again.json["results"]}) == (200, {True})
    bad = await post(gateway, [*rows, {**LEAST, "id": ""}], "application/cloudevents-batch+json")
    assert (bad.status, bad.code, bad.json["index"]) == (422, "invalid_cloudevent", 3)


@pytest.mark.parametrize(
    ("body", "content_type", "headers", "status", "code"),
    [
        ({"id": "1"}, "application/cloudevents+json", {}, 422, "invalid_cloudevent"),
        ([LEAST], "application/cloudevents+json", {}, 400, "malformed_body"),
        (LEAST, "application/cloudevents-batch+json", {}, 400, "malformed_body"),
        ([], "application/cloudevents-batch+json", {}, 400, "invalid_batch"),
        (b"{", "application/cloudevents+json", {}, 400, "malformed_body"),
        (LEAST, "application/cloudevents+avro", {}, 415, "unsupported_media_type"),
        (LEAST, "application/cloudevents+json; charset=latin-1", {}, 415, "unsupported_media_type"),
        (LEAST, "application/cloudevents+json", {"Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
        (b"1", "application/json", {"Ce-Specversion": "1.0"}, 422, "invalid_cloudevent"),
        (b"1", "text/plain", {"Ce-Id": "1"}, 415, "unsupported_media_type"),
        (b"", "text/plain", {"Ce-Specversion": "1.0", "Content-Encoding": "br"}, 415, "unsupported_media_type"),
    ],
    ids=str,
)
async def test_what_is_none_is_refused_with_its_code_and_stores_nothing(
    gateway: Gateway, body: Any, content_type: str, headers: dict[str, str], status: int, code: str
) -> None:
    answer = await post(gateway, body, content_type, **headers)
    assert (answer.status, answer.code) == (status, code)
    assert (await gateway.log.bounds("s1")).tail == 0


async def test_a_header_that_comes_twice_is_refused(gateway: Gateway) -> None:
    headers = [("Content-Type", "application/json"), ("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-id", "2")]
    answer = await fetch(gateway.port, "POST", EVENTS, headers, b"1")
    assert (answer.status, answer.code) == (422, "invalid_cloudevent")


async def test_an_event_that_is_too_large_with_its_attributes_is_413(gateway: Gateway) -> None:
    room = gateway.log.max_event_bytes
    answer = await post(gateway, {**LEAST, "data": "x" * (room - 30)}, "application/cloudevents+json")
    assert (answer.status, answer.code) == (413, "event_too_large")
