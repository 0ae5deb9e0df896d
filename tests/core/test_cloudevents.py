"""CloudEvents in: which are accepted, what event each becomes, and which key makes a second try of it safe."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringmere.core.cloudevents import parse_binary, parse_structured, parse_structured_batch
from ringmere.core.errors import InvalidBatch, InvalidCloudEvent, InvalidEvent, MalformedBody, SchemaViolation
from ringmere.core.event import Draft, check_key
from ringmere.core.schemas import TypeSchemas

LEAST: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/here", "type": "t"}


def structured(**changes: Any) -> Draft:
    return parse_structured(json.dumps({**LEAST, **changes}).encode())


def stored(draft: Draft) -> dict[str, Any]:
    value = json.loads(draft.payload)
    assert isinstance(value, dict)
    return value


def binary(content_type: str | None, body: bytes, **headers: str) -> dict[str, Any]:
    return stored(parse_binary({**LEAST, **headers}, content_type, body))


def test_type_and_data_are_the_events_own_and_the_rest_is_kept() -> None:
    event = stored(structured(data={"a": [1]}, subject="s", time="2026-01-01T00:00:00.5+02:00", ext=7, flag=True))
    assert (event["type"], event["data"]) == ("t", {"a": [1]})
    assert event["_meta"] == {
        "cloudevent": {
            "specversion": "1.0",
            "id": "1",
            "source": "/here",
            "subject": "s",
            "time": "2026-01-01T00:00:00.5+02:00",
            "ext": 7,
            "flag": True,
        }
    }


def test_data_is_stored_in_the_publishers_own_bytes() -> None:
    body = b'{"specversion":"1.0","id":"1","source":"/","type":"t","data":{"n" : 1.50, "b":"\\u00e9"}}'
    assert b'"data":{"n" : 1.50, "b":"\\u00e9"}' in parse_structured(body).payload


def test_an_attribute_that_is_null_is_not_there_and_data_that_is_null_is() -> None:
    event = stored(structured(subject=None, data=None))
    assert event["_meta"]["cloudevent"].keys() == {"specversion", "id", "source"}
    assert event["data"] is None
    assert stored(structured())["_meta"]["cloudevent"]["data_absent"] is True


def test_extensions_that_are_fields_of_an_event_become_them() -> None:
    event = stored(structured(originatorclientid="a", promptid="p", terminal=True))
    assert (event["originatorClientId"], event["promptId"], event["terminal"]) == ("a", "p", True)
    assert event["_meta"]["cloudevent"].keys() == {"specversion", "id", "source", "data_absent"}
    assert structured(terminal="true").terminal
    assert not structured(terminal=False).terminal


def test_what_a_gateway_gave_out_of_its_own_is_not_taken_in() -> None:
    kept = stored(structured(ringmereid="9", ringmeresession="other"))["_meta"]["cloudevent"]
    assert not {"ringmereid", "ringmeresession"} & kept.keys()


def test_source_and_id_are_the_key() -> None:
    assert structured().key == "</here>1"
    assert structured(id="x" * 300).key != structured(id="y" * 300).key
    assert structured(source="/a>b").key != structured(source="/a", id="b>1").key
    for draft in (structured(id="ä b"), structured(source="/" * 300), structured(source="a>")):
        assert draft.key is not None
        assert draft.key.startswith("sha256:")
        assert check_key(draft.key) == draft.key
    assert parse_structured(json.dumps(LEAST).encode(), keyed=False).key is None


@pytest.mark.parametrize(
    "changes",
    [
        {"specversion": "0.3"},
        {"specversion": 1.0},
        {"specversion": None},
        {"id": ""},
        {"id": 1},
        {"id": None},
        {"source": ""},
        {"source": None},
        {"type": None},
        {"type": ""},
        {"type": 5},
        {"id": "a\u0000"},
        {"subject": ""},
        {"dataschema": ""},
        {"time": "yesterday"},
        {"time": "2026-13-01T00:00:00Z"},
        {"time": "2026-01-01"},
        {"datacontenttype": "json"},
        {"Upper": "x"},
        {"with_underscore": "x"},
        {"data_absent": True},
        {"ext": 1.5},
        {"ext": 1 << 31},
        {"ext": {}},
        {"terminal": "yes"},
        {"data": 1, "data_base64": "AA=="},
        {"data_base64": "?"},
        {"data_base64": "A"},
        {"data_base64": 1},
        {"data_base64": True},
    ],
    ids=str,
)
def test_what_is_no_cloudevent_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidCloudEvent):
        structured(**changes)


def test_a_type_that_no_event_may_have_is_refused_as_ever() -> None:
    for type in ("replay_complete", "open", "x" * 129):
        with pytest.raises(InvalidEvent) as caught:
            structured(type=type)
        assert caught.value.code == "invalid_event"


@pytest.mark.parametrize("body", [b"[]", b"1", b"{", b'{"specversion":"1.0","specversion":"1.0"}', b'{"a":NaN}'])
def test_a_body_that_is_no_object_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        parse_structured(body)


def test_a_batch_is_checked_whole_and_names_the_row() -> None:
    rows = [LEAST, {**LEAST, "id": "2", "data_base64": "AAE="}]
    drafts = parse_structured_batch(json.dumps(rows).encode())
    assert [draft.key for draft in drafts] == ["</here>1", "</here>2"]
    assert stored(drafts[1])["data"] == "AAE="
    with pytest.raises(InvalidCloudEvent) as caught:
        parse_structured_batch(json.dumps([LEAST, {**LEAST, "id": ""}]).encode())
    assert caught.value.index == 1
    with pytest.raises(InvalidCloudEvent):
        parse_structured_batch(json.dumps([LEAST, 5]).encode())
    with pytest.raises(InvalidBatch):
        parse_structured_batch(b"[]")
    with pytest.raises(MalformedBody):
        parse_structured_batch(json.dumps(LEAST).encode())


def test_its_data_is_held_to_the_schema_of_its_type() -> None:
    check = TypeSchemas({"t.json": {"type": "object"}}).check
    body = json.dumps([{**LEAST, "data": {}}, {**LEAST, "id": "2", "data": 1}]).encode()
    with pytest.raises(SchemaViolation) as caught:
        parse_structured_batch(body, check)
    assert (caught.value.index, caught.value.pointer) == (1, "/data")
    with pytest.raises(SchemaViolation):
        parse_binary(LEAST, "application/json", b"[]", check)


@pytest.mark.parametrize(
    ("content_type", "body", "data", "marks"),
    [
        ("application/json", b'{"a":1}', {"a": 1}, set()),
        ("application/problem+json; charset=utf-8", b"[1]", [1], set()),
        ("text/plain", b"null", "null", set()),
        ("text/plain; charset=utf-8", "Ü".encode(), "Ü", set()),
        ("text/plain; charset=iso-8859-1", b"a", "YQ==", {"data_base64"}),
        ("text/plain", b"\xff", "/w==", {"data_base64"}),
        ("image/png", b"\x00\x01", "AAE=", {"data_base64"}),
        (None, b"x", "eA==", {"data_base64"}),
        ("application/json", b"", None, {"data_absent"}),
        (None, b"", None, {"data_absent"}),
    ],
    ids=str,
)
def test_in_binary_mode_the_body_is_data_by_its_content_type(
    content_type: str | None, body: bytes, data: Any, marks: set[str]
) -> None:
    event = binary(content_type, body)
    kept = event["_meta"]["cloudevent"]
    assert event["data"] == data
    assert kept.get("datacontenttype") == content_type
    assert {name for name in kept if "_" in name} == marks


def test_in_binary_mode_attributes_are_percent_encoded_and_may_be_quoted() -> None:
    kept = binary(None, b"", subject="Euro%20%E2%82%AC", ext='"a \\" b"')["_meta"]["cloudevent"]
    assert (kept["subject"], kept["ext"]) == ("Euro €", 'a " b')
    assert parse_binary({**LEAST, "terminal": "true"}, None, b"").terminal


@pytest.mark.parametrize(
    "headers",
    [
        {"id": ""},
        {"subject": "%FF"},
        {"ext": "%00"},
        {"ext": "\udcff"},
        {"data": "x"},
        {"data_base64": "AA=="},
        {"datacontenttype": "text/plain"},
        {"a-b": "x"},
    ],
    ids=ascii,
)
def test_in_binary_mode_headers_that_are_no_attributes_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidCloudEvent):
        binary("application/json", b"1", **headers)


def test_in_binary_mode_json_is_as_strict_as_elsewhere() -> None:
    for body in (b"NaN", b'{"a":1,"a":2}', b"\xff", b"[" * 64 + b"]" * 64):
        with pytest.raises(MalformedBody):
            binary("application/json", body)
