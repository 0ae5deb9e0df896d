"""Schemas of event types: what they let pass, what is told of a fault, and what can be no schema."""

from __future__ import annotations

from typing import Any

import pytest

from ringmere.core.errors import SchemaNotFound, SchemaViolation, UnknownType
from ringmere.core.limits import MAX_FAULT_CHARS, MAX_POINTER_CHARS
from ringmere.core.schemas import BadSchema, TypeSchemas, pointer_to

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def _fault(schema: Any, data: Any, index: int | None = None) -> SchemaViolation:
    with pytest.raises(SchemaViolation) as caught:
        TypeSchemas({"t.json": schema}).check("t", data, index)
    return caught.value


def test_data_that_fits_passes_and_other_data_is_told_where_it_does_not() -> None:
    TypeSchemas({"t.json": TEXT}).check("t", {"text": "x", "more": 1})
    error = _fault(TEXT, {"text": 5}, 7)
    assert (error.pointer, error.index) == ("/data/text", 7)
    assert str(error) == 'event 7: at /data/text: the value is not of type "string"'


@pytest.mark.parametrize(
    ("schema", "data", "pointer"),
    [
        ({"type": "string"}, 1, "/data"),
        ({"items": {"type": "integer"}}, [1, "x"], "/data/1"),
        ({"properties": {"a/b~c": {"const": 1}}}, {"a/b~c": 2}, "/data/a~1b~0c"),
        ({"additionalProperties": False}, {"x": 1}, "/data"),
        (False, None, "/data"),
        ({"type": "integer"}, 0.5, "/data"),
        ({"maximum": 5}, 10**400, "/data"),
    ],
)
def test_the_pointer_leads_to_the_fault(schema: Any, data: Any, pointer: str) -> None:
    assert _fault(schema, data).pointer == pointer


def test_what_is_told_of_a_fault_is_bounded_and_holds_no_value() -> None:
    secret = "s" * 10_000
    assert secret[:20] not in str(_fault({"type": "number"}, secret))
    assert len(str(_fault({"additionalProperties": False}, {secret: 1}))) <= MAX_FAULT_CHARS + 50
    deep = _fault({"additionalProperties": {"additionalProperties": {"type": "null"}}}, {"a": {secret: 1}})
    assert deep.pointer == "/data/a"
    assert len(pointer_to(["x"] * MAX_POINTER_CHARS)) <= MAX_POINTER_CHARS


def test_a_type_without_a_schema_passes_unless_each_must_have_one() -> None:
    TypeSchemas({"t.json": TEXT}).check("other", 1)
    with pytest.raises(UnknownType) as caught:
        TypeSchemas({"t.json": TEXT}, strict=True).check("other", 1, 3)
    assert caught.value.index == 3


def test_a_file_is_named_after_its_type_or_says_it_itself() -> None:
    schemas = TypeSchemas(
        {"chat.text.json": True, "a%2Fb%20%25.json": True, "long.json": {"x-type": "Ü" * 128, "type": "null"}}
    )
    assert schemas.types == ["a/b %", "chat.text", "Ü" * 128]
    assert schemas.document("Ü" * 128) == {"x-type": "Ü" * 128, "type": "null"}
    with pytest.raises(SchemaNotFound):
        schemas.document("long")


def test_schemas_of_one_directory_refer_to_each_other_by_file_and_by_id() -> None:
    schemas = TypeSchemas(
        {
            "name.json": {"$id": "https://example.com/name", "type": "string", "maxLength": 3},
            "by-file.json": {"properties": {"n": {"$ref": "name.json"}}},
            "by-id.json": {"properties": {"n": {"$ref": "https://example.com/name"}}},
        }
    )
    for type in ("by-file", "by-id"):
        schemas.check(type, {"n": "abc"})
        with pytest.raises(SchemaViolation):
            schemas.check(type, {"n": "abcd"})


def test_a_schema_that_leads_in_a_circle_ends() -> None:
    schemas = TypeSchemas({"t.json": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "u.json": {"$ref": "#"}})
    schemas.check("t", {"a": [1]})
    schemas.check("u", 1)


def test_a_pattern_takes_time_in_proportion_to_the_text() -> None:
    assert _fault({"pattern": "^(a+)+$"}, "a" * 500_000 + "b").pointer == "/data"


@pytest.mark.parametrize(
    ("documents", "told"),
    [
        ({"a.json": {"type": "strin"}}, "a.json: at /type"),
        ({"a.json": {"properties": {"b": {"minimum": "x"}}}}, "a.json: at /properties/b/minimum"),
        ({"a.json": 5}, "a.json"),
        ({"a.json": []}, "a.json"),
        ({"a.json": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "a.json: $schema"),
        ({"a.json": {"$schema": 5}}, "a.json: $schema"),
        ({"a.json": {"$id": 5}}, "a.json: at /$id"),
        ({"a.json": {"$id": "::"}}, "::"),
        ({"a.json": {"$ref": "https://example.com/b"}}, "https://example.com/b"),
        ({"a.json": {"$ref": "file:///etc/hostname"}}, "file:///etc/hostname"),
        ({"a.json": {"$ref": "b.json"}}, "b.json"),
        ({"a.json": {"$ref": "#/$defs/b"}}, "a.json"),
        ({"a.json": {"pattern": "(?=a)"}}, "a.json: at /pattern"),
        ({"a.json": {}, "%61.json": {}}, "a.json: type 'a' has a schema already, %61.json"),
        ({"a.json": {"$id": "https://e.com/"}, "b.json": {"$id": "https://e.com/"}}, "b.json: another"),
        ({"a%.json": {}}, "a%.json"),
        ({"a%ff.json": {}}, "a%ff.json"),
        ({"%0A.json": {}}, "%0A.json"),
        ({"a.json": {"x-type": 5}}, "a.json"),
        ({"replay_complete.json": {}}, "reserved"),
    ],
    ids=str,
)
def test_a_document_that_can_be_no_schema_is_named(documents: dict[str, Any], told: str) -> None:
    with pytest.raises(BadSchema) as caught:
        TypeSchemas(documents)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
