"""Sessions that begin while a stream of what matches a prefix is open: found, and joined in the order of their shard.

Two ways find them. A watch over the live messages of all shards tells of a new session's first event at once and in
order: what comes behind it in its shard waits until the session has joined, so that no cursor passes it. It is at
most once, so the names in the log are looked through now and then as well, and after a lost connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ringmere.core.errors import LogUnavailable, SessionNotFound, SubscriberLimitExceeded
from ringmere.core.reasons import CloseReason
from ringmere.hub.catchup import RETRY_PAUSE
from ringmere.hub.notices import stream_error
from ringmere.log.port import Tail

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.many import Many
    from ringmere.hub.muster import Muster

SWEEP = 10.0
"""Seconds between two looks at the names in the log."""
TOO_BROAD = "match_too_broad"
"""The ``errorKind`` of a stream that would have to follow more sessions than it may."""


class Discovery:
    """Finds new sessions for the streams of an instance that match a prefix; costs nothing while there is none."""

    def __init__(self, muster: Muster) -> None:
        self._muster = muster
        self._streams: set[Many] = set()
        self._watch: Tail | None = None
        self._opening = asyncio.Lock()
        self._opened_at = 0.0
        """Loop time at which the newest stream asked for the watch."""
        self._sweeper: asyncio.Task[None] | None = None
        self._look = asyncio.Event()
        self._joining: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Watch, before the names are listed for the first time. Raises ``LogUnavailable``."""
        async with self._opening:
            self._opened_at = asyncio.get_running_loop().time()
            if self._watch is None:
                self._watch = await self._muster.log.watch(self._wanted, self._found)
            self._rest()

    def add(self, many: Many) -> None:
        """Find sessions for a stream from now on."""
        self._streams.add(many)
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep())

    def forget(self, many: Many) -> None:
        """Find nothing more for a stream; the watch ends a while after the last one."""
        self._streams.discard(many)
        self._rest()

    def _rest(self) -> None:
        """Look again later whether anybody needs the watch: a stream that is about to be admitted does."""
        hub = self._muster.hub
        hub.wheel.call_later(hub.limits.connect_deadline + 1.0, self._close_if_idle)

    def _close_if_idle(self) -> None:
        admitting = asyncio.get_running_loop().time() - self._opened_at < self._muster.hub.limits.connect_deadline
        if not self._streams and not admitting and not self._opening.locked():
            self.close()

    def close(self) -> None:
        """End everything."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        for task in (self._sweeper, *self._joining):
            if task is not None:
                task.cancel()
        self._sweeper = None

    def look(self) -> None:
        """Look at the names at once: the connection was lost."""
        self._look.set()

    # -- finding ---------------------------------------------------------------------------------------

    def _wanted(self, session: str) -> bool:
        return any(session not in many.attachments and session.startswith(many.match or "") for many in self._streams)

    def _found(self, session: str, seq: int) -> None:
        for many in list(self._streams):
            if session not in many.attachments and session.startswith(many.match or ""):
                self._join(many, session, seq - 1)

    async def _sweep(self) -> None:
        while True:
            alarm = asyncio.get_running_loop().call_later(SWEEP, self._look.set)
            try:
                await self._look.wait()
            finally:
                alarm.cancel()
            self._look.clear()
            for many in list(self._streams):
                try:
                    await self._look_for(many)
                except LogUnavailable:
                    continue  # the next look finds it
                except Exception as error:
                    context = {"message": f"new sessions of stream {many.stream_id} could not be found"}
                    asyncio.get_running_loop().call_exception_handler({**context, "exception": error})

    async def _look_for(self, many: Many) -> None:
        """Let those join that nobody told of: new ones, and closed ones that go on."""
        log, limits = self._muster.log, self._muster.hub.limits
        many.prospects.forget_expired()
        known = list(many.prospects.left.items())
        newer = await log.newer([(session, left.seq) for session, left in known])
        for (session, _), more in zip(known, newer, strict=True):
            if more:
                self._join(many, session, None)
        for name in await log.names(many.match or "", limits.max_sessions_per_stream + len(known) + 1):
            if name not in many.attachments and name not in many.prospects.left:
                self._join(many, name, None)

    # -- joining ---------------------------------------------------------------------------------------

    def _join(self, many: Many, session: str, hold: int | None) -> None:
        """Let a session join; nothing behind ``hold`` leaves its shard before that."""
        holds = many.prospects.holds
        if many.ended or session in holds or session in many.attachments:
            return
        if len(many.attachments.keys() | holds.keys()) >= self._muster.hub.limits.max_sessions_per_stream:
            many.finish(CloseReason.LIMIT, stream_error("more sessions match than one stream may follow", TOO_BROAD))
            return
        holds[session] = hold
        task = asyncio.create_task(self._take_along(many, session))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    async def _take_along(self, many: Many, session: str) -> None:
        try:
            while not many.ended:
                places: list[Channel] = []
                try:
                    await self._muster.open([session], places)
                except LogUnavailable:
                    self._muster.close(places)
                    await asyncio.sleep(RETRY_PAUSE)
                    continue
                except BaseException:
                    self._muster.close(places)
                    raise
                if many.ended:
                    self._muster.close(places)
                else:
                    many.follow(places[0], many.prospects.plan(places[0]), proven=False)
                return
        except SessionNotFound:
            many.joined(session)  # purged meanwhile: it holds nobody up, and is found again should it go on
        except SubscriberLimitExceeded as error:
            many.finish(CloseReason.LIMIT, stream_error(str(error), error.code, error.retry_after))
        except Exception as error:
            many.fail(error)
