"""Where merged events leave for one outlet: each gets its cursor line, and what is only queued can be taken back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ringmere.core.backlog import Frame
from ringmere.hub.attachment import Attachment
from ringmere.hub.composite import Points, Snapshot, public
from ringmere.hub.lagging import Taken
from ringmere.hub.merge import Item
from ringmere.hub.outlet import Outlet

if TYPE_CHECKING:
    from ringmere.hub.hub import Hub


class _Mark(NamedTuple):
    """A queued event, and what to go back to when it is to be read again: the points and its session's last event."""

    number: int
    before: Snapshot
    origin: Attachment
    last_seq: int
    last_id: int


class Passage:
    """The order in which a stream of many sessions gives its events out.

    In the backlog they are numbered: their sequences are of several shards, or late.
    """

    __slots__ = ("_marks", "_number", "delivered", "points")

    def __init__(self, points: Points) -> None:
        self.points = points
        self.delivered = 0
        """Events that were accepted, merged ones counted once."""
        self._marks: deque[_Mark] = deque()
        self._number = 0

    def write(self, outlet: Outlet, items: Sequence[Item]) -> int:
        """Write items at once; return the bytes. Only for a writable outlet."""
        parts = []
        for item in items:
            if item.frame.seq:
                parts.append(self._advance(item))
                self.delivered += 1
                item.origin.accepted(item.frame.seq)
            parts.append(item.frame.body)
        data = b"".join(parts)
        if data:
            outlet.send(data)
        return len(data)

    def write_live(self, outlet: Outlet, items: Sequence[Item], hub: Hub) -> None:
        """Write items that have just left the merge, and count them."""
        size = self.write(outlet, items)
        for item in items:
            item.origin.pending -= bool(item.frame.seq)
        events = sum(1 for item in items if item.frame.size)
        if events:
            newest_ns = items[-1].origin.channel.feed.last_time_ns
            hub.delivered.add(outlet.sink.transport, events, size, newest_ns)

    def offer(self, outlet: Outlet, items: Sequence[Item]) -> Taken | None:
        """Queue items; return why there was no room for one, None when there was for all."""
        for item in items:
            seq, body, size = item.frame.seq, item.frame.body, item.frame.size
            before = self.points.snapshot()
            line = self._advance(item) if seq else b""
            number = self._number + 1 if seq else 0
            taken = outlet.fill([Frame(number, line + body, size)], self._number, 0)
            if taken.reason is not None:
                self.points.back_to(before)
                return taken
            self.delivered += bool(seq) - taken.merged
            if seq:
                self._number = number
                origin = item.origin
                self._remember(_Mark(number, before, origin, origin.last_seq, origin.last_id), outlet.backlog.handed)
                origin.accepted(seq)
                origin.pending -= 1
        return None

    def _advance(self, item: Item) -> bytes:
        shard = item.origin.shard
        self.points.advance(shard, item.frame.seq, item.origin.channel.id_of(item.frame.seq))
        return self.points.line

    def _remember(self, mark: _Mark, handed: int) -> None:
        while self._marks and self._marks[0].number <= handed:
            self._marks.popleft()
        self._marks.append(mark)

    def cursor_of(self, number: int) -> int | str:
        """Return the cursor that a client has with a numbered event, the present one for the newest."""
        following = next((mark for mark in self._marks if mark.number > number), None)
        if following is None:
            return self.points.public
        return public(following.before.ids)

    def take_back(self, handed: int) -> None:
        """Undo what was queued behind event ``handed``: its sessions are read again from there."""
        while self._marks and self._marks[-1].number > handed:
            mark = self._marks.pop()
            self.points.back_to(mark.before)
            self.delivered -= 1
            mark.origin.take_back(mark.last_seq, mark.last_id)
