"""Snapshots: what a body may be, and which id a state can cover."""

from __future__ import annotations

import json

import pytest

from ringmere.core.cursor import MAX_ID, EpochTable, SubjectBounds, event_id
from ringmere.core.errors import InvalidSnapshot, MalformedBody
from ringmere.core.snapshot import SnapshotDraft, covers, parse_snapshot

FRESH = EpochTable("b")


def test_a_body_is_taken_with_the_bytes_of_its_state() -> None:
    body = b'{"lastEventId": 7, "state": {"a": 1.50, "b": "\\u00fc"}, "final": true}'
    assert parse_snapshot(body) == SnapshotDraft(7, b'{"a": 1.50, "b": "\\u00fc"}', True)


def test_the_state_is_on_one_line() -> None:
    assert parse_snapshot(b'{"lastEventId":0,"state":{\n\t"a":\r[1,\n2]}}').state == b'{"a":[1,2]}'


@pytest.mark.parametrize("state", ["null", "0", '"x"', "[]", "{}", "false", '{"state":{"state":1}}'])
def test_a_state_is_any_json(state: str) -> None:
    assert parse_snapshot(b'{"lastEventId":1,"state":%b}' % state.encode()).state.decode() == state


@pytest.mark.parametrize("public_id", [0, 1, MAX_ID])
def test_an_id_is_any_that_an_event_can_have_or_0(public_id: int) -> None:
    assert parse_snapshot(b'{"lastEventId":%d,"state":1}' % public_id).last_event_id == public_id


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('[{"lastEventId":1,"state":1}]', "object"),
        ('{"state":1}', "lastEventId"),
        ('{"lastEventId":1}', "state"),
        ('{"lastEventId":-1,"state":1}', "lastEventId"),
        (f'{{"lastEventId":{MAX_ID + 1},"state":1}}', "lastEventId"),
        ('{"lastEventId":1.0,"state":1}', "lastEventId"),
        ('{"lastEventId":"1","state":1}', "lastEventId"),
        ('{"lastEventId":true,"state":1}', "lastEventId"),
        ('{"lastEventId":null,"state":1}', "lastEventId"),
        ('{"lastEventId":1,"state":1,"final":1}', "final"),
        ('{"lastEventId":1,"state":1,"eventEpoch":"x"}', "eventEpoch"),
    ],
)
def test_what_is_no_snapshot_is_refused_by_name(body: str, words: str) -> None:
    with pytest.raises(InvalidSnapshot, match=words):
        parse_snapshot(body.encode())


@pytest.mark.parametrize(
    "state",
    [
        b"NaN",
        b"1e999",
        b'{"a":1,"a":2}',
        b'"\\ud800"',
        b'"\xff"',
        b"[" * 64 + b"]" * 64,
        b"",
        b'"line\nbreak"',
    ],
)
def test_a_state_is_as_strict_as_an_event(state: bytes) -> None:
    with pytest.raises(MalformedBody):
        parse_snapshot(b'{"lastEventId":1,"state":%b}' % state)


def test_a_state_may_nest_as_deep_as_an_events_data() -> None:
    state = b"[" * 63 + b"]" * 63
    assert parse_snapshot(b'{"lastEventId":1,"state":%b}' % state).state == state
    json.loads(state)


STORED = SubjectBounds(tail=20, stream_first=1, first=5, last=15, stored=4)
EMPTY = SubjectBounds(tail=20, stream_first=1, first=0, last=0, stored=0)


@pytest.mark.parametrize(
    ("public_id", "bounds", "head", "present", "expected"),
    [
        (0, STORED, 0, False, True),
        (15, STORED, 0, True, True),
        (5, STORED, 0, True, True),
        (9, STORED, 0, False, False),
        (4, STORED, 0, False, True),
        (16, STORED, 0, False, False),
        (20, STORED, 0, False, False),
        (12, EMPTY, 12, False, True),
        (11, EMPTY, 12, False, True),
        (13, EMPTY, 12, False, False),
        (20, EMPTY, 0, False, True),
        (21, EMPTY, 0, False, False),
        (event_id(1, 3), STORED, 0, True, False),
    ],
)
def test_a_state_covers_what_the_session_has_had(
    public_id: int, bounds: SubjectBounds, head: int, present: bool, expected: bool
) -> None:
    assert covers(public_id, FRESH, bounds, head, present=present) is expected


def test_what_was_purged_covers_nothing() -> None:
    purged = SubjectBounds(tail=20, stream_first=1, first=12, last=15, stored=2, purged_to=10)
    assert not covers(10, FRESH, purged, 0, present=False)
    assert covers(11, FRESH, purged, 0, present=False)
    assert covers(0, FRESH, purged, 0, present=False)


def test_an_id_of_a_lost_range_covers_nothing() -> None:
    table = FRESH.promoted(10)
    bounds = SubjectBounds(tail=12, stream_first=1, first=1, last=12, stored=12)
    assert covers(10, table, bounds, 0, present=True)
    assert not covers(11, table, bounds, 0, present=True)
    assert covers(event_id(1, 11), table, bounds, 0, present=True)
