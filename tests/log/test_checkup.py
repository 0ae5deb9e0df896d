"""The rules of a check-up: what is in order, what is not, and what to do, from answers as NATS gives them."""

from __future__ import annotations

from typing import Any

import pytest

from ringmere.core.cursor import EpochRow, EpochTable
from ringmere.core.errors import LogUnavailable
from ringmere.log import checkup
from ringmere.log.connect import NoReply, NoResponders, NotPermitted
from ringmere.log.epoch_checkup import epoch_record
from ringmere.log.epoch_record import METADATA_KEY, EpochRecord
from ringmere.log.findings import BAD, CODES, OK, WARN, Finding, bad, exit_code, ok, warn
from ringmere.log.prove import SLOW, not_stored, stored
from ringmere.log.shape import StreamSettings

SETTINGS = StreamSettings()
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("version", "good"),
    [("2.9.25", False), ("2.11.9", False), ("2.12.0", True), ("2.15.1", True), ("3.0.0", True), ("unknown", False)],
)
def test_a_server_is_new_enough_from_2_12_on(version: str, good: bool) -> None:
    finding = checkup.server_version(version)
    assert finding.level == (OK if good else BAD)
    assert finding.final is not good
    assert good or "2.12" in finding.todo


def limits(**values: int) -> dict[str, Any]:
    return {
        "storage": 10,
        "reserved_storage": 100,
        "memory": 10,
        "streams": 4,
        "consumers": 9,
        "limits": {"max_storage": -1, "max_memory": -1, "max_streams": -1, "max_consumers": -1, **values},
    }


@pytest.mark.parametrize(
    ("given", "about", "level"),
    [
        ({}, None, None),
        ({"max_storage": 100}, None, None),
        ({"max_storage": 99}, "storage", BAD),
        ({"max_streams": 6}, None, None),
        ({"max_streams": 5}, "streams", BAD),
        ({"max_consumers": 9}, "consumers", BAD),
        ({"max_consumers": 10}, "consumers", WARN),
        ({"max_consumers": 100}, None, None),
        ({"max_memory": 0}, "memory", BAD),
    ],
)
def test_a_limit_of_the_account_counts_when_it_is_near(given: dict[str, int], about: str | None, level: str) -> None:
    found = {f.about: f.level for f in checkup.account_limits(limits(**given), SETTINGS, 2)}
    expected = {name: level if name == about else OK for name in ("storage", "memory", "streams", "consumers")}
    assert found == expected


def test_the_limits_of_a_tier_count_for_its_replicas() -> None:
    account = {**limits(), "tiers": {"R3": limits(max_streams=4)}}
    assert exit_code(checkup.account_limits(account, StreamSettings(replicas=3), 1)) == 1
    assert exit_code(checkup.account_limits(account, StreamSettings(replicas=1), 1)) == 0


def test_the_largest_event_is_what_nats_the_stream_and_the_settings_allow() -> None:
    assert "983040" in checkup.event_size(1024 * 1024, None, SETTINGS).text
    assert checkup.event_size(1024 * 1024, 2 * 1024 * 1024, SETTINGS).level == WARN
    assert checkup.event_size(8 * 1024 * 1024, 1024 * 1024, SETTINGS).level == OK
    asked = StreamSettings(max_event_bytes=4_000_000)
    finding = checkup.event_size(1024 * 1024, None, asked)
    assert finding.level == BAD
    assert "4065536" in finding.todo
    assert checkup.event_size(8 * 1024 * 1024, 8 * 1024 * 1024, asked).level == OK


def info(**parts: Any) -> dict[str, Any]:
    return {
        "created": "2026-01-01T00:00:00Z",
        "ts": "2026-01-01T01:00:00Z",
        "config": {"num_replicas": 3, "max_bytes": 1000, "max_consumers": 100, **parts.pop("config", {})},
        "state": {"bytes": 10, "consumer_count": 0, "last_seq": 9, **parts.pop("state", {})},
        "cluster": {"leader": "a", "replicas": [peer("b"), peer("c")]},
        **parts,
    }


def peer(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "current": True, "active": 1, **state}


