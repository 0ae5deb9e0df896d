"""What a cancel may say, and how it is told (contract 10.3)."""

from __future__ import annotations

import json

import pytest

from ringmere.core.control import CancelFlag, describe_cancel, parse_cancel
from ringmere.core.errors import InvalidCancel, MalformedBody

LONG = json.dumps({"reason": "x" * 501}).encode()


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"", None), (b"{}", None), (b'{"reason":"x"}', "x"), (json.dumps({"reason": "☃" * 500}).encode(), "☃" * 500)],
)
def test_a_reason_is_taken_as_it_is(body: bytes, reason: str | None) -> None:
    assert parse_cancel(body) == reason


@pytest.mark.parametrize(
    "body",
    [b"[]", b"1", b"null", b'{"reason":""}', b'{"reason":null}', b'{"reason":1}', b'{"why":"x"}', LONG],
)
def test_what_is_no_cancel_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidCancel):
        parse_cancel(body)


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"reason":"a","reason":"b"}', b'{"reason":"\\ud800"}', b"[" * 99])
def test_what_is_no_strict_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        parse_cancel(body)


def test_a_flag_is_told_with_what_it_has() -> None:
    assert describe_cancel("s", "t", None) == {"sessionId": "s", "taskId": "t", "cancelled": False}
    told = describe_cancel("s", "t", CancelFlag(5, "why"))
    assert told == {"sessionId": "s", "taskId": "t", "cancelled": True, "requestedAt": 5, "reason": "why"}
    assert "reason" not in describe_cancel("s", "t", CancelFlag(5))
