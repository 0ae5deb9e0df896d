"""Events of many sessions in the order of their shard (contract 7.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from ringmere.core.tagged import Tagged

if TYPE_CHECKING:
    from ringmere.hub.attachment import Attachment


class Item(NamedTuple):
    """A frame in its place: at ``seq``, and there behind frames of a lower ``rank``.

    An event stands at its own sequence, what is no event of the log at that of the event before it.
    """

    seq: int
    rank: int
    origin: Attachment
    frame: Tagged


BEHIND = 1 << 30
"""The rank of what stands behind everything else of its place."""
in_order = itemgetter(0, 1)
"""Sorts items: sequences of one shard are unique but for what stands behind one of them."""


class Merge:
    """What has come for one stream from one shard and has not left yet.

    ``max_bytes`` bounds it. What comes beyond is not kept: :attr:`overflowed` says that the log must be read.
    """

    __slots__ = ("_items", "_max_bytes", "bytes", "overflowed")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._items: list[Item] = []
        self.bytes = 0
        self.overflowed = False

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """Take an item, within the bound; one that finds the place empty always fits."""
        if self.overflowed or (self._items and self.bytes + len(item.frame.body) > self._max_bytes):
            self.overflowed = True
        else:
            self._items.append(item)
            self.bytes += len(item.frame.body)

    def release(self, limit: int | None, room: int) -> list[Item]:
        """Take out, in order, what stands at or before ``limit`` (None: everything), about ``room`` bytes at most."""
        self._items.sort(key=in_order)
        count = 0
        for item in self._items:
            if room <= 0 or (limit is not None and item.seq > limit):
                break
            room -= len(item.frame.body)
            count += 1
        released, self._items = self._items[:count], self._items[count:]
        self.bytes -= sum(len(item.frame.body) for item in released)
        return released

    def drop(self, origin: Attachment) -> None:
        """Forget the items of one session."""
        self._items = [item for item in self._items if item.origin is not origin]
        self.bytes = sum(len(item.frame.body) for item in self._items)

    def clear(self) -> None:
        """Forget everything: it is read again from the log."""
        self._items = []
        self.bytes = 0
        self.overflowed = False


class Confluence:
    """The merges of all shards for one stream."""

    __slots__ = ("_merges",)

    def __init__(self, shards: int, max_bytes: int) -> None:
        self._merges = [Merge(max_bytes) for _ in range(shards)]

    @property
    def overflowed(self) -> bool:
        """Whether something did not fit."""
        return any(merge.overflowed for merge in self._merges)

    def add(self, items: Sequence[Item]) -> None:
        """Take items of a session."""
        for item in items:
            item.origin.pending += bool(item.frame.seq)
            self._merges[item.origin.shard].add(item)

    def release(self, limit: Callable[[int], int | None], room: int) -> tuple[list[Item], bool]:
        """Take out what may leave by each shard's limit, about ``room`` bytes; say whether that was not all of it."""
        items: list[Item] = []
        for shard, merge in enumerate(self._merges):
            if merge:
                released = merge.release(limit(shard), room)
                room -= sum(len(item.frame.body) for item in released)
                items += released
        return items, room <= 0

    def drop(self, origin: Attachment) -> None:
        """Forget what is of a session that is followed no more, or is read again."""
        self._merges[origin.shard].drop(origin)
        origin.pending = 0

    def clear(self) -> None:
        """Forget everything: it is read again from the log."""
        for merge in self._merges:
            merge.clear()
