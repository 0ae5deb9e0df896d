"""One session's part of a stream of many: what its channel hands out goes on to that stream's merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringmere.core.backlog import Frame
from ringmere.core.tagged import Tagged, tag
from ringmere.hub.merge import Item
from ringmere.hub.notices import resync_required

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.due import Plan
    from ringmere.hub.many import Many

_LOG_NOTICES = (b"event: log_degraded\n", b"event: log_restored\n")


class Attachment:
    """Ties a channel to a stream of many sessions. It holds a slot of the session until it is let go.

    ``start`` is the sequence up to which the stream has everything of the session by other ways, ``joined`` the one
    behind which the channel's turns are taken: what lies between may wait in the merge. ``last_id`` and ``last_seq``
    are the session's last event that was accepted for it, 0 before the first; ``live`` says whether the channel
    hands out to it, ``pending`` counts events that wait in the merge.
    """

    __slots__ = ("channel", "given", "joined", "last_id", "last_seq", "live", "many", "pending", "shard", "start")

    def __init__(self, channel: Channel, many: Many, shard: int, start: int) -> None:
        self.channel = channel
        self.many = many
        self.shard = shard
        self.start = self.joined = start
        self.given = 0
        """Events that were accepted for the stream."""
        self.last_id = 0
        self.last_seq = 0
        self.live = False
        self.pending = 0

    @property
    def session(self) -> str:
        """The session it follows."""
        return self.channel.session

    def go_live(self, start: int) -> None:
        """Begin to take what the channel hands out behind ``start``."""
        self.joined = start
        if not self.pending:
            self.start = start
        self.live = True
        self.channel.attached.enter(self)

    def leave(self) -> None:
        """Take nothing more from the channel."""
        if self.live:
            self.start = self.reached
            self.live = False
            self.pending = 0
            self.channel.attached.leave(self)

    @property
    def reached(self) -> int:
        """The sequence up to which everything of the session was accepted.

        That is its last event as long as others wait to be accepted; without any the channel knows of no more.
        """
        if not self.live or self.pending:
            return max(self.start, self.last_seq)
        return max(self.joined, min(self.many.passage.points.positions[self.shard], self.channel.flushed))

    def begin_again(self, plan: Plan) -> None:
        """Take nothing more from the channel; begin again where a plan says that the session's log has changed.

        With the whole ring, what sequences meant before means nothing now.
        """
        self.leave()
        self.start = plan.position
        if plan.whole_ring:
            self.last_seq = 0

    def accepted(self, seq: int) -> None:
        """An event of the session was written or queued."""
        self.given += 1
        self.last_seq = seq
        self.last_id = self.channel.id_of(seq)

    def take_back(self, last_seq: int, last_id: int) -> None:
        """An event that was only queued was not accepted after all."""
        self.given -= 1
        self.last_seq, self.last_id = last_seq, last_id
        self.pending += 1

    def take(self, turn: Sequence[Tagged], before: int) -> None:
        """Take a turn's frames, in their order; ``before`` is the sequence up to which the channel was."""
        items = []
        seq = before
        for rank, frame in enumerate(turn):
            if frame.seq:
                seq = frame.seq
                if seq <= self.joined:
                    continue
            elif frame.body.startswith(_LOG_NOTICES):
                continue  # told once for all sessions of the shard
            items.append(Item(seq, rank, self, frame))
        self.many.hand_in(items)

    def overtaken(self, earliest: int) -> None:
        """Take the verdict that the session's tail was overtaken: ``earliest`` is what comes next of it."""
        verdict = self.verdict("ring_evicted", None, earliest)
        self.many.hand_in([Item(max(earliest - 1, 0), 0, self, verdict)])

    def verdict(self, reason: str, detail: str | None, earliest: int) -> Tagged:
        """Return the verdict frame that stands before the session's next event."""
        last = self.last_id or self.many.passage.points.ids[self.shard]
        return tag(Frame(0, resync_required(reason, detail, last, self.channel.id_of(earliest)), 0), self.session)
