"""Typed events over HTTP: refused before the log is asked, the row and the place named; the schemas can be read."""

from __future__ import annotations

from typing import Any

import pytest

from ringmere.core.schemas import TypeSchemas
from support.doors import Gateway, Start
from support.raw_http import fetch

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
GOOD = {"type": "text", "data": {"text": "x"}}
BAD = {"type": "text", "data": {"text": 1}}
FREE = {"type": "free", "data": [1]}


async def _typed(start: Start, *, strict: bool = False, documents: dict[str, Any] | None = None) -> Gateway:
    schemas = TypeSchemas(documents or {"text.json": TEXT}, strict=strict)
    return await start(schemas=lambda: schemas)


async def test_an_event_that_does_not_fit_its_type_is_422_with_the_pointer_and_stores_nothing(start: Start) -> None:
    gateway = await _typed(start)
    answer = await gateway.post("s1", BAD)
    assert (answer.status, answer.code, answer.json["pointer"]) == (422, "schema_violation", "/data/text")
    assert "index" not in answer.json
    assert (await gateway.log.bounds("s1")).tail == 0
    assert (await gateway.post("s1", GOOD)).json["id"] == 1


@pytest.mark.parametrize("query", ["", "?atomic=1"])
async def test_one_row_that_does_not_fit_refuses_the_whole_batch(start: Start, query: str) -> None:
    gateway = await _typed(start)
    answer = await gateway.post("s1", [GOOD, FREE, BAD, GOOD], query=query)
    assert (answer.status, answer.code) == (422, "schema_violation")
    assert (answer.json["index"], answer.json["pointer"]) == (2, "/data/text")
    assert (await gateway.log.bounds("s1")).tail == 0
    assert (await gateway.post("s1", [GOOD, FREE], query=query)).status == 201


async def test_a_type_without_a_schema_passes_or_is_refused_when_strict(start: Start) -> None:
    assert (await (await _typed(start)).post("s1", FREE)).status == 201
    strict = await _typed(start, strict=True)
    answer = await strict.post("s1", [GOOD, FREE])
    assert (answer.status, answer.code, answer.json["index"]) == (422, "unknown_type", 1)
    assert (await strict.post("s1", GOOD)).status == 201


async def test_what_was_refused_before_is_refused_as_before(start: Start) -> None:
    gateway = await _typed(start, strict=True)
    for body, status, code in (
        ({"type": "replay_complete", "data": 1}, 422, "invalid_event"),
        ({"type": "text"}, 422, "invalid_event"),
        (b'{"type":"text","data":NaN}', 400, "malformed_body"),
    ):
        answer = await gateway.post("s1", body)
        assert (answer.status, answer.code) == (status, code)


async def test_an_event_that_is_live_only_must_fit_too(start: Start) -> None:
    gateway = await _typed(start)
    answer = await gateway.post("s1", BAD, {"Degraded": "allow"})
    assert (answer.status, answer.code) == (422, "schema_violation")


async def test_closing_a_session_is_the_services_own_event(start: Start) -> None:
    gateway = await _typed(start, strict=True)
    assert (await gateway.post("s1", GOOD)).status == 201
    stream = await gateway.stream("s1", "?from=start")
    closed = await fetch(gateway.port, "DELETE", "/session/s1")
    assert closed.status == 204
    assert [frame.type for frame in await stream.take(2)] == ["text", "session_closed"]


async def test_what_is_stored_already_is_read_whatever_the_schemas_say(start: Start) -> None:
    current: list[TypeSchemas | None] = [None]
    gateway = await start(schemas=lambda: current[0])
    await gateway.post("s1", BAD)
    current[0] = TypeSchemas({"text.json": TEXT}, strict=True)
    assert (await gateway.post("s1", BAD)).code == "schema_violation"
    frames = await (await gateway.stream("s1", "?from=start")).take(1)
    assert frames[0].data == {"text": 1}


async def test_the_types_are_listed_and_each_schema_is_shown_as_it_was_written(start: Start) -> None:
    gateway = await _typed(start, strict=True, documents={"text.json": TEXT, "a%2Fb.json": {"x": 1}})
    listed = (await gateway.get("/schemas")).json
    assert listed == {
        "schemas": [{"type": "a/b", "url": "/schemas/a%2Fb"}, {"type": "text", "url": "/schemas/text"}],
        "strict": True,
    }
    shown = [await gateway.get(row["url"]) for row in listed["schemas"]]
    assert [answer.json for answer in shown] == [{"x": 1}, TEXT]
    assert {answer.headers["content-type"] for answer in shown} == {"application/schema+json"}


async def test_without_schemas_there_are_none_and_everything_passes(gateway: Gateway) -> None:
    assert (await gateway.get("/schemas")).json == {"schemas": [], "strict": False}
    assert (await gateway.post("s1", BAD)).status == 201


@pytest.mark.parametrize("path", ["/schemas/none", "/schemas/%FF", "/schemas/", "/schemas/replay_complete"])
async def test_a_type_without_a_schema_is_404(start: Start, gateway: Gateway, path: str) -> None:
    for each in (gateway, await _typed(start)):
        answer = await each.get(path)
        assert (answer.status, answer.code) == (404, "schema_not_found")
