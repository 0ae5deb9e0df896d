"""The bounded queue of a reader against its table and against an independent model (contract 6.2 to 6.4)."""

from __future__ import annotations

from fractions import Fraction
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.backlog import TRANSITIONS, Backlog, Frame, Level, Overflow, State
from ringmere.core.frames import control_frame
from ringmere.core.limits import MAX_MAX_QUEUED, MIB, MIN_MAX_QUEUED
from ringmere.core.reasons import CloseReason


def frame(seq: int, size: int = 10) -> Frame:
    return Frame(seq, b"<%d>" % seq, size)


def filled(backlog: Backlog, frames: int, size: int = 10) -> list[bool | CloseReason]:
    start = backlog.last_seq + 1
    return [backlog.offer(frame(seq, size)) for seq in range(start, start + frames)]


def drain_to(backlog: Backlog, frames: int) -> None:
    while backlog.frames > frames:
        backlog.take(1)


def test_the_table_has_a_row_for_each_state_that_accepts_and_each_level() -> None:
    assert set(TRANSITIONS) == {(state, level) for state in (State.OK, State.WARNED) for level in Level}


def test_an_offer_at_the_frame_cap_evicts_with_queue_overflow() -> None:
    backlog = Backlog(16, MIB)
    assert CloseReason.QUEUE_OVERFLOW not in filled(backlog, 16)
    assert backlog.offer(frame(17)) is CloseReason.QUEUE_OVERFLOW
    assert (backlog.frames, backlog.last_seq, backlog.state) == (16, 16, State.EVICTED)


def test_an_offer_beyond_the_byte_cap_evicts_with_queue_bytes_overflow() -> None:
    backlog = Backlog(16, 100)
    assert backlog.offer(frame(1, 60)) is False
    assert backlog.offer(frame(2, 41)) is CloseReason.QUEUE_BYTES_OVERFLOW
    assert (backlog.frames, backlog.bytes, backlog.last_seq) == (1, 60, 1)


def test_an_offer_that_fills_the_byte_cap_exactly_is_accepted() -> None:
    backlog = Backlog(16, 100)
    assert backlog.offer(frame(1, 60)) is False
    assert backlog.offer(frame(2, 40)) is True


def test_the_frame_cap_is_asked_before_the_byte_cap() -> None:
    backlog = Backlog(16, 160)
    filled(backlog, 16)
    assert backlog.offer(frame(17, 1000)) is CloseReason.QUEUE_OVERFLOW


def test_one_event_larger_than_the_byte_cap_is_accepted_on_an_empty_backlog_only() -> None:
    backlog = Backlog(16, 100)
    assert backlog.offer(frame(1, 1000)) is True
    assert backlog.offer(frame(2, 1)) is CloseReason.QUEUE_BYTES_OVERFLOW
    waiting = Backlog(16, 100)
    waiting.offer(frame(1, 1))
    assert waiting.offer(frame(2, 1000)) is CloseReason.QUEUE_BYTES_OVERFLOW


def test_a_backlog_with_only_control_frames_is_empty_for_the_byte_cap() -> None:
    backlog = Backlog(16, 100)
    backlog.push_control(b"control")
    assert backlog.offer(frame(1, 1000)) is True


def test_after_an_eviction_every_offer_is_refused_with_its_reason_even_when_drained() -> None:
    backlog = Backlog(16, MIB)
    filled(backlog, 17)
    drain_to(backlog, 0)
    assert backlog.offer(frame(99)) is CloseReason.QUEUE_OVERFLOW
    assert backlog.last_seq == 16


def test_bpr_4_a_warning_comes_once_an_episode_and_again_after_a_real_drain() -> None:
    backlog = Backlog(16, MIB)
    assert filled(backlog, 14) == [False] * 11 + [True, False, False]
    drain_to(backlog, 6)
    assert filled(backlog, 6) == [False] * 6
    drain_to(backlog, 5)
    assert filled(backlog, 7) == [False] * 6 + [True]


def test_the_byte_level_warns_and_rearms_by_the_same_fractions() -> None:
    backlog = Backlog(256, 80)
    assert filled(backlog, 6) == [False] * 5 + [True]
    assert backlog.threshold() == "bytes"
    drain_to(backlog, 3)
    assert filled(backlog, 3) == [False] * 3
    drain_to(backlog, 2)
    assert filled(backlog, 4) == [False] * 3 + [True]


