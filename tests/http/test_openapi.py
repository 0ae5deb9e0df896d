"""The description of the routes is the routes."""

from __future__ import annotations

import re
from typing import Any

from openapi_spec_validator import validate

from ringmere.http.app import ROUTES
from ringmere.http.openapi import OPERATIONS, SCHEMAS, document
from ringmere.http.page import FILES
from ringmere.http.problems import PROBLEMS
from ringmere.http.refusals import REFUSALS
from support.doors import Gateway


def test_every_route_is_described_and_nothing_else() -> None:
    routes = {(method, path) for method, path, _ in ROUTES if path not in FILES}
    assert routes == set(OPERATIONS)


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*(_references(item) for item in value.values()))
    return set().union(*(_references(item) for item in value)) if isinstance(value, list) else set()


def test_every_reference_resolves_and_every_schema_is_used() -> None:
    names = {reference.removeprefix("#/components/schemas/") for reference in _references(document("0"))}
    assert names == set(SCHEMAS)


def test_it_is_an_openapi_document() -> None:
    validate(document("0"))


def test_every_route_names_its_refusals_and_every_code_stands_at_a_route() -> None:
    assert set(REFUSALS) == set(OPERATIONS)
    named = {code for codes in REFUSALS.values() for code in codes}
    # Those of no route, of every route, of nobody's wish, and the roots of the tree that nobody raises.
    others = {"method_not_allowed", "bad_request", "request_header_too_large", "internal_error"}
    assert named | others | {"invalid_input", "conflict"} == set(PROBLEMS)


def test_every_parameter_of_a_path_is_declared_once() -> None:
    for path, operations in document("0")["paths"].items():
        for operation in operations.values():
            declared = [row["name"] for row in operation["parameters"] if row["in"] == "path"]
            assert declared == re.findall(r"\{(\w+)\}", path)
            assert operation["responses"]


async def test_it_is_served_with_the_version_and_all_codes(gateway: Gateway) -> None:
    answer = await gateway.get("/openapi.json")
    assert answer.status == 200
    assert answer.json["openapi"] == "3.1.0"
    assert answer.json["info"]["version"] == gateway.app.door.options.version
    assert answer.json["components"]["schemas"]["Problem"]["properties"]["code"]["enum"] == sorted(PROBLEMS)


async def test_real_answers_have_the_fields_their_schemas_require(gateway: Gateway) -> None:
    await gateway.publish("s1", 1)
    seen = {
        "Published": (await gateway.post("s1", {"type": "t", "data": 1})).json,
        "PublishedBatch": (await gateway.post("s1", [{"type": "t", "data": 1}])).json,
        "ShownSession": (await gateway.get("/session/s1")).json,
        "SessionList": (await gateway.get("/sessions")).json,
        "State": (await gateway.get("/readyz")).json,
        "Capabilities": (await gateway.get("/capabilities")).json,
        "Problem": (await gateway.get("/nothing")).json,
    }
    for name, value in seen.items():
        schema = SCHEMAS[name]
        assert set(schema["required"]) <= value.keys(), name
        assert value.keys() <= schema["properties"].keys(), name
