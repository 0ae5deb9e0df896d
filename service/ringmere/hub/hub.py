"""The hub: sessions live here while somebody listens, and publishes pass through.

Nothing a client needs is kept here: a hub that dies costs its readers one reconnect (contract 8.4).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ringmere.core.coalesce import Rules
from ringmere.core.errors import RingmereError
from ringmere.core.event import Draft, make_payload
from ringmere.core.limits import Limits
from ringmere.core.reasons import CloseReason
from ringmere.core.trace import TraceContext
from ringmere.hub.admission import Admission
from ringmere.hub.breaker import Breakers
from ringmere.hub.channel import Channel
from ringmere.hub.control import Cancels
from ringmere.hub.deliveries import Deliveries
from ringmere.hub.drain import goodbyes
from ringmere.hub.laggards import describe_laggards
from ringmere.hub.lifetime import Lifetime
from ringmere.hub.listening import Listening
from ringmere.hub.many import Many
from ringmere.hub.muster import Muster
from ringmere.hub.observer import Observer
from ringmere.hub.pace import Pace
from ringmere.hub.publish import Published, Publisher
from ringmere.hub.relief import relieve_largest, shrink_windows
from ringmere.hub.replay import PageCache
from ringmere.hub.sessions import SessionList, list_sessions, show_session
from ringmere.hub.snapshots import Snapshots
from ringmere.hub.stats import HubStats, take_stats
from ringmere.hub.subscriber import SubscribeOptions, Subscriber
from ringmere.hub.sweep import Sweep
from ringmere.hub.tally import Tally
from ringmere.hub.wheel import Wheel
from ringmere.hub.window import Budget
from ringmere.log.port import Copy, Log


class Hub(Listening):
    """All live sessions of one instance over one log."""

    def __init__(
        self,
        log: Log,
        limits: Limits | None = None,
        observer: Observer | None = None,
        *,
        require_session: bool = False,
        coalesce: Rules | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.log = log
        self.limits = limits or Limits()
        self.observer = observer or Observer()
        self.coalesce = coalesce
        """What may be merged in the backlogs of readers that ask for it (contract 6.8)."""
        self.clock = clock
        """Nanoseconds since 1970, to tell the age of the log's messages."""
        self.wheel = Wheel(self.observer.loop_late)
        self.pages = PageCache(self.limits.page_cache, self.limits.page_cache * self.limits.page_bytes)
        self.window_budget = Budget()
        self.reads = asyncio.Semaphore(self.limits.concurrent_reads)
        self.behind: set[Channel] = set()
        """Channels that fill a hole, or have more than one turn to hand out: others of their shard may be further."""
        self.paused: set[Lifetime] = set()
        """Readers whose transport is full; all backlogs are theirs."""
        self.backlog_bytes = 0
        """Envelope bytes in the backlogs of all readers that have not been told to go."""
        self.readers = Counter({"sse": 0, "websocket": 0})
        """Open streams by transport."""
        self.copies: Sequence[Copy] = ()
        """Streams of the log that copy from others."""
        self.pace = Pace(self.limits.pages_per_turn)
        self.delivered = Tally(self.observer, clock)
        """What this turn of the loop has written to readers."""
        self._channels: dict[str, Channel] = {}
        self._dirty: list[Channel | Many] = []
        self._draining = False
        tracer = self.observer.tracer
        self.deliveries = Deliveries(tracer, clock) if tracer is not None else None
        self.sweep = Sweep(self)
        self.breakers = Breakers(self)
        self.snapshots = Snapshots(self)
        self._publisher = Publisher(log, self.observer, self.breakers)
        self._admission = Admission(self, require_session=require_session)
        self.cancels = Cancels(self, self._admission)
        self.many = Muster(self, self._admission)

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to serve, on the running loop."""
        self.log.listen(self)
        self.wheel.start()
        self.sweep.start()

    async def close(self) -> None:
        """End all streams and every task. The log stays open: it is the caller's."""
        self._draining = True
        for reader in self._all_readers():
            reader.finish(CloseReason.SHUTDOWN)
            if not reader.ended:
                reader.drop(CloseReason.SHUTDOWN)
        for channel in list(self._channels.values()):
            self.discard(channel)
        await self.cancels.stop()
        await self.breakers.stop()
        self.many.stop()
        self.snapshots.stop()
        await self.sweep.stop()
        self.wheel.stop()

    async def drain(self) -> None:
        """Say goodbye to every stream, paced over ``drain_grace`` at most (contract 8.3)."""
        self._draining = True
        self.cancels.release()
        await goodbyes(self._all_readers(), self.limits)

    def _all_readers(self) -> list[Lifetime]:
        of_one = [reader for channel in self._channels.values() for reader in channel.members]
        return [*of_one, *self.many.streams.values()]

    @property
    def ready(self) -> bool:
        """Whether this instance should be sent traffic."""
        return self.log.connected and not self._draining

    @property
    def draining(self) -> bool:
        """Whether a drain has begun."""
        return self._draining

    # -- publishing ------------------------------------------------------------------------------------

    async def publish(
        self, session: str, draft: Draft, expected_id: int | None = None, trace: TraceContext | None = None
    ) -> Published:
        """Store one event; return its id once the log has acknowledged it (contract 2.2). Raises as ``Log.append``."""
        return await self._publisher.one(session, draft, expected_id, trace)

    async def publish_batch(
        self,
        session: str,
        drafts: list[Draft],
        *,
        atomic: bool = False,
        expected_id: int | None = None,
        trace: TraceContext | None = None,
    ) -> list[Published | RingmereError]:
        """Store a batch in order, one result a row; ``atomic``: all or none, raising as ``Log.append_atomic``."""
        if atomic or expected_id is not None:
            return [*await self._publisher.all_or_none(session, drafts, expected_id, trace)]
        return await self._publisher.each(session, drafts, trace)

    async def publish_degraded(self, session: str, drafts: list[Draft], trace: TraceContext | None = None) -> bool:
        """Send events to live readers if the session's shard cannot store now; return whether it came to that (8.2).

        They get no id and are in no log. Raises ``LogUnavailable``.
        """
        return await self._publisher.degraded(session, drafts, trace)

    async def close_session(self, session: str) -> Published:
        """Publish the terminal event ``session_closed`` (contract 10.4).

        Its data is what typed clients expect of one; they pass over an event without session and reason.
        """
        data = {"sessionId": session, "reason": "client_close"}
        published = await self.publish(session, make_payload("session_closed", data))
        self.observer.session_closed(session)
        return published

    # -- reading ---------------------------------------------------------------------------------------

    async def subscribe(self, session: str, options: SubscribeOptions) -> Subscriber:
        """Admit a reader: take a slot, judge its cursor, fix the point it starts at.

        Raises ``Draining``, ``SubscriberLimitExceeded``, ``SessionNotFound``, and ``LogUnavailable`` within
        ``connect_deadline``. The caller attaches a sink, or cancels.
        """
        return await self._admission.admit(session, options)

    def epoch_token(self, session: str) -> str:
        """Return the value of ``X-Event-Epoch`` for a session."""
        return self.log.epochs(session).token

    def release(self, subscriber: Subscriber) -> None:
        """Give a reader's slot back (called by the reader when it ends)."""
        self._admission.release(subscriber)

    @property
    def slots(self) -> int:
        """Readers admitted, of all sessions, attached or not."""
        return self._admission.slots

    def channel(self, session: str) -> Channel:
        """Return the session's channel, a new one when nobody listens yet; raises ``LogUnavailable``."""
        channel = self._channels.get(session)
        if channel is None:
            channel = self._channels[session] = Channel(self, session)
        return channel

    def discard(self, channel: Channel) -> None:
        """Follow a session no more; the next reader makes a channel of its own."""
        if self._channels.get(channel.session) is channel:
            del self._channels[channel.session]
            channel.close()

    # -- turns -----------------------------------------------------------------------------------------

    def mark_dirty(self, channel: Channel | Many) -> None:
        """Have a channel's turn ended with this turn of the loop; one call for all together."""
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._end_turns)
        self._dirty.append(channel)

    def _end_turns(self) -> None:
        dirty, self._dirty = self._dirty, []
        for channel in dirty:
            try:
                channel.end_turn()
            except Exception as error:
                channel.fail(error)  # the other channels' turns must end too
        self.check_windows()
        excess = self.backlog_bytes - self.limits.backlog_bytes_total
        if excess > 0:
            relieve_largest(self.paused, excess)

    def check_windows(self) -> None:
        """Shrink windows when all of them together are too much."""
        limit = self.limits.window_bytes_total
        if self.window_budget.used > limit:
            shrink_windows(self._channels.values(), self.window_budget, limit)

    # -- state -----------------------------------------------------------------------------------------

    @property
    def channels(self) -> list[Channel]:
        """The channels that follow their session now."""
        return [channel for channel in self._channels.values() if channel.started]

    @property
    def sessions_live(self) -> int:
        """Sessions that are followed, or about to be."""
        return len(self._channels)

    async def sessions(self, prefix: str = "", after: str = "", limit: int = 100) -> SessionList:
        """List sessions of the log in order of their ids (contract 10.4)."""
        return await list_sessions(self.log, prefix, after, limit)

    async def session(self, session: str) -> dict[str, Any]:
        """Return one session's state, its snapshot, its readers here, laggards first; raises ``SessionNotFound``."""
        return await show_session(self, session, self._channels.get(session))

    async def purge(self, session: str) -> None:
        """Remove a session's log, head and snapshot, and every instance's window (contract 10.4)."""
        await self.log.purge(session)
        self.observer.session_purged(session)

    def stats(self) -> HubStats:
        """Return the gauges of this moment."""
        return take_stats(self)

    def laggards(self, limit: int) -> list[dict[str, Any]]:
        """Return the readers here that have most to catch up, of all sessions, the worst first."""
        return describe_laggards(self.paused, limit)
