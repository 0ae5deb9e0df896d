"""The parts of strict JSON that are not parsing: depth, lines, strings and long integers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.errors import MalformedBody
from ringmere.core.strict_json import ints_are_finite, load, one_line, outside_strings, too_deep

TEXT = st.text(st.sampled_from('ab"\\[]{}:,\n€\U0001f600'), max_size=8)
JSON = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=20,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max((depth(item) for item in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((depth(item) for item in value), default=0)
    return 0


@given(JSON, st.integers(0, 6), st.sampled_from([None, 1]))
def test_depth_is_what_a_parser_finds_at_any_limit(value: Any, limit: int, indent: int | None) -> None:
    assert too_deep(json.dumps(value, indent=indent).encode(), limit) is (depth(value) > limit)


@pytest.mark.parametrize(
    ("body", "deep"),
    [
        (b"[" * 65, True),
        (b"[" * 64, False),
        (b"]" * 1000, False),
        (b"[]" * 1000, False),
        (b'{"a":[' * 40, True),
        (b'"' + b"[" * 1000, False),
        (b"[" * 1_000_000 + b"]" * 1_000_000, True),
    ],
)
def test_depth_of_what_is_not_json_is_judged_without_a_parser(body: bytes, deep: bool) -> None:
    assert too_deep(body) is deep


@given(JSON, st.sampled_from([None, 0, "\t"]))
def test_one_line_keeps_the_value_and_has_no_control_bytes(value: Any, indent: int | str | None) -> None:
    line = one_line(json.dumps(value, indent=indent).encode())
    assert json.loads(line) == value
    assert min(line) >= 0x20


@pytest.mark.parametrize("body", [b"[1.50,-0,1E5]", b'{"a":"\\u20ac"}'])
def test_what_is_on_one_line_is_kept_byte_for_byte(body: bytes) -> None:
    assert one_line(body) == body


def test_numbers_keep_their_spelling_when_lines_are_joined() -> None:
    assert one_line(b"[1.50,\n-0,\r\n1E+5,\t0.10e-3]").replace(b" ", b"") == b"[1.50,-0,1E+5,0.10e-3]"


@pytest.mark.parametrize(
    ("body", "rest"),
    [
        (b'{"a":[1,"b"]}', b"{:[1,]}"),
        (b'["\\"[",1]', b"[,1]"),
        (b'["\\\\",1,"]"]', b"[,1,]"),
        (b'["\\\\\\"{",1]', b"[,1]"),
    ],
)
def test_strings_are_cut_out_by_their_own_quotes(body: bytes, rest: bytes) -> None:
    assert outside_strings(body) == rest


@pytest.mark.parametrize(
    ("body", "finite"),
    [
        (b"9" * 308, True),
        (b"9" * 309, False),
        (b"1" + b"0" * 308, True),
        (b"[1,{" + b'"a":-' + b"9" * 400 + b"}]", False),
        (b'"' + b"9" * 5000 + b'"', True),
        (b"1." + b"9" * 5000, True),
        (b"9" * 100_000, False),
    ],
)
def test_an_integer_is_finite_when_a_double_can_hold_it(body: bytes, finite: bool) -> None:
    assert ints_are_finite(body) is finite
    if not finite:
        with pytest.raises(MalformedBody):
            load(body)


def test_what_is_loaded_is_what_was_written() -> None:
    assert load(b' {"a": [1, -2.5e1, "\\ud83d\\ude00", null, true]} ') == {"a": [1, -25.0, "😀", None, True]}
