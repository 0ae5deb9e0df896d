"""The judge on evidence that was made up: what it must find, and what it must not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.verify.judge import Findings, judge
from ringmere.verify.ledger import Ledger
from ringmere.verify.witness import Witness

ALL_WRONGS = (
    "lost", "told", "duplicated", "again", "out_of_order", "unknown", "altered", "misnumbered", "backwards", "refused",
)  # fmt: skip


def ledger_of(ids: Sequence[int], unconfirmed: Sequence[int] = (), unstored: Sequence[int] = ()) -> Ledger:
    """A ledger whose event number *n* was acknowledged with ``ids[n - 1]`` at second *n*; 0 is not at all."""
    ledger = Ledger("s")
    for number, public_id in enumerate(ids, 1):
        ledger.send(number)
        if public_id:
            ledger.acknowledge(number, public_id, number)
        elif number in unconfirmed:
            ledger.give_up(number, maybe_stored=True)
        elif number in unstored:
            ledger.give_up(number, maybe_stored=False)
    return ledger


def witness_of(ledger: Ledger, deliveries: Sequence[tuple[int, int]], name: str = "r") -> Witness:
    """A reader that got these (number, id) in this order."""
    witness = Witness(ledger, name)
    for number, public_id in deliveries:
        witness.deliver(number, public_id, 100.0)
    return witness


def wrongs(findings: Findings) -> dict[str, int]:
    """All counts of what is wrong that are not zero."""
    return {name: getattr(findings, name) for name in ALL_WRONGS if getattr(findings, name)}


def verdict(ledger: Ledger, *witnesses: Witness) -> dict[str, int]:
    return wrongs(judge([ledger], witnesses))


ids_of_a_session = st.lists(st.integers(1, 1 << 40), min_size=1, max_size=60, unique=True).map(sorted)


@given(ids_of_a_session, st.integers(1, 4))
def test_everything_once_and_in_order_is_good(ids: list[int], readers: int) -> None:
    ledger = ledger_of(ids)
    got = list(enumerate(ids, 1))
    findings = judge([ledger], [witness_of(ledger, got) for _ in range(readers)])
    assert wrongs(findings) == {}
    assert findings.delivered == findings.due == len(ids) * readers


@given(ids_of_a_session, st.data())
def test_what_is_left_out_is_lost_and_nothing_else(ids: list[int], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.integers(1, len(ids)), min_size=1))
    ledger = ledger_of(ids)
    got = [(number, public_id) for number, public_id in enumerate(ids, 1) if number not in gone]
    assert verdict(ledger, witness_of(ledger, got)) == {"lost": len(gone)}


@given(ids_of_a_session, st.data())
def test_what_comes_again_at_any_later_place_is_duplicated(ids: list[int], data: st.DataObject) -> None:
    ledger = ledger_of(ids)
    got = list(enumerate(ids, 1))
    first = data.draw(st.integers(0, len(got) - 1))
    got.insert(data.draw(st.integers(first + 1, len(got))), got[first])
    assert verdict(ledger, witness_of(ledger, got)) == {"duplicated": 1}


@given(ids_of_a_session.filter(lambda ids: len(ids) > 1), st.data())
def test_two_neighbours_that_are_swapped_are_out_of_order(ids: list[int], data: st.DataObject) -> None:
    ledger = ledger_of(ids)
    got = list(enumerate(ids, 1))
    at = data.draw(st.integers(0, len(got) - 2))
    got[at], got[at + 1] = got[at + 1], got[at]
    assert verdict(ledger, witness_of(ledger, got)) == {"out_of_order": 1}


@dataclass
class Model:
    """What a stream does to a reader, counted in the plainest way: as sets and lists."""

    got: list[tuple[int, int]]

    def counts(self, ids: Sequence[int]) -> dict[str, int]:
        seen: set[int] = set()
        newest = duplicated = out_of_order = 0
        for number, public_id in self.got:
            if number in seen:
                duplicated += 1
            else:
                out_of_order += public_id < newest
            seen.add(number)
            newest = max(newest, public_id)
        lost = len(ids) - len(seen)
        found = {"lost": lost, "duplicated": duplicated, "out_of_order": out_of_order}
        return {name: count for name, count in found.items() if count}


@given(ids_of_a_session, st.randoms(use_true_random=False))
def test_it_agrees_with_a_plain_model_on_any_stream(ids: list[int], roll: random.Random) -> None:
    got = [pair for pair in enumerate(ids, 1) for _ in range(roll.choice([0, 1, 1, 1, 2]))]
    for _ in range(roll.randrange(3)):
        if len(got) > 1:
            at = roll.randrange(len(got) - 1)
            got[at], got[at + 1] = got[at + 1], got[at]
    ledger = ledger_of(ids)
    assert verdict(ledger, witness_of(ledger, got)) == Model(got).counts(ids)


@given(ids_of_a_session, st.randoms(use_true_random=False))
def test_any_number_of_resumes_with_an_overlap_is_counted_exactly(ids: list[int], roll: random.Random) -> None:
    got: list[tuple[int, int]] = []
    place = overlap = 0
    while place < len(ids):
        back = min(place, roll.choice([0, 0, 0, 1, 3]))
        overlap += back
        end = min(len(ids), place + roll.randint(1, 10))
        got += [(number + 1, ids[number]) for number in range(place - back, end)]
        place = end
    ledger = ledger_of(ids)
    assert verdict(ledger, witness_of(ledger, got)) == ({"duplicated": overlap} if overlap else {})


def test_an_unconfirmed_event_may_come_once_or_not_at_all() -> None:
    ledger = ledger_of([1, 0, 3], unconfirmed=[2])
    without, with_it = witness_of(ledger, [(1, 1), (3, 3)]), witness_of(ledger, [(1, 1), (2, 2), (3, 3)])
    assert verdict(ledger, without, with_it) == {}
    assert judge([ledger], [with_it]).unconfirmed == 1


def test_an_unconfirmed_event_that_comes_twice_is_duplicated() -> None:
    ledger = ledger_of([1, 0, 4], unconfirmed=[2])
    assert verdict(ledger, witness_of(ledger, [(1, 1), (2, 2), (2, 3), (3, 4)])) == {"duplicated": 1}


def test_readers_must_agree_on_the_id_of_an_unconfirmed_event() -> None:
    ledger = ledger_of([1, 0, 9], unconfirmed=[2])
    one, other = witness_of(ledger, [(1, 1), (2, 2), (3, 9)]), witness_of(ledger, [(1, 1), (2, 3), (3, 9)])
    assert verdict(ledger, one, other) == {"misnumbered": 1}


def test_what_was_answered_with_not_stored_must_not_come() -> None:
    ledger = ledger_of([1, 0], unstored=[2])
    assert verdict(ledger, witness_of(ledger, [(1, 1)])) == {}
    assert verdict(ledger, witness_of(ledger, [(1, 1), (2, 2)])) == {"unknown": 1}


@pytest.mark.parametrize("number", [0, -1, 3])
def test_what_was_never_sent_must_not_come(number: int) -> None:
    ledger = ledger_of([1, 2])
    assert verdict(ledger, witness_of(ledger, [(1, 1), (2, 2), (number, 3)])) == {"unknown": 1}


def test_another_id_than_was_acknowledged_is_found() -> None:
    ledger = ledger_of([1, 2, 3])
    assert verdict(ledger, witness_of(ledger, [(1, 1), (2, 20), (3, 30)])) == {"misnumbered": 2}


def test_two_events_that_exchanged_their_ids_are_found_though_ids_rise() -> None:
    ledger = ledger_of([1, 2])
    assert verdict(ledger, witness_of(ledger, [(2, 1), (1, 2)])) == {"misnumbered": 2}


def test_an_id_that_is_not_above_an_earlier_acknowledged_one_is_backwards() -> None:
    assert verdict(ledger_of([5, 4, 6])) == {"backwards": 1}


def test_events_that_were_sent_together_may_be_stored_in_any_order() -> None:
    ledger = Ledger("s")
    first, second = ledger.send(0.0), ledger.send(0.0)
    ledger.acknowledge(second, 1, 1.0)
    ledger.acknowledge(first, 2, 1.0)
    assert verdict(ledger, witness_of(ledger, [(second, 1), (first, 2)])) == {}


def test_a_loss_that_a_verdict_tells_is_told_and_one_outside_is_lost() -> None:
    ledger = ledger_of([1, 2, 3, 4, 5, 6])
    witness = Witness(ledger, "r")
    witness.deliver(1, 1, 0.0)
    witness.resync("ring_evicted", 4, 0.0)
    witness.deliver(5, 5, 0.0)
    witness.deliver(6, 6, 0.0)
    findings = judge([ledger], [witness])
    assert wrongs(findings) == {"lost": 1, "told": 2}
    assert findings.resyncs == {"ring_evicted": 1}
    assert "never got event 4" in findings.exhibits[0]


def test_a_verdict_without_an_earliest_id_tells_what_is_missing_up_to_the_next_event() -> None:
    ledger = ledger_of([1, 2, 3, 4, 5])
    witness = Witness(ledger, "r")
    witness.deliver(1, 1, 0.0)
    witness.resync("ring_evicted", None, 0.0)
    witness.deliver(3, 3, 0.0)
    witness.deliver(5, 5, 0.0)
    assert verdict(ledger, witness) == {"lost": 1, "told": 1}


def test_after_an_epoch_reset_the_ring_may_come_again_in_order() -> None:
    ledger = ledger_of([1, 2, 3, 4])
    witness = witness_of(ledger, [(1, 1), (2, 2), (3, 3)])
    witness.resync("epoch_reset", 1, 3.0)
    for number in (1, 2, 3, 4):
        witness.deliver(number, number, 5.0)
    assert verdict(ledger, witness) == {"again": 3}


def test_after_an_epoch_reset_a_double_is_still_a_double() -> None:
    ledger = ledger_of([1, 2, 3])
    witness = witness_of(ledger, [(1, 1), (2, 2)])
    witness.resync("epoch_reset", 1, 3.0)
    for number in (1, 2, 2, 3, 3):
        witness.deliver(number, number, 5.0)
    assert verdict(ledger, witness) == {"again": 2, "duplicated": 2}


def test_an_epoch_reset_tells_the_loss_of_what_was_acknowledged_before_it_and_of_nothing_later() -> None:
    ledger = ledger_of([1, 2, 3, 4])
    witness = witness_of(ledger, [(1, 1)])
    witness.resync("epoch_reset", 1, 2.5)
    witness.deliver(1, 1, 5.0)
    witness.deliver(4, 4, 5.0)
    assert verdict(ledger, witness) == {"again": 1, "told": 1, "lost": 1}


def test_the_longest_silence_spans_connections() -> None:
    witness = Witness(ledger_of([1]), "r")
    for at in (10.0, 11.0, 15.5, 16.0):
        witness.heard(at)
    assert witness.silence == 4.5


def test_delivery_is_measured_from_the_latest_try() -> None:
    ledger = Ledger("s")
    number = ledger.send(1.0)
    ledger.retry(number, 5.0)
    witness = Witness(ledger, "r")
    witness.deliver(number, 1, 5.5)
    assert witness.delay.longest == 0.5


def test_counts_of_sessions_and_readers_are_summed() -> None:
    ledgers = [ledger_of([1, 3]), ledger_of([2, 4])]
    witnesses = [witness_of(ledgers[0], [(1, 1)]), witness_of(ledgers[1], [(1, 2), (2, 4), (2, 4)])]
    findings = judge(ledgers, witnesses)
    assert (findings.sent, findings.acknowledged, findings.due, findings.delivered) == (4, 4, 4, 3)
    assert wrongs(findings) == {"lost": 1, "duplicated": 1}


def test_connections_beyond_the_first_that_nobody_wished_are_reconnects() -> None:
    witness = Witness(ledger_of([1]), "r")
    witness.connections, witness.drops = 6, 3
    assert judge([witness.ledger], [witness]).reconnects == 2
