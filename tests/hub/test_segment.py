"""Segments: one blob for all, cut for who is in the middle."""

from __future__ import annotations

import pytest

from ringmere.core.backlog import Frame
from ringmere.hub.segment import Segment
from support.hub import dechunk


@pytest.mark.parametrize("framed", [True, False])
def test_a_reader_gets_what_is_behind_its_position_and_nothing_else(framed: bool) -> None:
    frames = [Frame(seq, b"<%d>" % seq * seq, 1) for seq in (2, 3, 7)]
    segment = Segment(1, 9, frames, 5)
    for position in range(10):
        due = [frame for frame in frames if frame.seq > position]
        blob, count = segment.after(position, framed)
        assert count == len(due)
        raw = dechunk(blob) if framed else blob
        assert raw == b"".join(frame.sse for frame in due)
        assert segment.first_after(position) == (due[0].seq if due else 0)


def test_a_segment_without_an_event_writes_nothing_not_even_an_empty_chunk() -> None:
    segment = Segment(3, 6, [], 0)
    assert segment.after(3, True) == (b"", 0)
    assert segment.first_after(0) == 0
    assert len(segment) == segment.size == 0


@pytest.mark.parametrize("framed", [True, False])
def test_a_part_is_a_segment_of_its_own(framed: bool) -> None:
    frames = [Frame(seq, b"<%d>" % seq * seq, 1) for seq in (2, 3, 7)]
    for last in range(1, 10):
        part = Segment(1, 9, frames, 5).until(last)
        kept = [frame for frame in frames if frame.seq <= last]
        whole = Segment(1, last, kept, 5)
        assert (part.start, part.last, part.size, len(part), part.oldest_ns) == (1, last, whole.size, len(kept), 5)
        for position in range(10):
            assert part.after(position, framed) == whole.after(position, framed)
