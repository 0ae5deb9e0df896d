"""The cursor of many sessions as text: what is written is read again, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.composite import format_composite, is_composite, parse_composite
from ringmere.core.cursor import MAX_ID

IDS = st.lists(st.integers(0, MAX_ID), min_size=1, max_size=64)


@given(IDS)
def test_a_cursor_that_was_written_is_read_as_the_same_ids(ids: list[int]) -> None:
    text = format_composite(ids)
    assert parse_composite(text, len(ids)) == tuple(ids)
    assert is_composite(text)


def test_with_one_shard_it_is_the_id_itself() -> None:
    assert format_composite([42]) == "42"
    assert parse_composite("42", 1) == (42,)
    assert format_composite([42, 0]) == "0:42,1:0"


@pytest.mark.parametrize(
    "text",
    [
        "", "7", "0:7", "0:7,", ",0:7", "0:7,1:", "0:7,1:-1", "0:7,1:+1", "0:7, 1:1", "1:1,0:7", "0:7,0:1", "0:7,2:1",
        "0:7,1:1,2:1", "0:7;1:1", "00:7,1:1", "0:7,1:9007199254740992", "0:7,1:1.0", "0:7,1:١", "0:7,01:1", "a:7,1:1",
        "0:7,1:1\n",
    ],
)  # fmt: skip
def test_anything_else_is_no_cursor_of_two_shards(text: str) -> None:
    assert parse_composite(text, 2) is None


@given(st.text(alphabet="0123456789:, -x", max_size=24), st.integers(1, 4))
def test_whatever_is_read_has_an_id_for_each_shard(text: str, shards: int) -> None:
    ids = parse_composite(text, shards)
    assert ids is None or (len(ids) == shards and all(0 <= one <= MAX_ID for one in ids))
