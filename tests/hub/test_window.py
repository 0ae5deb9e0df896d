"""The window: bounds in bytes, events and age; nothing missing above its floor."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.backlog import Frame
from ringmere.core.event import envelope, make_payload
from ringmere.core.frames import event_frame
from ringmere.hub.segment import Segment
from ringmere.hub.window import Budget, Window


def _frame(seq: int, size: int = 10) -> Frame:
    return Frame(seq, b"%d|" % seq + b"x" * size, size)


def _seqs(window: Window, position: int) -> list[int]:
    blobs, count = window.since(position, False)
    seqs = [int(part.strip(b"x")) for part in b"".join(blobs).split(b"|")[:-1] if part.strip(b"x")]
    assert len(seqs) == count
    return seqs


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=200),
    turn=st.integers(1, 90),
    max_bytes=st.integers(1, 4000),
    max_events=st.integers(1, 150),
)
def test_everything_above_the_floor_is_there_and_the_bounds_hold(
    sizes: list[int], turn: int, max_bytes: int, max_events: int
) -> None:
    budget = Budget()
    window = Window(0, max_bytes, max_events, budget)
    frames = [_frame(seq, size) for seq, size in enumerate(sizes, 1)]
    for start in range(0, len(frames), turn):
        window.add(frames[start : start + turn], start)
        last = frames[: start + turn][-1].seq
        assert budget.used == window.size
        assert window.size <= max_bytes or window.events == 1
        assert last - window.floor <= max_events
        for position in {window.floor, (window.floor + last) // 2, last}:
            assert _seqs(window, position) == [*range(position + 1, last + 1)]
            assert window.first_after(position) == (position + 1 if position < last else 0)
        assert window.last_event == last
        assert window.holds(last)
        assert not window.holds(window.floor)
        assert not window.holds(last + 1)


def test_events_that_the_log_has_expired_are_dropped_with_their_age() -> None:
    window = Window(0, 10_000, 1000)
    for second in range(1, 200):
        window.add([_frame(second)], second)
    window.expire(64)
    assert window.floor == 64
    assert _seqs(window, 64) == [*range(65, 200)]
    window.expire(199)
    assert window.events == 0
    assert window.size == 0
    assert window.floor == 199


def test_only_the_newest_event_is_kept_when_asked_for() -> None:
    budget = Budget()
    for count in (1, 5, 64, 65, 200):
        window = Window(0, 100_000, 1000, budget)
        window.add([_frame(seq) for seq in range(1, count + 1)], 1)
        window.keep_newest()
        assert _seqs(window, window.floor) == [count] or count == 1
        assert window.last_event == count
        assert budget.used == window.size
        window.reset(0)
        assert budget.used == 0


def test_a_page_in_front_is_taken_only_when_it_joins_on_and_fits() -> None:
    window = Window(10, 1000, 20)
    window.add([_frame(seq) for seq in range(11, 15)], 1)
    window.extend_back(Segment(0, 8, [_frame(seq) for seq in range(1, 9)], 1))
    assert window.floor == 10
    window.extend_back(Segment(5, 10, [_frame(seq) for seq in range(6, 11)], 1))
    assert window.floor == 5
    assert _seqs(window, 5) == [*range(6, 15)]
    window.extend_back(Segment(0, 5, [_frame(seq, 900) for seq in range(1, 6)], 1))
    assert window.floor == 5


def test_a_page_that_reaches_into_the_window_is_cut_where_the_window_begins() -> None:
    window = Window(13, 1000, 20)
    window.add([_frame(14)], 1)
    window.extend_back(Segment(5, 14, [_frame(seq) for seq in (6, 9, 12, 14)], 1))
    assert window.floor == 5
    assert window.events == 4
    assert _seqs(window, 5) == [6, 9, 12, 14]
    assert _seqs(window, 9) == [12, 14]


def test_sequences_without_an_event_leave_no_hole() -> None:
    window = Window(0, 1000, 20)
    window.add([_frame(2), _frame(5)], 1)
    window.add([_frame(9)], 1)
    assert _seqs(window, 0) == [2, 5, 9]
    assert _seqs(window, 2) == _seqs(window, 4) == [5, 9]
    assert window.first_after(5) == 9


def test_events_can_be_had_one_by_one_sealed_or_not() -> None:
    window = Window(0, 1 << 20, 1000)
    frames = [
        Frame(seq, event_frame(seq, found), len(found.json))
        for seq in range(1, 101)
        for found in [envelope(make_payload("t", {"n": seq}).payload, seq, 0)]
    ]
    for start in range(0, 100, 10):
        window.add(frames[start : start + 10], 0)
    for position in (0, 1, 63, 64, 70, 99, 100):
        assert list(window.frames_after(position)) == frames[position:]
