"""Ids, cursors, epochs and the verdict, row by row and at every boundary of contract 1.1, 1.2, 3.2 and 4."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.cursor import (
    MAX_EPOCH,
    MAX_ID,
    EpochRow,
    EpochTable,
    Outcome,
    SubjectBounds,
    Verdict,
    decide,
    event_id,
    parse_cursor,
    parse_epoch_token,
    split_id,
)
from ringmere.core.errors import StartRefused

CONTIGUOUS, EVICTED, RESET = Outcome.CONTIGUOUS, Outcome.RING_EVICTED, Outcome.EPOCH_RESET


# ids


def test_ids_of_a_fresh_stream_are_its_sequences() -> None:
    assert [event_id(0, sequence) for sequence in (1, 2, 3)] == [1, 2, 3]


@given(st.integers(0, MAX_EPOCH), st.integers(0, 2**40 - 1))
def test_an_id_splits_into_what_it_was_made_of(epoch: int, sequence: int) -> None:
    public_id = event_id(epoch, sequence)
    assert split_id(public_id) == (epoch, sequence)
    assert public_id <= MAX_ID


# cursor text


@pytest.mark.parametrize(
    "text",
    [
        "-1", "abc", "1.5", "+1", "0x10", "1e3", "4_2", "1,2", "²", "٥", " 1", "1 ", "1\n", "\n1", "1\0", "42, 43",
        "½", "1٠", "１",
    ],
)  # fmt: skip
def test_cur_1_what_is_not_ascii_digits_is_no_cursor(text: str) -> None:
    assert parse_cursor(text) is None


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        ("9007199254740991", MAX_ID),
        ("9007199254740992", None),
        ("18446744073709551616", None),
        ("9" * 400, None),
        ("9" * 5000, None),
        ("0" * 5000 + "7", 7),
        ("00000000009007199254740991", MAX_ID),
    ],
)
def test_cur_2_the_largest_cursor_is_what_javascript_holds(text: str, cursor: int | None) -> None:
    assert parse_cursor(text) == cursor


def test_cur_3_an_empty_cursor_is_none_and_zero_is_a_cursor() -> None:
    assert parse_cursor("") is None
    assert parse_cursor("0") == 0
    assert parse_cursor("000") == 0


@given(st.text())
def test_no_text_raises_and_only_digits_are_a_cursor(text: str) -> None:
    cursor = parse_cursor(text)
    assert cursor is None or (set(text) <= set("0123456789") and cursor == int(text))


@pytest.mark.parametrize(
    ("token", "birth"),
    [
        ("abc-0", "abc"),
        ("0123456789abcdef-12", "0123456789abcdef"),
        ("abc", "abc"),
        ("a_b-C-3", "a_b-C"),
        ("x" * 64, "x" * 64),
        ("x" * 65, None),
        ("", None),
        ("a b", None),
        ("a-0\n", None),
        ("ä-0", None),
        (None, None),
    ],
)
def test_an_epoch_token_gives_its_birth_or_counts_as_absent(token: str | None, birth: str | None) -> None:
    assert parse_epoch_token(token) == birth


# epoch table


FRESH = EpochTable("b")
PROMOTED = FRESH.promoted(100)
RECREATED = FRESH.recreated(1)


def test_the_token_is_birth_and_newest_epoch() -> None:
    assert (FRESH.token, PROMOTED.token) == ("b-0", "b-1")


@pytest.mark.parametrize(
    ("epoch", "sequence", "known"),
    [(0, 1, True), (0, 100, True), (0, 101, False), (0, 2**40 - 1, False), (1, 101, True), (1, 2**40 - 1, True)],
)
def test_after_a_promotion_ids_up_to_the_tail_stay_known(epoch: int, sequence: int, known: bool) -> None:
    assert PROMOTED.known(event_id(epoch, sequence)) is known


@pytest.mark.parametrize("sequence", [1, 5, 2**40 - 1])
def test_after_a_recreation_all_older_ids_are_unknown(sequence: int) -> None:
    assert not RECREATED.known(event_id(0, sequence))
    assert RECREATED.known(event_id(1, sequence))


def test_a_second_loss_that_reaches_further_back_than_the_first_disowns_ids_of_both() -> None:
    table = EpochTable("b").promoted(7).promoted(4)
    assert [sequence for sequence in range(1, 12) if table.known(event_id(0, sequence))] == [1, 2, 3, 4]
    assert not table.known(event_id(1, 8))
    assert table.id_of(5) == event_id(2, 5)
    assert table.id_of(4) == 4


def test_an_epoch_that_is_given_must_be_above_all_others() -> None:
    assert EpochTable("b").promoted(7, 5).newest == EpochRow(5, 8)
    for epoch in (0, MAX_EPOCH + 1):
        with pytest.raises(ValueError, match="a new epoch is 1 to"):
            EpochTable("b").promoted(7, epoch)


def test_an_epoch_without_a_row_is_unknown() -> None:
    assert not FRESH.known(event_id(1, 5))
    assert not PROMOTED.known(MAX_ID)


def test_cursor_0_names_no_event_and_is_known_in_every_log() -> None:
    assert all(table.known(0) for table in (FRESH, PROMOTED, RECREATED, RECREATED.promoted(0)))


def test_ids_rise_strictly_over_promotions_and_recreations() -> None:
    table = FRESH.promoted(3)
    ids = [table.id_of(sequence) for sequence in range(1, 7)]
    assert ids == [1, 2, 3, event_id(1, 4), event_id(1, 5), event_id(1, 6)]
    again = table.recreated(1)
    assert again.id_of(1) == event_id(2, 1)
    assert again.id_of(1) > ids[-1]


def test_what_was_stored_before_a_promotion_keeps_its_id() -> None:
    assert [PROMOTED.id_of(sequence) for sequence in (1, 100)] == [1, 100]
    assert PROMOTED.promoted(200).id_of(150) == event_id(1, 150)


def test_a_recreation_voids_all_rows_but_the_new_one() -> None:
    table = PROMOTED.recreated(7)
    assert table.rows == (EpochRow(0, 1, True), EpochRow(1, 101, True), EpochRow(2, 7))


def test_a_table_with_all_epochs_used_refuses_another() -> None:
    full = EpochTable("b", (EpochRow(MAX_EPOCH, 1),))
    for add in (full.promoted, full.recreated):
        with pytest.raises(StartRefused):
            add(5)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=6), st.integers(1, 300))
def test_the_id_of_a_stored_sequence_is_always_known(steps: list[tuple[bool, int]], ahead: int) -> None:
    table, tail = EpochTable("b"), 0
    for recreate, written in steps:
        tail += written
        table = table.recreated(1) if recreate else table.promoted(tail)
        tail = 0 if recreate else tail
    assert table.known(table.id_of(table.newest.first + ahead))


# the verdict


def bounds(
    first: int,
    last: int,
    stored: int,
    *,
    tail: int | None = None,
    stream_first: int | None = None,
    purged_to: int = 0,
) -> SubjectBounds:
    return SubjectBounds(last if tail is None else tail, first if stream_first is None else stream_first,
                         first, last, stored, purged_to)  # fmt: skip


def judge(sequence: int, known: SubjectBounds, ring_size: int, present: bool, head: int | None = None) -> Verdict:
    return decide(sequence, known, ring_size=ring_size, present=present, head=head)


RING_3 = bounds(2, 5, 4, stream_first=1)
"""Ring 3 after events 1..5: 3, 4, 5 live, 2 is the fence; another session still holds sequence 1."""


def test_res_1_a_cursor_behind_the_fence_is_ring_evicted_and_the_fence_is_not_named() -> None:
    assert judge(1, RING_3, 3, False) == Verdict(EVICTED, 0, None, 3)


def test_res_2_the_cursor_at_the_fence_is_contiguous_and_the_one_before_is_not() -> None:
    assert judge(2, RING_3, 3, True) == Verdict(CONTIGUOUS, 2)
    assert judge(1, RING_3, 3, False).outcome is EVICTED


def test_res_3_an_emptied_subject_is_ring_evicted_with_the_next_id_as_earliest() -> None:
    emptied = bounds(0, 0, 0, tail=5, stream_first=6)
    assert judge(2, emptied, 3, False) == Verdict(EVICTED, 0, None, 6)


def test_res_5_ids_of_one_and_two_digits_are_compared_as_numbers() -> None:
    assert judge(9, bounds(1, 11, 11), 8000, True) == Verdict(CONTIGUOUS, 9)
    assert judge(10, bounds(2, 11, 10, stream_first=1), 9, True) == Verdict(CONTIGUOUS, 10)
    assert judge(9, bounds(10, 12, 3, stream_first=10), 2, False).outcome is EVICTED
    assert judge(11_990, bounds(4_000, 12_000, 8_001), 8000, True) == Verdict(CONTIGUOUS, 11_990)


def test_epo_1_a_cursor_beyond_the_tail_is_epoch_reset_and_the_last_one_is_not() -> None:
    log = bounds(1, 5, 5)
    assert judge(50, log, 8000, False) == Verdict(RESET, 0, None, 1)
    assert judge(6, log, 8000, False) == Verdict(RESET, 0, None, 1)
    assert judge(5, log, 8000, True) == Verdict(CONTIGUOUS, 5)


def test_epo_2_a_cursor_of_a_log_that_is_empty_now_is_epoch_reset_from_its_first_id() -> None:
    assert judge(50, bounds(0, 0, 0, tail=0, stream_first=1), 8000, False) == Verdict(RESET, 0, None, 1)


def test_cur_2_the_largest_cursor_is_ahead_of_every_log() -> None:
    epoch, sequence = split_id(MAX_ID)
    assert epoch == MAX_EPOCH
    assert judge(sequence, bounds(1, 5, 5), 8000, False).outcome is RESET


@pytest.mark.parametrize(("stored", "outcome"), [(3, CONTIGUOUS), (4, EVICTED)])
def test_cursor_0_is_evicted_exactly_when_a_fence_is_stored(stored: int, outcome: Outcome) -> None:
    verdict = judge(0, bounds(6 - stored, 5, stored), 3, False)
    assert verdict.outcome is outcome
    assert verdict.after == 0


def test_cursor_0_of_an_empty_subject_has_no_verdict() -> None:
    assert judge(0, bounds(0, 0, 0, tail=9, stream_first=1), 3, False) == Verdict(CONTIGUOUS, 0)


@pytest.mark.parametrize(
    ("head", "outcome"), [(None, EVICTED), (8, EVICTED), (7, CONTIGUOUS), (6, CONTIGUOUS), (5, CONTIGUOUS)]
)
def test_of_an_expired_subject_only_the_head_proves_that_nothing_is_missing(head: int | None, outcome: Outcome) -> None:
    verdict = judge(7, bounds(0, 0, 0, tail=20, stream_first=15), 3, False, head)
    assert verdict.outcome is outcome
    assert verdict.earliest == (None if outcome is CONTIGUOUS else 21)


def test_a_cursor_between_stored_ones_that_is_not_on_the_subject_is_foreign() -> None:
    interleaved = bounds(5, 9, 3, stream_first=1, tail=12)
    assert judge(6, interleaved, 8000, False) == Verdict(RESET, 0, "foreign_cursor", 5)
    assert judge(12, interleaved, 8000, False) == Verdict(RESET, 0, "foreign_cursor", 5)
    assert judge(7, interleaved, 8000, True) == Verdict(CONTIGUOUS, 7)


def test_a_jump_between_survivors_of_interleaved_sessions_is_no_gap() -> None:
    assert judge(5, bounds(5, 9, 3, stream_first=1), 3, True) == Verdict(CONTIGUOUS, 5)


@pytest.mark.parametrize(
    ("stream_first", "purged_to", "outcome"),
    [(1, 0, CONTIGUOUS), (5, 0, CONTIGUOUS), (6, 0, EVICTED), (1, 4, CONTIGUOUS), (1, 5, EVICTED)],
)
def test_below_the_first_only_proof_that_nothing_went_is_contiguous(
    stream_first: int, purged_to: int, outcome: Outcome
) -> None:
    verdict = judge(4, bounds(7, 9, 3, stream_first=stream_first, purged_to=purged_to), 3, False)
    assert verdict.outcome is outcome
    assert verdict.after == (4 if outcome is CONTIGUOUS else 0)
    assert verdict.earliest == (None if outcome is CONTIGUOUS else 7)


def test_below_a_fence_nothing_proves_that_nothing_went() -> None:
    assert judge(4, bounds(7, 10, 4, stream_first=1), 3, False) == Verdict(EVICTED, 0, None, 8)


def test_only_a_contiguous_verdict_is_no_gap() -> None:
    assert [Verdict(outcome, 0).is_gap for outcome in (CONTIGUOUS, EVICTED, RESET)] == [False, True, True]


class Session:
    """What really happened in one stream: the truth that a verdict is held against."""

    def __init__(self, ring_size: int) -> None:
        self.ring_size = ring_size
        self.tail = 0
        self.written: list[int] = []
        self.stored: list[int] = []
        self.others: list[int] = []
        self.purged_to = 0

    def step(self, action: str) -> None:
        if action in ("mine", "other"):
            self.tail += 1
        if action == "mine":
            self.written.append(self.tail)
            self.stored = [*self.stored, self.tail][-(self.ring_size + 1) :]
        elif action == "other":
            self.others.append(self.tail)
        elif action == "expire":
            oldest = min([*self.stored, *self.others], default=0)
            self.stored = [sequence for sequence in self.stored if sequence != oldest]
            self.others = [sequence for sequence in self.others if sequence != oldest]
        elif action == "purge":
            self.purged_to = max(self.stored, default=self.purged_to)
            self.stored = []

    def bounds(self) -> SubjectBounds:
        everything = [*self.stored, *self.others]
        first, last = (self.stored[0], self.stored[-1]) if self.stored else (0, 0)
        stream_first = min(everything, default=self.tail + 1)
        return SubjectBounds(self.tail, stream_first, first, last, len(self.stored), self.purged_to)


@given(
    st.sampled_from([1, 3]),
    st.lists(st.sampled_from(["mine", "mine", "mine", "other", "expire", "purge"]), max_size=40),
)
def test_contiguous_means_that_everything_after_the_cursor_is_deliverable(ring_size: int, actions: list[str]) -> None:
    session = Session(ring_size)
    for action in actions:
        session.step(action)
    live = session.stored[1:] if len(session.stored) > ring_size else session.stored
    head = session.written[-1] if session.written else None
    for cursor in session.written:
        verdict = decide(cursor, session.bounds(), ring_size=ring_size, present=cursor in session.stored, head=head)
        due = [sequence for sequence in session.written if sequence > cursor]
        if verdict.outcome is CONTIGUOUS:
            assert [sequence for sequence in live if sequence > cursor] == due
        else:
            assert verdict.outcome is EVICTED
            assert cursor not in session.stored
            assert due != live or session.bounds().stream_first > cursor + 1
            assert verdict.earliest is not None
            assert all(verdict.earliest <= sequence for sequence in live)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 3))
def test_an_uninterrupted_ring_judges_each_cursor_right(published: int, ring_size: int, stride: int) -> None:
    written = list(itertools.islice(itertools.count(1, stride), published))
    stored = written[-(ring_size + 1) :]
    fence = len(stored) > ring_size
    known = SubjectBounds(written[-1], 1, stored[0], stored[-1], len(stored))
    for index, cursor in enumerate(written):
        verdict = decide(cursor, known, ring_size=ring_size, present=cursor in stored)
        lost = index < len(written) - 1 - ring_size
        assert verdict.outcome is (EVICTED if lost else CONTIGUOUS)
        assert not (fence and verdict.earliest == stored[0])


@pytest.mark.parametrize(
    ("stream_first", "purged_to", "heads_kept", "outcome"),
    [
        (1, 0, True, Outcome.CONTIGUOUS),
        (11, 0, True, Outcome.CONTIGUOUS),
        (12, 0, True, Outcome.RING_EVICTED),
        (1, 10, True, Outcome.CONTIGUOUS),
        (1, 11, True, Outcome.RING_EVICTED),
        (1, 0, False, Outcome.RING_EVICTED),
    ],
)
def test_an_empty_subject_without_a_head_lost_nothing_only_when_that_is_provable(
    stream_first: int, purged_to: int, heads_kept: bool, outcome: Outcome
) -> None:
    """4.3 for a session that nobody has published to: without a head stream its silence proves nothing."""
    bounds = SubjectBounds(20, stream_first, 0, 0, 0, purged_to)
    assert decide(10, bounds, ring_size=5, present=False, heads_kept=heads_kept).outcome is outcome
