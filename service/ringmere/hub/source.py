"""One session of a stream of many while it catches up: its pages, its memory, and how far they reach."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ringmere.core.cursor import Outcome
from ringmere.core.tagged import tag
from ringmere.hub.attachment import Attachment
from ringmere.hub.due import Gap, Plan
from ringmere.hub.merge import Item
from ringmere.hub.replay import Batch

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel


class Source:
    """Gives a session's events behind a point, in order, from proven pages and then from its channel's window.

    ``upto`` is how far it is known: everything behind the point and up to here is in ``queue`` or was given already.
    """

    __slots__ = (
        "_gap",
        "_plan",
        "_proven",
        "_quiet",
        "_whole_ring",
        "announce",
        "attachment",
        "channel",
        "last_id",
        "queue",
        "replayed",
        "upto",
    )

    def __init__(self, attachment: Attachment, plan: Plan, *, proven: bool) -> None:
        """``proven`` says that nothing is missing behind the plan's position: it was fixed here, not by a cursor."""
        self.attachment = attachment
        self.channel: Channel = attachment.channel
        self._plan = plan
        self.upto = plan.position
        self.announce = False
        """Whether a ``replay_complete`` of this session alone is due."""
        self.replayed = 0
        """Events that were given."""
        self.last_id = 0
        """The last of them."""
        self.queue: deque[Item] = deque()
        self._gap = plan.gap
        self._whole_ring = plan.whole_ring
        self._quiet = plan.whole_ring and plan.gap is None
        self._proven = proven

    def again(self) -> Source:
        """Return a source that begins behind what has left the merge of what this one gave: the rest was dropped."""
        attachment = self.attachment
        attachment.pending = 0
        known = attachment.last_seq > self._plan.position
        plan = Plan(attachment.last_seq) if known else self._plan
        source = Source(attachment, plan, proven=self._proven or known)
        source.announce, source.replayed, source.last_id = self.announce, attachment.given, attachment.last_id
        return source

    @property
    def session(self) -> str:
        """The session that it gives events of."""
        return self.channel.session

    @property
    def covered(self) -> bool:
        """Whether the channel's window has everything behind :attr:`upto`, as far as the channel has come.

        A window that was begun behind a stored message proves that; one of an empty session proves nothing, for what
        was there may have gone.
        """
        channel = self.channel
        if self._whole_ring or channel.attached.filling or not (self._proven or channel.known):
            return False
        return channel.table == channel.hub.log.epochs(channel.session) and channel.covers(self.upto)

    async def read(self, max_bytes: int) -> int:
        """Read one page of the log into the queue; return the bytes that it took. Raises ``LogUnavailable``."""
        channel = self.channel
        async with channel.hub.reads:
            if self._whole_ring:
                batch = await channel.replay.restart()
            else:
                batch = await channel.replay.read(self.upto, shared=True, max_bytes=max_bytes)
        gap = batch.gap and not self._whole_ring
        if self._whole_ring or gap:
            self._go_to(batch.start)
            if self._gap is None and gap and not self._quiet:
                self._gap = Gap(Outcome.RING_EVICTED, None)
        self._whole_ring, self._proven = False, True
        return self._take(batch)

    def _go_to(self, start: int) -> None:
        """Go on behind ``start``; the last word of a closed session outlives the log (contract 3.9)."""
        last_word = self.channel.last_word
        if self.upto < last_word <= start:
            start = last_word - 1
        self.upto = max(self.upto, start)

    def _take(self, batch: Batch) -> int:
        """Queue a page, but for what lies ahead of the channel: the other sessions' channels have not come there."""
        last = self.channel.attached.in_order
        taken = 0
        due = [frame for frame in batch.frames if self.upto < frame.seq <= last]
        if due:
            self._tell(due[0].seq, due[0].seq - 1)
        elif self._gap is not None:
            self._tell(self.channel.window.first_after(self.upto) or batch.earliest, self.upto)
        for frame in due:
            tagged = tag(frame, self.channel.session)
            self.queue.append(Item(frame.seq, 1, self.attachment, tagged))
            taken += len(tagged.body)
        self.upto = max(self.upto, min(batch.last, max(last, self.upto)))
        return taken

    def _tell(self, earliest: int, place: int) -> None:
        """Queue the verdict that is due before the next event, ``earliest`` at the least, to stand at ``place``."""
        gap, self._gap = self._gap, None
        self._quiet = False
        if gap is not None:
            verdict = self.attachment.verdict(gap.reason.value, gap.detail, earliest)
            self.queue.append(Item(place, 0, self.attachment, verdict))
            self.attachment.many.judged(self, gap.reason)
            self.channel.hub.observer.resync(self.session, gap.reason.value, gap.detail, self.attachment.many.stream_id)

    def remembered(self, limit: int | None) -> list[Item]:
        """Return what the window has behind :attr:`upto`, up to ``limit``; only while it is :attr:`covered`."""
        session, attachment = self.channel.session, self.attachment
        return [
            Item(frame.seq, 1, attachment, tag(frame, session))
            for frame in self.channel.window.frames_after(self.upto)
            if limit is None or frame.seq <= limit
        ]

    def gave(self, seq: int) -> None:
        """An event was given."""
        self.replayed += 1
        self.last_id = self.channel.id_of(seq)

    def drop_last(self) -> int:
        """Forget the newest queued event, to be read again; return its bytes."""
        item = self.queue.pop()
        self.upto = item.seq - 1
        return len(item.frame.body)