def test_it_rearms_only_when_both_frames_and_bytes_are_low() -> None:
    backlog = Backlog(16, 1600)
    filled(backlog, 12)
    drain_to(backlog, 1)
    assert backlog.offer(frame(50, 1000)) is False
    assert backlog.state is State.WARNED
    drain_to(backlog, 0)
    assert backlog.offer(frame(51, 600)) is False
    assert backlog.state is State.OK


@pytest.mark.parametrize(
    ("frames", "size", "named"),
    [(11, 1, None), (12, 1, "frames"), (1, 75, "bytes"), (12, 7, "frames_and_bytes"), (1, 74, None)],
)
def test_the_warning_names_the_cap_that_was_reached(frames: int, size: int, named: str | None) -> None:
    backlog = Backlog(16, 100)
    filled(backlog, frames, size)
    assert backlog.threshold() == named


@pytest.mark.parametrize("cap", [MIN_MAX_QUEUED, 17, 18, 19, 255, 256, MAX_MAX_QUEUED])
def test_the_marks_are_not_rounded_for_any_cap(cap: int) -> None:
    backlog = Backlog(cap, MIB * MIB)
    warned_at = next(frames for frames in count(1) if backlog.offer(frame(frames)))
    assert warned_at == min(n for n in range(cap + 1) if Fraction(n, cap) >= Fraction(3, 4))
    low = max(n for n in range(cap + 1) if Fraction(n, cap) <= Fraction(3, 8))
    drain_to(backlog, low)
    backlog.offer(frame(9000))
    assert backlog.state is State.WARNED
    drain_to(backlog, low - 1)
    backlog.offer(frame(9001))
    assert backlog.state is State.OK


def test_take_joins_frames_in_order_and_gives_at_least_one() -> None:
    backlog = Backlog(16, MIB)
    filled(backlog, 2)
    backlog.push_control(b"<control>")
    filled(backlog, 1)
    assert backlog.take(1) == b"<1>"
    assert backlog.take(1000) == b"<2><control><3>"
    assert backlog.take(1000) == b""
    assert (backlog.frames, backlog.bytes) == (0, 0)


def test_clear_forgets_the_frames() -> None:
    backlog = Backlog(16, MIB)
    filled(backlog, 5)
    backlog.clear()
    assert (backlog.frames, backlog.bytes, backlog.take(1000)) == (0, 0, b"")


def test_a_reader_that_is_not_evicted_is_told_of_the_overflow_and_takes_offers_again_once_drained() -> None:
    backlog = Backlog(16, MIB, Overflow.CATCHUP)
    filled(backlog, 16)
    assert backlog.offer(frame(17)) is CloseReason.QUEUE_OVERFLOW
    assert (backlog.frames, backlog.last_seq, backlog.state, backlog.evicted) == (16, 16, State.WARNED, None)
    drain_to(backlog, 0)
    assert backlog.offer(frame(30)) is False
    assert backlog.state is State.OK


def test_it_knows_the_newest_event_that_was_handed_over() -> None:
    backlog = Backlog(16, MIB)
    backlog.begin(7)
    assert (backlog.handed, backlog.handed_event, backlog.last_seq) == (7, 0, 7)
    filled(backlog, 3)
    backlog.push_control(b"control")
    backlog.take(1)
    assert (backlog.handed, backlog.handed_event, backlog.last_seq) == (8, 8, 10)
    backlog.take(1000)
    assert (backlog.handed, backlog.last_seq) == (10, 10)


VERDICT = control_frame("state_resync_required", {"reason": "ring_evicted"}, 1)
WARNING = control_frame("slow_client_warning", {"threshold": "frames"}, 1)


def test_events_that_will_be_read_again_are_dropped_with_the_verdicts_between_them_and_nothing_else() -> None:
    backlog = Backlog(16, MIB)
    filled(backlog, 4)
    backlog.take(1)
    backlog.push_control(WARNING)
    backlog.push_verdict(VERDICT, 9)
    filled(backlog, 1)
    assert backlog.drop_events() == 4
    assert (backlog.frames, backlog.bytes, backlog.last_seq) == (0, 0, 1)
    assert backlog.take(1000) == WARNING


