"""The merge of one stream: the order of the shard, held at a limit, bounded."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.tagged import Tagged
from ringmere.hub.merge import Confluence, Item, Merge


class Origin:
    """What a merge asks of an attachment."""

    def __init__(self, shard: int = 0) -> None:
        self.shard = shard
        self.pending = 0
        self.live = True


def item(seq: int, rank: int = 0, size: int = 10, origin: Any = None, event: bool = True) -> Item:
    return Item(seq, rank, origin or Origin(), Tagged(seq if event else 0, b"x" * size, size if event else 0))


@given(st.lists(st.integers(1, 50), unique=True), st.integers(0, 50))
def test_what_stands_at_or_before_the_limit_leaves_in_order_and_the_rest_later(seqs: list[int], limit: int) -> None:
    merge = Merge(10_000)
    for seq in seqs:
        merge.add(item(seq))
    released = [one.seq for one in merge.release(limit, 10_000)]
    assert released == sorted(seq for seq in seqs if seq <= limit)
    assert [one.seq for one in merge.release(None, 10_000)] == sorted(seq for seq in seqs if seq > limit)
    assert merge.bytes == len(merge) == 0


def test_what_is_no_event_keeps_its_place_behind_one() -> None:
    merge = Merge(1000)
    for one in (item(7), item(5, 1, event=False), item(5), item(6)):
        merge.add(one)
    assert [(one.seq, one.rank) for one in merge.release(None, 1000)] == [(5, 0), (5, 1), (6, 0), (7, 0)]


def test_a_turn_takes_about_so_many_bytes_at_least_one_item() -> None:
    merge = Merge(1000)
    for seq in range(1, 8):
        merge.add(item(seq, size=40))
    assert [one.seq for one in merge.release(None, 100)] == [1, 2, 3]
    assert [one.seq for one in merge.release(None, 1)] == [4]
    assert merge.bytes == 3 * 40


def test_beyond_the_bound_nothing_is_kept_and_that_is_known_but_one_alone_always_fits() -> None:
    merge = Merge(100)
    merge.add(item(1, size=500))
    assert not merge.overflowed
    merge.add(item(2))
    assert merge.overflowed
    merge.clear()
    assert (merge.bytes, merge.overflowed, len(merge)) == (0, False, 0)


def test_shards_are_merged_apart_and_what_is_of_a_session_left_behind_is_dropped() -> None:
    flow = Confluence(2, 1000)
    origins = [Origin(0), Origin(1), Origin(0)]
    flow.add([item(3, origin=origins[0]), item(9, origin=origins[1]), item(2, origin=origins[2])])
    assert [origin.pending for origin in origins] == [1, 1, 1]
    flow.drop(origins[2])  # type: ignore[arg-type]
    items, more = flow.release(lambda shard: 5 if shard == 1 else None, 1000)
    assert [one.seq for one in items] == [3]
    assert not more
    assert [one.seq for one in flow.release(lambda _: None, 1000)[0]] == [9]
