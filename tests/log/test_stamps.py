"""Server headers are read from the end of the block, whatever a publisher put before them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ringmere.log.stamps import NUM_PENDING, Stamp, direct_stamp, live_stamp, status, time_ns, trailing_count

FORGED = (
    b"NATS/1.0\r\nNats-Sequence: 99\r\nNats-Time-Stamp: 2001-01-01T00:00:00Z\r\nNats-Last-Sequence: 98\r\n"
    b"Nats-Num-Pending: 7\r\nNats-Rollup: sub\r\n"
)
OWN = b"Nats-Stream: S\r\nNats-Subject: a.b\r\nNats-Sequence: 5\r\nNats-Time-Stamp: 2026-11-30T18:51:51.8202889Z\r\n"
TIME = int(datetime(2026, 11, 30, 18, 51, 51, tzinfo=UTC).timestamp()) * 10**9 + 820_288_900


@pytest.mark.parametrize("front", [b"NATS/1.0\r\n", FORGED, b"NATS/1.0\r\nX: 1\r\n"])
def test_a_live_stamp_is_the_servers(front: bytes) -> None:
    assert live_stamp(front + OWN + b"Nats-Last-Sequence: 3\r\n\r\n") == (5, 3, TIME)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0 503\r\n\r\n",
        FORGED + b"\r\n",
        FORGED + OWN + b"\r\n",
        FORGED + OWN + b"Nats-Last-Sequence: x\r\n\r\n",
        FORGED + OWN + b"Nats-Last-Sequence: 3\r\nX: 1\r\n\r\n",
        b"NATS/1.0\r\nNats-Sequence: 1\r\nNats-Time-Stamp: now\r\nNats-Last-Sequence: 1\r\n\r\n",
    ],
)
def test_what_does_not_end_in_the_servers_headers_has_no_live_stamp(block: bytes) -> None:
    assert live_stamp(block) is None


@pytest.mark.parametrize("front", [b"NATS/1.0\r\n", FORGED])
def test_a_direct_stamp_is_the_servers_single_or_out_of_a_batch(front: bytes) -> None:
    assert direct_stamp(front + OWN + b"\r\n") == Stamp(5, TIME, 0, 0)
    batch = front + OWN + b"Nats-Num-Pending: 2\r\nNats-Last-Sequence: 4\r\n\r\n"
    assert direct_stamp(batch) == Stamp(5, TIME, 4, 2)


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 2\r\nNats-Last-Sequence: 5\r\n\r\n", 204),
        (b"NATS/1.0 404 Message Not Found\r\n\r\n", 404),
        (b"NATS/1.0 503\r\n\r\n", 503),
    ],
)
def test_a_status_is_no_message(block: bytes, code: int) -> None:
    assert direct_stamp(block) is None
    assert status(block) == code


def test_a_message_has_no_status_whatever_its_headers_say() -> None:
    assert status(b"NATS/1.0\r\nStatus: 204\r\n\r\n") == 0
    assert status(b"") == 0


def test_a_count_in_a_status_is_its_last_one() -> None:
    assert trailing_count(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 2\r\n\r\n", NUM_PENDING) == 2
    assert trailing_count(b"NATS/1.0 204 EOB\r\n\r\n", NUM_PENDING) is None
    assert trailing_count(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: x\r\n\r\n", NUM_PENDING) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1970-01-01T00:00:00Z", 0),
        (b"1970-01-01T00:00:00.000000001Z", 1),
        (b"1970-01-01T00:00:00.1Z", 100_000_000),
        (b"2026-11-30T18:51:51.8202889Z", TIME),
        (b"2026-12-01T00:00:00.5Z", int(datetime(2026, 12, 1, tzinfo=UTC).timestamp()) * 10**9 + 500_000_000),
    ],
)
def test_times_have_nanoseconds_with_as_many_digits_as_the_server_writes(text: bytes, expected: int) -> None:
    assert time_ns(text) == expected
    assert time_ns(text) == expected


@pytest.mark.parametrize("text", [b"", b"now", b"2026-11-30T18:51:51+01:00", b"2026-11-30T18:51:51,5Z"])
def test_what_is_no_utc_time_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        time_ns(text)
