"""One stream of many sessions (contract 7): one transport, one backlog, one cursor, many channels.

Each session's channel hands its turn to an attachment; the merges put the turns of a shard's sessions in the order of
the shard; what leaves them is written, or offered to the one backlog, by the rules of any other reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringmere.core.backlog import Overflow
from ringmere.core.cursor import Outcome
from ringmere.core.reasons import CloseReason
from ringmere.hub.attachment import Attachment
from ringmere.hub.composite import Points
from ringmere.hub.course import Course
from ringmere.hub.due import Plan
from ringmere.hub.lifetime import Lifetime, State
from ringmere.hub.merge import Confluence, Item
from ringmere.hub.notices import storing_notice
from ringmere.hub.observer import Account
from ringmere.hub.options import ManyOptions
from ringmere.hub.outlet import Outlet
from ringmere.hub.passage import Passage
from ringmere.hub.prospects import Prospects
from ringmere.hub.source import Source

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.hub import Hub


class Many(Lifetime):
    """A stream of many sessions. It holds a slot of each of them, and one of the instance, until it has ended."""

    __slots__ = (
        "_course",
        "_dirty",
        "_flow",
        "_options",
        "_told",
        "attachments",
        "match",
        "passage",
        "prospects",
    )

    def __init__(self, hub: Hub, options: ManyOptions, points: Points, match: str | None = None) -> None:
        """``match`` is the beginning of the sessions' ids when they are not named one by one."""
        super().__init__(hub, options)
        self.match = match
        self.attachments: dict[str, Attachment] = {}  # by session; all of them, live or not
        self.prospects = Prospects(hub.log, points.positions)
        self.passage = Passage(points)
        self._options = options
        self._course = Course(self, announce=options.points is not None)
        self._flow = Confluence(len(points.ids), hub.limits.parked_bytes)
        self._dirty = False
        self._told: set[int] = set()  # shards of which it has been told that they do not store

    # -- what is asked about it ------------------------------------------------------------------------

    @property
    def session(self) -> str:
        """What it follows, for log lines: a prefix, or its first session and how many more."""
        if self.match is not None:
            return f"{self.match}*"
        first, more = next(iter(self.attachments), ""), len(self.attachments) - 1
        return f"{first} and {more} more" if more > 0 else first

    @property
    def start_id(self) -> str | None:
        """The point a stream without a cursor starts at (``X-Start-Event-Id``)."""
        options = self._options
        return str(self.last_id) if options.points is None and not options.from_start else None

    @property
    def epoch_token(self) -> str:
        """The value of ``X-Event-Epoch``: the tokens of all shards."""
        return self.hub.many.epoch_tokens()

    @property
    def last_id(self) -> int | str:
        """The cursor behind the last event that was accepted for it."""
        return self.passage.points.public

    def account(self, lag: int) -> Account:
        """Return what came of it; what was replayed and how large it was is not counted."""
        return Account(self.passage.delivered, lag)

    @property
    def writable(self) -> bool:
        """Whether what is written now goes straight to the transport."""
        return self._outlet is not None and self._outlet.writable

    @property
    def live(self) -> bool:
        """Whether all its sessions have joined."""
        return self.state is State.LIVE

    def id_of(self, number: int) -> int | str:
        """Return the cursor at an event of the backlog, by its number there."""
        return self.passage.cursor_of(number)

    # -- what a life needs -----------------------------------------------------------------------------

    @property
    def _followed(self) -> Many:
        return self

    @property
    def _origin(self) -> tuple[int | str | None, bytes | None]:
        if self.start_id is not None:
            return None, self.passage.points.line + b"\n"
        return self.last_id if self._options.points is not None else None, None

    def _begin(self, outlet: Outlet) -> None:
        self._course.begin()

    # -- sessions come and go --------------------------------------------------------------------------

    def follow(self, channel: Channel, plan: Plan, *, proven: bool, announce: bool = False) -> None:
        """Follow one more session, whose slot has been taken, from a plan on.

        ``proven``: it is no cursor that the plan goes by. ``announce``: a ``replay_complete`` of its own is due.
        """
        shard = self.hub.log.shard_of(channel.session)
        attachment = self.attachments[channel.session] = Attachment(channel, self, shard, plan.position)
        channel.attached.add(attachment)
        self._course.follow(Source(attachment, plan, proven=proven), announce=announce)

    def leave(self, session: str) -> None:
        """Follow a session no more; nothing happens when it was not followed."""
        if (attachment := self.attachments.pop(session, None)) is None:
            return
        self._course.leave(session)
        self._flow.drop(attachment)
        self._let_go(attachment)
        self._check_closed()

    def joined(self, session: str) -> None:
        """A session has joined the others, or will not."""
        self.prospects.holds.pop(session, None)
        self.mark_dirty()

    def _let_go(self, attachment: Attachment) -> None:
        attachment.leave()
        attachment.channel.attached.remove(attachment)
        self.hub.many.give_place(attachment.channel)

    def rebase(self, attachment: Attachment, plan: Plan) -> None:
        """Begin a session again from another plan: its log has changed. One that is live is so with all others."""
        if self.state in (State.WINDING_DOWN, State.ENDED):
            return
        live, source = attachment.live, Source(attachment, plan, proven=False)
        attachment.begin_again(plan)
        if plan.whole_ring:
            self.passage.points.restart(attachment.shard)
            self.prospects.restart(attachment.shard)
        if live:
            self._fall_back({attachment.session: source})
        else:
            self._flow.drop(attachment)
            self._course.replace(source)

    # -- events ----------------------------------------------------------------------------------------

    def hand_in(self, items: Sequence[Item]) -> None:
        """Take items of a session, to leave with this turn of the loop as far as their shard's order allows."""
        self._flow.add(items)
        self.mark_dirty()

    def write_items(self, items: Sequence[Item]) -> None:
        """Write what was read from log and memory; it counts for no backlog (contract 6.2)."""
        assert self._outlet is not None
        self.passage.write(self._outlet, items)

    def mark_dirty(self) -> None:
        """Have what can leave given out with this turn of the loop."""
        if not self._dirty and self.state is State.LIVE:
            self._dirty = True
            self.hub.mark_dirty(self)

    def limit(self, shard: int) -> int | None:
        """Return how far a shard's events may leave: to where its channels that fill a hole have come (7.3)."""
        behind = self.hub.behind
        reached = [
            attachment.channel.attached.in_order
            for channel in behind
            if (attachment := self.attachments.get(channel.session)) is not None and attachment.shard == shard
        ]
        reached += self.prospects.held(shard)
        return max(min(reached), self.passage.points.positions[shard]) if reached else None

    def end_turn(self) -> None:
        """Give out what has come with this turn, up to a turn's bytes."""
        self._dirty = False
        outlet = self._outlet
        if outlet is None or self.state is not State.LIVE:
            return
        if self._flow.overflowed:
            self._fall_back()
            return
        items, more = self._flow.release(self.limit, self.hub.limits.turn_bytes)
        if self._give(outlet, items):
            if more:
                self.mark_dirty()
            self._check_closed()
            self.prospects.leave_closed(self, {item.origin for item in items})

    def _give(self, outlet: Outlet, items: list[Item]) -> bool:
        """Write items, or offer them to the backlog; say whether the stream goes on live."""
        if not items:
            return True
        if outlet.writable:
            self.passage.write_live(outlet, items, self.hub)
            return True
        refused = self.passage.offer(outlet, items)
        if refused is None or refused.reason is None:
            return True
        if outlet.backlog.overflow is Overflow.EVICT:
            self.evict(refused.reason, refused.event_bytes)
        else:
            self._fall_back(reason=refused.reason)
        return False

    def relieve(self) -> None:
        """Give the backlog's memory back: a reader that may read it again from the log does so, others are evicted."""
        outlet = self._outlet
        if outlet is None or not outlet.backlog.frames or self.state is State.WINDING_DOWN:
            return
        if outlet.backlog.overflow is not Overflow.CATCHUP or self.state is not State.LIVE:
            self.evict(CloseReason.QUEUE_BYTES_OVERFLOW)
            return
        self.passage.take_back(outlet.backlog.handed)
        outlet.forget()
        self._fall_back(reason=CloseReason.MEMORY)

    def fail(self, error: Exception) -> None:
        """End the stream because of a fault of this program."""
        context = {"message": f"stream {self.stream_id} could not be given its events", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
        self.give_up()

    # -- inside ----------------------------------------------------------------------------------------

    def tell(self, frame: bytes) -> None:
        """Send a control frame behind what is queued."""
        if self._outlet is not None:
            self._outlet.control(frame)

    def tell_storing(self, shard: int, since_ms: int, *, degraded: bool) -> None:
        """Tell that a shard with sessions of this stream stores no more, or again, unless that is known (8.2)."""
        if degraded is not (shard in self._told) and any(one.shard == shard for one in self.attachments.values()):
            self._told ^= {shard}
            self.tell(storing_notice(since_ms, self.last_id, self.hub.clock() // 1_000_000, degraded=degraded))

    def judged(self, source: Source, reason: Outcome) -> None:
        """Take note of a verdict that a session is told."""
        self._course.verdict = reason
        if reason is Outcome.RING_EVICTED and self._course.overtaken(source):
            asyncio.get_running_loop().call_soon(self.evict, CloseReason.TOO_SLOW)

    def went_live(self) -> None:
        """All sessions have joined."""
        self.state = State.LIVE
        self.hub.breakers.greet_many(self)
        self.mark_dirty()
        self._check_closed()
        self.prospects.leave_closed(self, list(self.attachments.values()))

    def _fall_back(self, sources: dict[str, Source] | None = None, reason: CloseReason | None = None) -> None:
        """Have every session read on from the log from where it is; ``reason`` is the reader's own slowness."""
        self.state = State.CATCHING_UP
        again = dict(sources or {})
        for session, attachment in self.attachments.items():
            if attachment.live:
                attachment.leave()
                again.setdefault(session, Source(attachment, Plan(attachment.start), proven=True))
        self._flow.clear()
        if reason is not None:
            self.hub.observer.fell_back(self.session, self.stream_id, reason)
        self._course.restart(again, slow=reason is not None)

    def _check_closed(self) -> None:
        """End with the last word of the last session; a stream of whatever matches never ends by that."""
        if self.match is not None or self.state is not State.LIVE or not self.attachments:
            return
        if all(one.live and one.channel.closed and not one.pending for one in self.attachments.values()):
            self.finish(CloseReason.SESSION_CLOSED)

    def _drain(self, outlet: Outlet) -> None:
        outlet.drain()
        if not outlet.writable or self.ended:
            return
        self.hub.paused.discard(self)
        if self.state is State.WINDING_DOWN:
            self._wound_down(outlet)
        else:
            self._course.resumed()

    def _count_eviction(self) -> None:
        for attachment in self.attachments.values():
            attachment.channel.evictions += 1

    def _stop(self) -> None:
        self._course.stop()
        for attachment in self.attachments.values():
            attachment.leave()
        self._flow.clear()

    def _release(self) -> None:
        self.hub.paused.discard(self)
        attachments, self.attachments = self.attachments, {}
        for attachment in attachments.values():
            self._let_go(attachment)
        self.hub.many.forget(self)
