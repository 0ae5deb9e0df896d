"""Delays: floors are kept, widths grow and are capped, and clients that fell together come back apart."""

from __future__ import annotations

import math
import random
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.client.backoff import Backoff, Waits, parse_retry_after


@given(st.integers(0, 10**6), st.floats(0, 1e6), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_below_the_floor_and_never_wider_than_the_cap(
    failures: int, floor: float, roll: float
) -> None:
    shape = Backoff()
    delay = shape.delay(failures, floor, roll)
    kept = min(floor, shape.longest_floor)
    assert kept <= delay <= kept + shape.widest


def test_the_random_part_doubles_with_each_failure_until_it_is_capped() -> None:
    shape = Backoff(first=2.0, widest=30.0)
    assert [shape.delay(failures, 5.0, 0.5) - 5.0 for failures in range(1, 8)] == [1, 2, 4, 8, 15, 15, 15]


def test_an_endless_floor_is_capped() -> None:
    assert Backoff(longest_floor=300.0).delay(1, math.inf, 0.0) == 300.0


def test_sdk_2_200_clients_dropped_at_once_spread_over_the_whole_interval() -> None:
    dice = random.Random(7)
    for failures in (1, 2, 3, 8):
        shape = Backoff()
        delays = [shape.delay(failures, 5.0, dice.random()) for _ in range(200)]
        assert min(delays) >= 5.0
        width = min(shape.widest, shape.first * 2 ** (failures - 1))
        tenths = [int((delay - 5.0) / width * 10) for delay in delays]
        assert max(tenths.count(tenth) for tenth in range(10)) <= 50
        assert len(set(tenths)) == 10


def test_a_servers_retry_lasts_and_a_single_wish_counts_once() -> None:
    waits = Waits(Backoff(retry=3.0, first=0.0), lambda: 0.5)
    assert waits.next() == 3.0
    waits.set_retry(1.0)
    waits.ask_once(5.0)
    waits.ask_once(4.0)
    assert [waits.next(), waits.next()] == [5.0, 1.0]


def test_progress_makes_the_next_failure_the_first_again() -> None:
    waits = Waits(Backoff(retry=0.0, first=1.0), lambda: 0.5)
    assert [waits.next(), waits.next(), waits.next()] == [0.5, 1.0, 2.0]
    waits.progress()
    assert waits.next() == 0.5
    assert waits.failures == 1


def test_a_server_that_says_each_time_when_to_come_back_is_not_waited_for_longer_and_longer() -> None:
    """As during an election: three answers in a row must not keep a client away for tens of seconds."""
    waits = Waits(Backoff(retry=0.0, first=2.0), lambda: 0.999)
    for _ in range(8):
        waits.ask_once(1.0)
        assert 1.0 <= waits.next() < 3.0
    assert waits.failures == 8


def test_an_answer_makes_the_next_silence_the_first() -> None:
    waits = Waits(Backoff(retry=0.0, first=1.0), lambda: 0.5)
    assert [waits.next() for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, 8.0]
    waits.ask_once(4.0)
    assert waits.next() == 4.0 + 0.5 * 4.0
    assert [waits.next(), waits.next()] == [0.5, 1.0]
    assert waits.failures == 8


def test_what_a_server_asks_for_never_widens_a_wait() -> None:
    shape = Backoff(first=2.0, widest=30.0)
    assert shape.delay(1, 20.0, 0.5, 20.0) == 20.0 + 1.0
    assert shape.delay(4, 20.0, 0.5, 20.0) == 20.0 + 8.0
    assert shape.delay(9, 100.0, 0.5, 100.0) == 100.0 + 15.0


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        (" 120 ", 120.0),
        ("0", 0.0),
        ("9" * 400, math.inf),
        (formatdate(NOW + 30, usegmt=True), 30.0),
        (formatdate(NOW - 30, usegmt=True), 0.0),
        (formatdate(NOW + 30, localtime=False), 30.0),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("٥", 0.0),
        ("soon", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_retry_after_is_digits_or_a_date_and_anything_else_asks_for_nothing(text: str | None, seconds: float) -> None:
    assert parse_retry_after(text, NOW) == seconds
