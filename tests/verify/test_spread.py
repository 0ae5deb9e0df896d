"""Quantiles of durations in growing buckets."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from ringmere.verify.spread import Spread

durations = st.lists(st.floats(min_value=1e-5, max_value=1e4), min_size=1, max_size=200)


def spread(values: list[float]) -> Spread:
    made = Spread()
    for value in values:
        made.add(value)
    return made


@given(durations, st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_5_percent_of_the_exact_one(values: list[float], part: float) -> None:
    exact = sorted(values)[math.ceil(part * len(values)) - 1]
    assert exact * 0.999 <= spread(values).quantile(part) <= exact * 1.051


@given(durations, durations)
def test_two_spreads_merged_are_one_of_all_values(first: list[float], second: list[float]) -> None:
    merged = spread(first)
    merged.merge(spread(second))
    whole = spread(first + second)
    assert merged.count == whole.count
    assert merged.longest == whole.longest
    assert [merged.quantile(part) for part in (0.1, 0.5, 0.99)] == [whole.quantile(part) for part in (0.1, 0.5, 0.99)]


def test_nothing_counted_is_zero_and_a_duration_below_zero_is_zero() -> None:
    empty = Spread()
    assert empty.quantile(0.5) == 0.0
    empty.add(-1.0)
    assert (empty.count, empty.longest, empty.quantile(0.5)) == (1, 0.0, 0.0)
