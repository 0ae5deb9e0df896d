"""The cursor that a stream of many sessions has reached: one point for each shard (contract 7.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ringmere.core.composite import format_composite
from ringmere.core.cursor import split_id


class Snapshot(NamedTuple):
    """Points of one moment."""

    ids: tuple[int, ...]
    positions: tuple[int, ...]


def public(ids: Sequence[int]) -> int | str:
    """Return a cursor as data of a frame has it: a number when there is one shard."""
    return ids[0] if len(ids) == 1 else format_composite(ids)


class Points:
    """Where each shard's sessions have come to. ``ids`` are public ids, ``positions`` their sequences.

    A point never goes back, but for :meth:`restart`: an event that shows up late is given out under the cursor as it
    is, so that a client that comes back is not given everything behind it again.
    """

    __slots__ = ("_line", "ids", "positions")

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)
        self.positions = [split_id(public_id)[1] for public_id in ids]
        self._line: bytes | None = None

    def advance(self, shard: int, seq: int, public_id: int) -> None:
        """Go on to an event of a shard; nothing happens when the shard is past it."""
        if seq > self.positions[shard]:
            self.positions[shard] = seq
            self.ids[shard] = public_id
            self._line = None

    def restart(self, shard: int) -> None:
        """Begin again with a shard's whole ring: the next event's id may be any."""
        self.positions[shard] = 0

    def snapshot(self) -> Snapshot:
        """Return where all shards are now."""
        return Snapshot(tuple(self.ids), tuple(self.positions))

    def back_to(self, snapshot: Snapshot) -> None:
        """Take back what was not accepted after all."""
        self.ids, self.positions = list(snapshot.ids), list(snapshot.positions)
        self._line = None

    @property
    def public(self) -> int | str:
        """The cursor as data of a frame has it: a number when there is one shard."""
        return public(self.ids)

    @property
    def line(self) -> bytes:
        """The ``id:`` line of an event that leaves now."""
        if self._line is None:
            self._line = b"id: %b\n" % format_composite(self.ids).encode()
        return self._line
