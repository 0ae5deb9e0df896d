"""The breaker: how many failures open it, what closes it, and that nothing late does either."""

from __future__ import annotations

import itertools

import pytest

from ringmere.core.breaker import TRANSITIONS, WARNING_REST, Breaker, Signal, State


def opened(failures: int = 3) -> Breaker:
    breaker = Breaker(failures, window=10.0)
    for second in range(failures):
        breaker.failed(float(second))
    assert breaker.state.value == "open"
    return breaker


def test_the_table_answers_every_signal_in_every_state() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Signal))


def test_only_enough_failures_or_a_failed_probe_open_and_only_a_stored_probe_closes() -> None:
    shut = {State.CLOSED, State.SUSPECTED}
    opening = {signal for (state, signal), after in TRANSITIONS.items() if state in shut and after not in shut}
    closing = {signal for (state, signal), after in TRANSITIONS.items() if state not in shut and after in shut}
    assert opening == {Signal.TRIPPED, Signal.PROBE_FAILED}
    assert closing == {Signal.PROBE_STORED}
    assert TRANSITIONS[State.CLOSED, Signal.PROBE_FAILED] is State.CLOSED


def test_the_last_failure_of_a_row_opens_it_and_says_so_once() -> None:
    breaker = Breaker(3, window=10.0)
    assert [breaker.failed(float(second)) for second in range(5)] == [False, False, True, False, False]
    assert breaker.open


def test_one_failure_is_enough_when_one_is_asked_for() -> None:
    breaker = Breaker(1, window=10.0)
    assert breaker.failed(0.0)


def test_a_stored_publish_ends_the_row() -> None:
    breaker = Breaker(2, window=10.0)
    for second in range(0, 20, 2):
        assert not breaker.failed(float(second))
        breaker.stored(second + 1.0)
    assert breaker.state.value == "closed"


@pytest.mark.parametrize(("pause", "opens"), [(10.0, True), (10.1, False)])
def test_a_failure_long_after_the_one_before_begins_a_new_row(pause: float, opens: bool) -> None:
    breaker = Breaker(2, window=10.0)
    breaker.failed(100.0)
    assert breaker.failed(100.0 + pause) is opens
    assert breaker.row == (2 if opens else 1)


def test_an_open_breaker_probes_after_the_pause_until_a_probe_is_stored() -> None:
    breaker = opened()
    for _ in range(3):
        assert breaker.due()
        assert breaker.state.value == "probing"
        assert breaker.open
        assert not breaker.probed(stored=False, now=5.0)
        assert breaker.state.value == "open"
    assert breaker.due()
    assert breaker.probed(stored=True, now=6.0)
    assert (breaker.state.value, breaker.row) == ("closed", 0)


def test_a_closed_breaker_begins_to_count_anew() -> None:
    breaker = opened(failures=2)
    breaker.due()
    breaker.probed(stored=True, now=2.0)
    assert not breaker.failed(3.0)
    assert breaker.failed(4.0)


def test_publishes_under_way_when_it_opened_change_nothing_by_their_end() -> None:
    breaker = opened()
    breaker.stored(3.0)
    assert breaker.state.value == "open"
    breaker.due()
    breaker.stored(4.0)
    breaker.failed(4.0)
    assert breaker.state.value == "probing"


def test_a_warning_asks_for_one_probe_and_publishes_pass_meanwhile() -> None:
    breaker = Breaker(3, window=10.0)
    assert breaker.warned(0.0)
    assert breaker.state.value == "suspected"
    assert not breaker.open
    assert not breaker.warned(0.1)
    assert breaker.probed(stored=False, now=1.0)
    assert breaker.state.value == "open"


def test_a_warning_that_the_probe_refutes_leaves_no_trace() -> None:
    breaker = Breaker(3, window=10.0)
    breaker.warned(0.0)
    assert not breaker.probed(stored=True, now=1.0)
    assert breaker.state.value == "closed"


def test_an_own_proof_answers_warnings_for_a_while() -> None:
    breaker = Breaker(3, window=10.0)
    breaker.stored(100.0)
    assert not breaker.warned(100.0 + WARNING_REST - 0.1)
    assert breaker.warned(100.0 + WARNING_REST)


def test_own_failures_open_a_suspected_breaker_before_its_probe_has_answered() -> None:
    breaker = Breaker(1, window=10.0)
    breaker.warned(0.0)
    assert breaker.failed(0.5)
    assert not breaker.warned(0.6)
    assert breaker.probed(stored=True, now=1.0)
    assert breaker.state.value == "closed"


def test_a_pause_that_ends_when_it_is_closed_already_asks_for_no_probe() -> None:
    assert not Breaker(3, window=10.0).due()
