"""Events: what a publisher may send, and how strictly what is stored is read back (contract 1.9, 2.1, 2.5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.errors import InvalidBatch, InvalidEvent, InvalidKey, MalformedBody, RingmereError
from ringmere.core.event import (
    RESERVED_TYPES,
    SKIP_REASONS,
    NotAnEvent,
    check_key,
    envelope,
    is_batch,
    is_terminal,
    make_payload,
    parse_batch,
    parse_draft,
)
from ringmere.core.limits import MAX_BATCH, MAX_DEPTH

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TYPES = TEXT.filter(lambda text: 1 <= len(text) <= 128 and text.isprintable() and text not in RESERVED_TYPES)
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def with_data(data: bytes) -> bytes:
    return b'{"type":"t","data":' + data + b"}"


def nested(levels: int) -> bytes:
    """An event that is ``levels`` deep, itself being the first."""
    return with_data(b"[" * (levels - 1) + b"]" * (levels - 1))


def skip_reason(payload: bytes) -> str:
    with pytest.raises(NotAnEvent) as caught:
        envelope(payload, 1, 2)
    return caught.value.reason


NOT_JSON = {
    "pub_1_nan": with_data(b"NaN"),
    "pub_1_infinity": with_data(b"Infinity"),
    "pub_1_minus_infinity": with_data(b"-Infinity"),
    "pub_1_1e999": with_data(b"1e999"),
    "pub_1_minus_1e999": with_data(b'[{"a":-1e999}]'),
    "pub_1_400_digits": with_data(b"9" * 400),
    "pub_2_lone_high_surrogate": with_data(b'"hi \\ud83d there"'),
    "pub_2_lone_low_surrogate": with_data(b'"\\uDE00"'),
    "pub_2_reversed_pair": with_data(b'"\\ude00\\ud83d"'),
    "pub_2_surrogate_in_a_key": with_data(b'{"\\ud83d":1}'),
    "pub_2_surrogate_in_the_type": b'{"type":"\\ud83d","data":1}',
    "pub_2_surrogate_in_meta": b'{"type":"t","data":1,"_meta":{"a":"\\udc00"}}',
    "pub_3_2000_open_brackets": b"[" * 2000 + b"]" * 2000,
    "pub_3_10000_unclosed": b'{"a":' * 10_000,
    "pub_3_null": b"null",
    "pub_3_array": b"[]",
    "pub_3_string": b'"x"',
    "pub_3_number": b"1",
    "pub_3_empty": b"",
    "pub_3_blank": b" \n",
    "pub_3_bad_utf8": with_data(b'"\xff"'),
    "pub_3_bad_utf8_key": b'{"a":"\xff"}',
    "pub_3_utf8_surrogate": with_data(b'"\xed\xa0\x80"'),
    "pub_3_utf16": '{"type":"t","data":1}'.encode("utf-16"),
    "pub_3_utf16_without_bom": '{"type":"t","data":1}'.encode("utf-16-le"),
    "pub_3_bom": b'\xef\xbb\xbf{"type":"t","data":1}',
    "pub_3_5000_digits": with_data(b"9" * 5000),
    "pub_3_5000_digit_exponent": with_data(b"1e" + b"9" * 5000),
    "pub_5_repeated_key": b'{"type":"ok","type":"client_evicted","data":1}',
    "pub_5_repeated_key_deep_down": with_data(b'[{"a":{"b":1,"b":2}}]'),
    "pub_5_repeated_key_by_escape": with_data(b'{"a":1,"\\u0061":2}'),
    "pub_5_repeated_key_with_spaces": with_data(b'{ "a" : 1 , "a" : "x:y" }'),
    "depth_65": nested(MAX_DEPTH + 1),
    "depth_65_mixed": with_data(b'{"a":[' * 32 + b"1" + b"]}" * 32),
    "trailing_text": with_data(b"1") + b" x",
    "trailing_nul": with_data(b"1") + b"\0",
    "raw_line_break_in_a_string": with_data(b'"a\nb"'),
    "leading_zero": with_data(b"01"),
    "plus_sign": with_data(b"+1"),
    "bare_fraction": with_data(b".5"),
    "vertical_tab": b'{"type":\x0b"t","data":1}',
    "single_quotes": b"{'type':'t','data':1}",
    "unclosed_string": with_data(b'"\\'),
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_a_body_that_is_not_strict_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        parse_draft(body)


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_what_a_publish_refuses_as_json_is_skipped_when_it_is_stored_by_others(body: bytes) -> None:
    assert skip_reason(body) in SKIP_REASONS


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pub_1_1e999", "bad_number"),
        ("pub_1_400_digits", "bad_number"),
        ("pub_3_5000_digits", "bad_number"),
        ("pub_2_lone_high_surrogate", "not_json"),
        ("pub_3_bad_utf8", "not_utf8"),
        ("pub_3_null", "not_an_event"),
        ("pub_5_repeated_key_deep_down", "repeated_key"),
        ("depth_65", "too_deep"),
        ("depth_65_mixed", "too_deep"),
    ],
)
def test_a_skip_says_why(name: str, reason: str) -> None:
    assert skip_reason(NOT_JSON[name]) == reason


NO_EVENT = {
    "no_type": b'{"data":1}',
    "type_is_a_number": b'{"type":1,"data":1}',
    "empty_type": b'{"type":"","data":1}',
    "type_of_129": b'{"type":"' + b"a" * 129 + b'","data":1}',
    "type_with_nul": b'{"type":"x\\u0000","data":1}',
    "type_with_line_separator": b'{"type":"x\\u2028","data":1}',
    "frm_1_type_with_line_break": b'{"type":"x\\ndata: forged\\n\\nevent: admin","data":1}',
    "frm_1_type_with_cr": b'{"type":"x\\rid: 9","data":1}',
    "no_data": b'{"type":"t"}',
    "null_prompt": b'{"type":"t","data":1,"promptId":null}',
    "originator_is_a_number": b'{"type":"t","data":1,"originatorClientId":5}',
    "meta_is_null": b'{"type":"t","data":1,"_meta":null}',
    "meta_is_an_array": b'{"type":"t","data":1,"_meta":[]}',
    "terminal_is_a_number": b'{"type":"t","data":1,"terminal":1}',
    **{f"ctl_2_{name}": b'{"type":"%b","data":1}' % name.encode() for name in sorted(RESERVED_TYPES)},
}


@pytest.mark.parametrize("body", NO_EVENT.values(), ids=NO_EVENT)
def test_json_that_is_no_event_is_refused_and_skipped(body: bytes) -> None:
    with pytest.raises(InvalidEvent):
        parse_draft(body)
    assert skip_reason(body) in ("not_an_event", "bad_type")


def test_ctl_2_the_reserved_types_are_those_of_the_contract() -> None:
    assert {
        "stream_opened", "state_resync_required", "replay_complete", "slow_client_warning", "client_evicted",
        "stream_error", "log_degraded", "log_restored", "server_draining", "session_snapshot", "error", "open",
    } == RESERVED_TYPES  # fmt: skip


@pytest.mark.parametrize("field", [b'"id":1', b'"v":1', b'"foo":1', b'"\\u0069d":1'])
def test_a_field_that_is_not_the_publishers_is_refused_but_left_out_of_what_others_stored(field: bytes) -> None:
    body = b'{"type":"t","data":1,' + field + b"}"
    with pytest.raises(InvalidEvent):
        parse_draft(body)
    assert json.loads(envelope(body, 7, 2).json) == {
        "id": 7, "v": 1, "type": "t", "data": 1, "_meta": {"serverTimestamp": 2},
    }  # fmt: skip


GOOD = {
    "null_data": with_data(b"null"),
    "depth_64": nested(MAX_DEPTH),
    "brackets_in_a_string": with_data(b'"' + b"[{" * 200 + b'"'),
    "brackets_behind_an_escaped_quote": with_data(b'"\\"' + b"[" * 200 + b'"'),
    "brackets_behind_an_escaped_backslash": with_data(b'["\\\\",' + b"[]," * 200 + b"1]"),
    "many_shallow_brackets": with_data(b"[" + b'{"a":[]},' * 500 + b"1]"),
    "surrogate_pair": with_data(b'"\\ud83d\\ude00"'),
    "escaped_backslash_before_u": with_data(b'"\\\\ud83d"'),
    "a_number_as_a_string": with_data(b'"' + b"9" * 5000 + b'"'),
    "5000_digit_fraction": with_data(b"1." + b"9" * 5000),
    "30_digits": with_data(b"1" * 30),
    "308_digits": with_data(b"9" * 308),
    "tiny": with_data(b"1e-999"),
    "minus_zero": with_data(b"-0"),
    "exponents": with_data(b"[1E5,1e+5,1.50e-3]"),
    "spaces_and_line_breaks": b'{\n "type" :\t"t",\r\n "data" : { "a:b" : [ 1 , 2 ] }\n}',
    "escapes": with_data(b'"\\u0000\\n\\/\\u20ac"'),
    "raw_unicode": with_data('"ü€😀\u2028\u0085\x7f"'.encode()),
    "type_128": b'{"type":"' + b"a" * 128 + b'","data":1}',
    "type_emoji": '{"type":"😀 x","data":1}'.encode(),
    "escaped_field_name": b'{"t\\u0079pe":"t","data":1}',
    "all_fields": b'{"promptId":"p","_meta":{"a":[1]},"data":{},"originatorClientId":"o","terminal":true,"type":"t"}',
}


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD)
def test_an_event_is_stored_on_one_line_and_read_back_with_equal_values(body: bytes) -> None:
    draft = parse_draft(body)
    assert not [byte for byte in draft.payload if byte < 0x20]
    read = json.loads(envelope(draft.payload, 9, 77).json)
    given = json.loads(body)
    given["_meta"] = {**given.get("_meta", {}), "serverTimestamp": 77}
    assert read == {"id": 9, "v": 1, **given}
    assert envelope(body, 9, 77).json.isascii() or envelope(body, 9, 77).json.decode()
    assert json.loads(envelope(body, 9, 77).json) == read


def test_data_is_spliced_through_as_the_publisher_wrote_it() -> None:
    data = b'{"b" : 1.50,"a":[1E5,"\\u20ac\\/"]}'
    draft = parse_draft(with_data(data))
    assert b'"data":' + data in draft.payload
    assert b'"data":' + data in envelope(draft.payload, 1, 2).json


@given(TYPES, JSON, st.booleans(), st.none() | st.dictionaries(TEXT, JSON, max_size=3))
def test_what_is_made_here_comes_back_from_the_envelope(
    type: str, data: Any, terminal: bool, meta: dict[str, Any] | None
) -> None:
    draft = make_payload(type, data, terminal=terminal, meta=meta)
    found = envelope(draft.payload, 5, 99)
    read = json.loads(found.json)
    assert (read["id"], read["v"], read["type"], read["data"]) == (5, 1, type, data)
    assert read.get("terminal", False) is terminal
    assert {name: value for name, value in read["_meta"].items() if name != "serverTimestamp"} == {
        name: value for name, value in (meta or {}).items() if name != "serverTimestamp"
    }
    assert found.type == type
    assert found.terminal == draft.terminal == is_terminal(draft.payload)


@given(JSON, st.sampled_from([None, 1, 4]), st.booleans())
def test_any_spelling_of_json_has_one_outcome_over_http_and_from_the_log(
    value: Any, indent: int | None, escaped: bool
) -> None:
    body = json.dumps({"type": "t", "data": value}, indent=indent, ensure_ascii=escaped).encode()
    assert json.loads(envelope(body, 1, 2).json) == json.loads(envelope(parse_draft(body).payload, 1, 2).json)


FRAGMENTS = st.sampled_from(
    [
        b'{"type":"t","data":', b'"type":', b'"data":', b'"_meta":', b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\",
        b'"a"', b"1", b"-", b"1e999", b"1e400", b"9" * 320, b"NaN", b"true", b"null", b"\xff", b"\xe2\x82\xac", b"\0",
        b"\n", b" ", b"\\ud83d", b'{"serverTimestamp":', b"\x1f", b"[" * 70, b"]" * 70,
    ]
)  # fmt: skip


@given(st.lists(FRAGMENTS, max_size=14).map(b"".join) | st.binary(max_size=60))
def test_garbage_is_skipped_or_read_but_never_raises_anything_else(payload: bytes) -> None:
    reason = None
    try:
        found = envelope(payload, 1, 2)
    except NotAnEvent as error:
        reason = error.reason
    if reason is None:
        assert json.loads(found.json)["id"] == 1
        assert b"\n" not in found.json
        assert b"\r" not in found.json
    else:
        assert reason in SKIP_REASONS
        assert not is_terminal(payload)


@given(st.lists(FRAGMENTS, max_size=14).map(b"".join) | st.binary(max_size=60))
def test_garbage_in_a_request_is_refused_by_the_tree_and_nothing_else(body: bytes) -> None:
    codes = {"none"}
    for parse in (parse_draft, parse_batch):
        try:
            parse(body)
        except RingmereError as error:
            codes.add(error.code)
    assert codes <= {"none", "malformed_body", "invalid_event", "invalid_batch", "invalid_key"}


@pytest.mark.parametrize(
    ("meta", "stamp"),
    [
        (b"{}", 1234),
        (b'{"serverTimestamp":5}', 5),
        (b'{"serverTimestamp":5.5}', 5.5),
        (b'{"serverTimestamp":-1e3}', -1000),
        (b'{"serverTimestamp":"5"}', 1234),
        (b'{"serverTimestamp":null}', 1234),
        (b'{"serverTimestamp":{"a":1}}', 1234),
        (b'{"serverTimestamp":true}', 1234),
    ],
)
def test_the_timestamp_is_the_logs_unless_the_publisher_gave_a_finite_number(meta: bytes, stamp: float) -> None:
    payload = parse_draft(b'{"type":"t","data":1,"_meta":' + meta + b"}").payload
    assert json.loads(envelope(payload, 1, 1234).json)["_meta"] == {"serverTimestamp": stamp}


def test_other_meta_keys_pass_through() -> None:
    payload = parse_draft(b'{"type":"t","data":1,"_meta":{"a":{"b":[1, 2]},"serverTimestamp":3,"c":""}}').payload
    assert json.loads(envelope(payload, 1, 9).json)["_meta"] == {"a": {"b": [1, 2]}, "serverTimestamp": 3, "c": ""}


@pytest.mark.parametrize(
    ("body", "terminal"),
    [
        (b'{"type":"t","data":1}', False),
        (b'{"type":"t","data":1,"terminal":false}', False),
        (b'{"type":"t","data":1,"terminal":true}', True),
        (b'{"type":"session_closed","data":{}}', True),
        (b'{"type":"session_died","data":{}}', True),
        (b'{"type":"session_closed","data":{},"terminal":false}', True),
    ],
)
def test_an_event_is_terminal_by_its_mark_or_by_its_type(body: bytes, terminal: bool) -> None:
    draft = parse_draft(body)
    assert draft.terminal is terminal
    assert is_terminal(draft.payload) is terminal


def test_the_key_of_a_row_is_taken_out_of_what_is_stored() -> None:
    draft = parse_draft(b'{"type":"t","data":1,"key":"k-1"}')
    assert draft.key == "k-1"
    assert b"k-1" not in draft.payload


@pytest.mark.parametrize("key", ["", "a b", "a\n", "é", "\x7f", "x" * 256])
def test_a_key_that_is_not_visible_ascii_is_refused(key: str) -> None:
    with pytest.raises(InvalidKey):
        check_key(key)
    with pytest.raises(InvalidKey):
        parse_draft(json.dumps({"type": "t", "data": 1, "key": key}).encode())


def test_a_key_of_255_visible_characters_is_one() -> None:
    assert check_key("~!" + "x" * 253)


def test_a_batch_gives_its_drafts_in_order() -> None:
    body = b' [ {"type":"a","data": 1 }\n, {"data":[2],"type":"b"} ] '
    assert [(draft.type, draft.payload) for draft in parse_batch(body)] == [
        ("a", b'{"type":"a","data":1}'),
        ("b", b'{"type":"b","data":[2]}'),
    ]


def test_one_bad_row_refuses_the_batch_and_is_named() -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse_batch(b'[{"type":"t","data":1},{"type":"t"}]')
    assert caught.value.index == 1


@pytest.mark.parametrize("rows", [0, MAX_BATCH + 1])
def test_a_batch_of_none_or_too_many_is_refused(rows: int) -> None:
    with pytest.raises(InvalidBatch):
        parse_batch(b"[" + b",".join([b'{"type":"t","data":1}'] * rows) + b"]")


def test_a_batch_may_be_as_long_as_the_limit_and_its_rows_as_deep() -> None:
    assert len(parse_batch(b"[" + b",".join([b'{"type":"t","data":1}'] * MAX_BATCH) + b"]")) == MAX_BATCH
    assert len(parse_batch(b"[" + nested(MAX_DEPTH) + b"]")) == 1
    with pytest.raises(MalformedBody):
        parse_batch(b"[" + nested(MAX_DEPTH + 1) + b"]")


@pytest.mark.parametrize("body", [b"1", b'"x"', b"null", b"{}", b"[1", b"[[1]]"])
def test_what_is_no_array_of_objects_is_no_batch(body: bytes) -> None:
    with pytest.raises((MalformedBody, InvalidEvent)):
        parse_batch(body)


@pytest.mark.parametrize(("body", "batch"), [(b" \r\n\t[", True), (b"[]", True), (b"{", False), (b"", False)])
def test_a_batch_is_told_by_its_first_character(body: bytes, batch: bool) -> None:
    assert is_batch(body) is batch


@pytest.mark.parametrize("data", [float("nan"), float("inf"), object(), {1, 2}, "\ud83d", 10**400])
def test_python_values_that_are_no_json_are_malformed(data: Any) -> None:
    with pytest.raises(MalformedBody):
        make_payload("t", data)


def test_a_python_value_that_holds_itself_or_is_too_deep_is_malformed() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for data in (loop, deep):
        with pytest.raises(MalformedBody):
            make_payload("t", data)


def test_a_reserved_type_is_refused_from_python_too() -> None:
    with pytest.raises(InvalidEvent):
        make_payload("replay_complete", {})


@pytest.mark.parametrize(
    ("meta", "more"),
    [(b"", {}), (b',"_meta":{"k":[1]}', {"k": [1]}), (b',"_meta":{"degraded":false,"serverTimestamp":"x"}', {})],
)
def test_an_event_that_no_log_has_says_so_and_has_no_id(meta: bytes, more: dict[str, Any]) -> None:
    made = envelope(b'{"type":"t","data":{"a":1},"promptId":"p"%b}' % meta, None, 77)
    assert json.loads(made.json) == {
        "v": 1, "type": "t", "data": {"a": 1}, "promptId": "p",
        "_meta": {**more, "serverTimestamp": 77, "degraded": True},
    }  # fmt: skip
