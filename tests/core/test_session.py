"""Session and task ids (contract 1.7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.errors import InvalidSessionId
from ringmere.core.session import check_session_id, fresh_session_id


@pytest.mark.parametrize("text", ["*", ">", "a.*", "a.>", "%3E", "%2A", "a.b", ".", ".."])
def test_sid_1_wildcards_and_separators_are_no_session_ids(text: str) -> None:
    with pytest.raises(InvalidSessionId):
        check_session_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "a\r\nPUB ev.x 1\r\nz",
        "a\tb",
        "a\n",
        "\n",
        "\0",
        "x" * 129,
        "x" * 300,
        "é",
        "",
        "a/b",
        "a%20b",
        "１",
        "$JS",
    ],
)
def test_sid_2_blanks_line_ends_lengths_and_other_scripts_are_no_session_ids(text: str) -> None:
    with pytest.raises(InvalidSessionId):
        check_session_id(text)


@pytest.mark.parametrize("text", ["a", "x" * 128, "A-Z_a:z@0~9=", "-", "00000000-0000-4000-8000-000000000001"])
def test_every_character_of_the_allow_list_may_stand_anywhere(text: str) -> None:
    assert check_session_id(text) == text


@given(st.text(max_size=140))
def test_an_id_is_one_literal_subject_token_or_refused(text: str) -> None:
    try:
        check_session_id(text)
    except InvalidSessionId:
        return
    assert 1 <= len(text) <= 128
    assert text.isascii()
    assert not set(text) & set(".*> /%\r\n\t\0")


def test_fresh_ids_are_ids_and_differ() -> None:
    fresh = {fresh_session_id() for _ in range(100)}
    assert len(fresh) == 100
    assert all(check_session_id(text) == text and len(text) == 22 for text in fresh)
