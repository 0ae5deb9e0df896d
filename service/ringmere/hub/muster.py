"""The way in for a stream of many sessions: a slot of each, channels, one judged cursor (contract 7.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ringmere.core.cursor import Outcome, split_id
from ringmere.core.errors import LogUnavailable, MatchTooBroad, SessionNotFound, TooManySessions
from ringmere.hub.channel import Channel
from ringmere.hub.composite import Points
from ringmere.hub.discovery import Discovery
from ringmere.hub.due import Gap, Plan
from ringmere.hub.judgement import SECOND_LOOK
from ringmere.hub.lifetime import fresh_stream_id
from ringmere.hub.many import Many
from ringmere.hub.membership import Membership
from ringmere.hub.options import ManyOptions
from ringmere.hub.resume import at_the_end
from ringmere.log.port import Log, Tail

if TYPE_CHECKING:
    from ringmere.hub.admission import Admission
    from ringmere.hub.hub import Hub


class Muster:
    """Lets readers of many sessions in, and knows those that are there."""

    def __init__(self, hub: Hub, admission: Admission) -> None:
        self.hub = hub
        self._admission = admission
        self._discovery = Discovery(self)
        self._services: dict[str, Tail] = {}
        self.membership = Membership(self)
        self.streams: dict[str, Many] = {}
        """Streams of many sessions, by their id."""

    # -- what streams and the hub call -----------------------------------------------------------------

    def give_place(self, channel: Channel) -> None:
        """Take back the slot that a stream had of a session."""
        self._admission.give_place(channel)

    def forget(self, stream: Many) -> None:
        """Take back what a stream had of the instance: it has ended."""
        if self.streams.pop(stream.stream_id, None) is not None:
            self._admission.slots -= 1
            self._services.pop(stream.stream_id).close()
            self._discovery.forget(stream)

    def stop(self) -> None:
        """End every search for sessions."""
        self._discovery.close()

    def look_at_all(self) -> None:
        """Look for what was missed: nothing of a shard may leave before it, or cursors would be past it."""
        for channel in self.hub.channels:
            if channel.attached.live:
                channel.feed.look()
        self._discovery.look()

    # -- the way in ------------------------------------------------------------------------------------

    async def subscribe(self, sessions: Sequence[str], options: ManyOptions) -> Many:
        """Admit a reader of these sessions; raises as ``Hub.subscribe``, and ``TooManySessions``."""
        self.check_number(len(sessions))

        async def named() -> Sequence[str]:
            return sessions

        return await self._admit(named, options)

    async def subscribe_matching(self, prefix: str, options: ManyOptions) -> Many:
        """Admit a reader of all sessions whose id begins with ``prefix``, later ones too.

        Raises as ``Hub.subscribe``, and ``MatchTooBroad``.
        """
        return await self._admit(lambda: self._matching(prefix), options, prefix)

    def epoch_tokens(self) -> str:
        """Return the value of ``X-Event-Epoch``: the tokens of all shards, joined by commas."""
        return ",".join(self.log.table(shard).token for shard in range(self.log.shards))

    def check_number(self, sessions: int) -> None:
        """Raise ``TooManySessions`` when a stream may not follow so many."""
        limit = self.hub.limits.max_sessions_per_stream
        if sessions > limit:
            raise TooManySessions(f"a stream follows {limit} sessions at most")

    async def _matching(self, prefix: str) -> Sequence[str]:
        limit = self.hub.limits.max_sessions_per_stream
        names = await self.log.names(prefix, limit + 1)
        if len(names) > limit:
            raise MatchTooBroad(f"more than {limit} sessions begin with {prefix!r}")
        return names

    async def _admit(
        self, find: Callable[[], Awaitable[Sequence[str]]], options: ManyOptions, match: str | None = None
    ) -> Many:
        """Take all slots, judge the cursor, fix the points the stream starts at."""
        admission = self._admission
        admission.check_open()
        admission.take_connection()
        places: list[Channel] = []
        stream_id, service = fresh_stream_id(), None
        try:
            async with asyncio.timeout(self.hub.limits.connect_deadline):
                service = await self.log.serve(stream_id, partial(self.membership.answer, stream_id))
                if match is not None:
                    await self._discovery.open()
                await self.open(await find(), places)
                points, plans, over = await self._plan(places, options)
            admission.check_open()
            check_followed(places)
        except BaseException as error:
            admission.slots -= 1
            self.close(places)
            if service is not None:
                service.close()
            if isinstance(error, TimeoutError):
                raise LogUnavailable("the log did not answer in time") from error
            raise
        many = Many(self.hub, options, Points(points), match)
        many.stream_id = stream_id
        self.streams[stream_id] = many
        self._services[stream_id] = service
        for channel, plan in zip(places, plans, strict=True):
            many.follow(channel, plan, proven=options.points is None)
        if over:
            many.cancel()
        elif match is not None:
            self._discovery.add(many)
        return many

    async def open(self, sessions: Iterable[str], places: list[Channel]) -> None:
        """Take a slot of each session and have it followed; ``places`` has what was taken, also after an error.

        Raises as ``Hub.subscribe``; ``LogUnavailable`` also when one failed while others were waited for.
        """
        admission = self._admission
        for session in sessions:
            places += [admission.take_place(session)]
        for result in await asyncio.gather(*(self._ready(channel) for channel in places), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        check_followed(places)

    def close(self, places: Iterable[Channel]) -> None:
        """Give slots back."""
        for channel in places:
            self._admission.give_place(channel)

    async def _ready(self, channel: Channel) -> None:
        await self._admission.started(channel)
        if self._admission.require_session and not await self._admission.exists(channel):
            raise SessionNotFound(f"session {channel.session} is unknown")

    async def _plan(self, places: Sequence[Channel], options: ManyOptions) -> tuple[list[int], list[Plan], bool]:
        """Return the points, a plan for each session, and whether all of it is over (3.9)."""
        while True:
            tables = [channel.table for channel in places]
            plans: list[Plan] = []
            if options.points is None:
                points = await self._live_points(places, options)
                plans = [self.beginning(channel, points, from_start=options.from_start) for channel in places]
                over = False
            else:
                points = list(options.points)
                resets = await self._resets(places, options)
                plans = [self._resume(channel, points, resets) for channel in places]
                over = not resets and await self._over(places, points)
            if tables == [channel.table for channel in places]:
                return points, plans, over

    def beginning(self, channel: Channel, points: Sequence[int], *, from_start: bool) -> Plan:
        """Return where a session without a cursor begins: with its ring, its last word, or behind the points."""
        if from_start:
            return Plan(0, whole_ring=True)
        if channel.closed:
            return Plan(channel.live_position)
        return Plan(max(channel.last, split_id(points[self._shard(channel)])[1]))

    def _resume(self, channel: Channel, points: Sequence[int], resets: dict[int, str | None]) -> Plan:
        shard = self._shard(channel)
        if shard in resets:
            return Plan(0, Gap(Outcome.EPOCH_RESET, resets[shard]), whole_ring=True)
        return Plan(split_id(points[shard])[1])

    def _shard(self, channel: Channel) -> int:
        return self.hub.log.shard_of(channel.session)

    async def _live_points(self, places: Sequence[Channel], options: ManyOptions) -> list[int]:
        """Return the ids that name this moment in all shards; in those to be given from the start, 0."""
        shards = range(self.hub.log.shards)
        log = self.hub.log
        newest = await asyncio.gather(*(log.newest(shard) for shard in shards))
        points = [log.table(shard).id_of(seq) if seq else 0 for shard, seq in zip(shards, newest, strict=True)]
        for channel in places:
            shard = self._shard(channel)
            points[shard] = 0 if options.from_start else max(points[shard], channel.start_id)
        return points

    async def _resets(self, places: Sequence[Channel], options: ManyOptions) -> dict[int, str | None]:
        """Return the shards whose point their log does not know, with the detail of the verdict (4.1, 4.2)."""
        resets: dict[int, str | None] = {}
        beyond: dict[int, Channel] = {}
        for shard, channel in {self._shard(channel): channel for channel in places}.items():
            assert options.points is not None
            point, table = options.points[shard], channel.table
            birth = options.births[shard] if options.births else None
            if point and ((birth is not None and birth != table.birth) or not table.known(point)):
                resets[shard] = "epoch_mismatch"
            elif split_id(point)[1] > channel.last:
                beyond[shard] = channel
        for pause in (SECOND_LOOK, 0.0):
            for shard, channel in list(beyond.items()):
                bounds = await self.hub.log.bounds(channel.session)
                if split_id(options.points[shard] if options.points else 0)[1] <= bounds.tail:
                    del beyond[shard]
            if beyond and pause:
                await asyncio.sleep(pause)
        return {**resets, **dict.fromkeys(beyond, None)}

    @property
    def log(self) -> Log:
        """The log."""
        return self.hub.log

    async def _over(self, places: Sequence[Channel], points: Sequence[int]) -> bool:
        """Whether all sessions are closed and the cursor is behind their last events."""
        for channel in places:
            if not await at_the_end(channel, split_id(points[self._shard(channel)])[1]):
                return False
        return bool(places)


def check_followed(places: Iterable[Channel]) -> None:
    """Raise ``LogUnavailable`` when a channel has ended: a stream that followed it would be silent for ever."""
    if any(channel.ended for channel in places):
        raise LogUnavailable("a session is not followed any more")
