"""What a load run measured: rates from sums, and every kind of failure a problem of its own."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from ringmere.core.errors import InvalidParameter
from ringmere.verify.figures import Figures
from ringmere.verify.load import Heard, LoadPlan, Sent

PLAN = LoadPlan(sessions=2, readers=2, rate=10, batch=1)


def figures(*heard: Heard, errors: dict[str, int] | None = None, stored: int = 10) -> Figures:
    sent = Sent(acknowledged=Counter({"a": stored}), errors=Counter(errors or {}), until=102.0)
    return Figures(PLAN, sent, heard or [good()], 100.0, 0.0)


def good(**other: object) -> Heard:
    return Heard(**{"session": "a", "events": 10, "bytes": 400, "connections": 1, "until": 104.0, **other})  # type: ignore[arg-type]


def test_rates_are_counts_over_the_time_until_the_last_of_them() -> None:
    told = figures(good(), good()).as_object()
    assert (told["eventsPerSecond"], told["deliveriesPerSecond"], told["bytesPerSecond"]) == (5.0, 5.0, 200)
    assert (told["ok"], told["problems"], told["missing"]) == (True, [], 0)
    assert json.loads(json.dumps(told)) == told


@pytest.mark.parametrize(
    ("heard", "words"),
    [
        (good(events=9), "1 deliveries missing"),
        (good(disordered=2), "2 twice or out of order"),
        (good(frames=Counter(state_resync_required=1)), "1 resyncs"),
        (good(errors=Counter(log_unavailable=3)), "3 stream errors: log_unavailable"),
        (good(broken="no stream"), "no stream"),
    ],
)
def test_what_a_reader_missed_or_was_told_is_a_problem(heard: Heard, words: str) -> None:
    [problem] = figures(good(), heard).problems()
    assert words in problem


def test_an_event_that_was_not_acknowledged_is_a_problem_and_so_are_none_at_all() -> None:
    assert figures(errors={"unreachable": 2}).problems() == ["2 events not acknowledged: unreachable"]
    assert figures(good(events=0), stored=0).problems() == ["no event was acknowledged"]


def test_an_eviction_that_was_made_up_for_is_counted_and_no_problem() -> None:
    told = figures(good(frames=Counter(client_evicted=1), connections=2)).as_object()
    assert (told["ok"], told["evictions"], told["reconnects"]) == (True, 1, 1)


def test_people_get_a_line_for_each_side() -> None:
    assert [label for label, _ in figures().lines()][:3] == ["load", "published", "delivered"]


@pytest.mark.parametrize("batch", [0, 1001])
def test_a_batch_that_no_gateway_takes_is_refused(batch: int) -> None:
    with pytest.raises(InvalidParameter):
        LoadPlan(batch=batch)