@pytest.mark.parametrize(
    ("group", "level", "words"),
    [
        ({"leader": "a", "replicas": [peer("b"), peer("c")]}, OK, "3 of 3"),
        ({"replicas": [peer("b"), peer("c", offline=True)]}, BAD, "no leader"),
        ({"leader": "a", "replicas": [peer("b"), peer("c", offline=True, current=False)]}, BAD, "not heard of: c"),
        ({"leader": "a", "replicas": [peer("b"), peer("c", active=9 * SECOND)]}, BAD, "2 of 3 copies"),
        ({"leader": "a", "replicas": [peer("b"), peer("c", current=False, active=0)]}, BAD, "not heard of: c"),
        (
            {
                "leader": "a",
                "leader_since": "2026-01-01T00:59:58Z",
                "replicas": [peer("b"), peer("c", current=False, active=0)],
            },
            WARN,
            "c by 0",
        ),
        ({"leader": "a", "replicas": [peer("b")]}, BAD, "2 of 3"),
        ({"leader": "a", "replicas": [peer("b"), peer("c", current=False, lag=5)]}, WARN, "c by 5"),
        ({"leader": "a", "replicas": [peer("b"), peer("c", lag=5000)]}, WARN, "c by 5000"),
    ],
)
def test_copies_that_are_gone_are_bad_and_late_ones_worth_a_look(group: Any, level: str, words: str) -> None:
    finding = checkup.replicas("S", info(cluster=group))
    assert finding.level == level
    assert words in finding.text


def test_one_copy_on_a_single_server_is_what_was_asked_for() -> None:
    single = {"leader": "only"}
    assert checkup.replicas("S", info(config={"num_replicas": 1}, cluster=single)).level == OK
    assert (
        "the next loss stops it"
        in checkup.replicas("S", info(cluster={"leader": "a", "replicas": [peer("b"), peer("c", offline=True)]})).todo
    )


def test_a_full_ring_of_events_is_worth_a_look_and_a_full_bucket_bad() -> None:
    assert checkup.stream_room("S", info(state={"bytes": 900})).level == OK
    assert checkup.stream_room("S", info(state={"bytes": 990})).level == WARN
    assert checkup.stream_room("S", info(state={"bytes": 990}, config={"discard": "new"})).level == BAD
    assert checkup.stream_room("S", info(config={"max_bytes": -1})).level == WARN


@pytest.mark.parametrize(("used", "level"), [(0, OK), (79, OK), (80, WARN), (100, BAD)])
def test_consumers_count_against_their_limit(used: int, level: str) -> None:
    assert checkup.consumers("S", info(state={"consumer_count": used})).level == level


@pytest.mark.parametrize(
    ("follows", "level"),
    [
        ({"lag": 0, "active": SECOND}, OK),
        ({"lag": 2000, "active": SECOND}, WARN),
        ({"lag": 0, "active": 60 * SECOND}, BAD),
        ({"lag": 0, "active": -1}, BAD),
        ({"lag": 0, "active": SECOND, "error": {"description": "stream not found"}}, BAD),
    ],
)
@pytest.mark.parametrize("kind", ["mirror", "sources"])
def test_a_follower_that_is_silent_is_bad_whatever_its_lag_says(follows: dict[str, Any], level: str, kind: str) -> None:
    row = {"name": "O", **follows}
    [finding] = checkup.sources("S", info(**{kind: row if kind == "mirror" else [row]}))
    assert finding.level == level
    assert "O" in finding.text


def test_a_follower_that_has_just_been_made_may_have_heard_nothing_yet() -> None:
    row = {"name": "O", "lag": 0, "active": -1}
    [finding] = checkup.sources("S", info(sources=[row], ts="2026-01-01T00:00:03Z"))
    assert finding.level == OK


def test_a_stream_that_follows_nobody_has_nothing_to_tell() -> None:
    assert checkup.sources("S", info()) == []


@pytest.mark.parametrize(
    ("log_time", "level", "words"),
    [
        ("1970-01-01T00:16:40.5Z", OK, "within"),
        ("1970-01-01T00:16:39.6Z", OK, "within"),
        ("1970-01-01T00:16:43Z", WARN, "ahead of ours by 2.0 s"),
        ("1970-01-01T00:16:30Z", WARN, "behind ours by 10.0 s"),
        ("1970-01-01T01:16:40Z", BAD, "ahead of"),
    ],
)
def test_the_clocks_may_differ_by_what_the_question_took_and_half_a_second(
    log_time: str, level: str, words: str
) -> None:
    finding = checkup.clock("S", log_time, 1000 * SECOND, 1001 * SECOND)
    assert finding.level == level
    assert words in finding.text