def test_a_verdict_behind_which_no_event_came_is_dropped_and_one_before_an_event_stays() -> None:
    backlog = Backlog(16, MIB)
    backlog.begin(5)
    backlog.push_verdict(VERDICT, 9)
    backlog.offer(frame(10))
    backlog.drop_trailing_verdict()
    backlog.push_verdict(VERDICT, 20)
    backlog.push_control(WARNING)
    assert backlog.last_seq == 20
    backlog.drop_trailing_verdict()
    assert backlog.last_seq == 10
    assert backlog.take(1000) == VERDICT + b"<10>" + WARNING


def test_a_verdict_takes_the_place_of_one_that_no_event_has_followed() -> None:
    backlog = Backlog(16, MIB)
    backlog.begin(5)
    backlog.push_verdict(b"first", 9)
    backlog.push_verdict(b"second", 12)
    assert (backlog.last_seq, backlog.handed) == (12, 5)
    assert not backlog.idle
    assert backlog.take(1000) == b"second"
    assert (backlog.handed, backlog.handed_event, backlog.idle) == (12, 0, True)


class Model:
    """The rules of contract 6.3 and 6.4 as prose would do them, with fractions and a plain list."""

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        self.max_frames = max_frames
        self.max_bytes = max_bytes
        self.sizes: list[int] = []
        self.warned = False
        self.out: str | None = None

    def offer(self, size: int) -> bool | str:
        if self.out is None and len(self.sizes) >= self.max_frames:
            self.out = "queue_overflow"
        if self.out is None and self.sizes and sum(self.sizes) + size > self.max_bytes:
            self.out = "queue_bytes_overflow"
        if self.out is not None:
            return self.out
        self.sizes.append(size)
        frames = Fraction(len(self.sizes), self.max_frames)
        fill = Fraction(sum(self.sizes), self.max_bytes)
        if self.warned and frames <= Fraction(375, 1000) and fill <= Fraction(375, 1000):
            self.warned = False
        if not self.warned and (frames >= Fraction(75, 100) or fill >= Fraction(75, 100)):
            self.warned = True
            return True
        return False


OFFERS = st.integers(1, 400).map(lambda size: ("offer", size))
TAKES = st.integers(1, 12).map(lambda frames: ("take", frames))
CONTROLS = st.just(("control", 0))


@given(
    st.integers(16, 40),
    st.integers(16, 3000),
    st.lists(st.one_of(OFFERS, OFFERS, OFFERS, TAKES, CONTROLS), max_size=150),
)
def test_the_backlog_equals_the_model_step_by_step(
    max_frames: int, max_bytes: int, steps: list[tuple[str, int]]
) -> None:
    backlog, model = Backlog(max_frames, max_bytes), Model(max_frames, max_bytes)
    seq = 0
    for step, value in steps:
        if step == "offer":
            seq += 1
            answer = backlog.offer(frame(seq, value))
            assert (answer.label if isinstance(answer, CloseReason) else answer) == model.offer(value)
        elif step == "control":
            backlog.push_control(b"c")
        else:
            keep = max(0, backlog.frames - value)
            drain_to(backlog, keep)
            del model.sizes[: len(model.sizes) - keep]
        assert (backlog.frames, backlog.bytes) == (len(model.sizes), sum(model.sizes))
        assert (backlog.state is State.WARNED) == (model.warned and model.out is None)


def test_an_event_without_a_sequence_counts_for_both_caps_and_moves_no_cursor() -> None:
    backlog = Backlog(16, MIB)
    filled(backlog, 3)
    assert backlog.offer(Frame(0, b"<degraded>", 50)) is False
    assert (backlog.frames, backlog.bytes, backlog.last_seq) == (4, 80, 3)
    backlog.push_control(b"<control>")
    assert backlog.take(1 << 20) == b"<1><2><3><degraded><control>"
    assert (backlog.frames, backlog.bytes) == (0, 0)


def test_events_without_a_sequence_overflow_a_backlog_like_any_other() -> None:
    backlog = Backlog(16, MIB)
    answers = [backlog.offer(Frame(0, b"x", 1)) for _ in range(17)]
    assert answers[11] is True
    assert answers[16] is CloseReason.QUEUE_OVERFLOW