def test_a_shape_that_differs_stops_a_start_and_is_told_row_by_row() -> None:
    finding = checkup.stream_shape("S", ["max_age is 1 s, wanted 2 s", "storage is memory, wanted file"])
    assert (finding.level, finding.final) == (BAD, True)
    assert "storage is memory" in finding.text
    assert "--reconcile" in finding.todo
    assert checkup.stream_shape("S", []).level == OK


def test_what_an_acknowledged_event_survives_follows_from_the_copies() -> None:
    assert "loss of 1" in checkup.durability(StreamSettings(replicas=3)).text
    assert "loss of 2" in checkup.durability(StreamSettings(replicas=5)).text
    assert "sync_interval" in checkup.durability(StreamSettings(replicas=1)).text


TABLE = EpochTable("b", (EpochRow(0, 1), EpochRow(1, 8)))
RECORD = EpochRecord(TABLE, "2026-01-01T00:00:00Z", 1)


def with_copy(record: EpochRecord, **parts: Any) -> dict[str, Any]:
    return info(config={"metadata": {METADATA_KEY: record.encode().decode()}}, **parts)


@pytest.mark.parametrize(
    ("stream", "record", "shards", "level", "final"),
    [
        (with_copy(RECORD), RECORD, 1, OK, False),
        (None, RECORD, 1, OK, False),
        (with_copy(RECORD), None, 1, BAD, False),
        (with_copy(RECORD), RECORD, 2, BAD, True),
        (with_copy(RECORD, created="2026-02-02T00:00:00Z"), RECORD, 1, WARN, False),
        (with_copy(RECORD, state={"last_seq": 7}), RECORD, 1, OK, False),
        (with_copy(RECORD, state={"last_seq": 6}), RECORD, 1, BAD, False),
        (with_copy(RECORD.promoted(9)), RECORD, 1, WARN, False),
        (info(), RECORD, 1, WARN, False),
        (info(config={"metadata": {METADATA_KEY: "damaged"}}), RECORD, 1, WARN, False),
    ],
)
def test_an_epoch_record_is_judged_against_its_stream(
    stream: Any, record: EpochRecord | None, shards: int, level: str, final: bool
) -> None:
    finding = epoch_record(0, stream, record, shards)
    assert (finding.level, finding.final) == (level, final)


def test_a_stream_that_ends_before_its_newest_epoch_begins_needs_a_bump() -> None:
    assert "epoch bump" in epoch_record(0, with_copy(RECORD, state={"last_seq": 3}), RECORD, 1).todo


def test_a_single_server_that_does_not_acknowledge_must_be_restarted_once_it_has_room() -> None:
    finding = not_stored("S", NoReply("no answer"), 1)
    assert "restart the server" in finding.todo
    assert "restart" not in not_stored("S", NoReply("no answer"), 3).todo
    assert "restart" in not_stored("S", LogUnavailable("insufficient resources (10023)"), 1).todo
    assert "shape" in not_stored("S", NoResponders("nothing answers"), 1).todo
    assert "permissions" in not_stored("S", NotPermitted("may not"), 1).todo


def test_a_slow_acknowledgement_is_worth_a_look() -> None:
    assert stored("S", 1, SLOW / 2).level == OK
    assert stored("S", 1, SLOW).level == WARN


def test_the_exit_code_is_the_worst_that_was_found() -> None:
    good, meant, wrong = ok("stream", "S", ""), warn("stream", "S", "", "do"), bad("stream", "S", "", "do")
    assert exit_code([good, meant]) == 0
    assert exit_code([good, wrong, meant]) == 1
    assert exit_code([wrong, wrong._replace(final=True)]) == 2


def test_what_is_not_in_order_says_what_to_do_and_each_code_is_listed() -> None:
    found: list[Finding] = [
        checkup.server_version("2.9.0"),
        *checkup.account_limits(limits(max_storage=1, max_consumers=1), SETTINGS, 0),
        checkup.replicas("S", info(cluster={"leader": "a", "replicas": []})),
        epoch_record(0, None, None, 1),
    ]
    assert all(bool(finding.todo) == (finding.level != OK) for finding in found)
    assert {finding.code for finding in found} <= set(CODES)
