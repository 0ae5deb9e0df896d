"""The live tail by consumers, for streams that do not republish: one ordered consumer per shard.

A shard's consumer runs while at least one of its sessions is subscribed here, and a few seconds longer. It begins
behind the stream's tail and delivers all sessions of the shard; what nobody here reads costs a look at a table.

**What is promised.** A live message names the one before it on its subject. A consumer does not know that
number, so it is kept here: the last sequence of each subscribed session. It is the true predecessor because

1. the consumer's own sequence steps by one, so every message it was given arrived (:mod:`ringmere.log.following`);
2. the consumer takes the whole stream, and a stream numbers without holes, so *stream* sequences must step by
   one as well. Where they do not, retention or a purge was faster than the consumer and something was
   removed undelivered, of whatever session. That is a **break**;
3. at subscribe, the session is first entered here and then its last message is read from the leader. A
   message stored between the two is delivered, one stored before them is the one that was read; the later of
   both is the predecessor of whatever comes next.

After a break nobody's predecessor is known. The next message of each session then names ``seq - 1``: the
highest number its predecessor can have. If that is what the listener has, nothing was lost; in any other case it
looks at the log, which fills the hole or shows that it cannot be filled. A break never hides a hole; at worst it
costs each busy session one read.

**Re-opening.** A consumer that is lost is opened again *at* the last sequence that was delivered, not behind it.
When the same message with the same timestamp comes first, this is the log of before and nothing is missing:
it is dropped and the chain goes on. Anything else first is a break. A start beyond the leader's tail would
wait silently for ever, so with nothing pending the leader is asked; a tail below our position is another log, or one
that has lost its end. Then it goes on behind that tail, everything known of sessions is void, and the epoch
table does the rest (contract 1.2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from ringmere.core.errors import LogRefused, LogUnavailable
from ringmere.log.connect import Connection
from ringmere.log.following import Following
from ringmere.log.leader import Leader
from ringmere.log.places import Place
from ringmere.log.port import LiveSink, NewsSink, TraceSink
from ringmere.log.session_tail import SessionTail
from ringmere.log.shards import event_subject, stream_name

LINGER = 5.0
"""Seconds that a shard's consumer outlives its last subscribed session."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""Seconds between two tries to open a lost consumer again."""
CONFIRM_AFTER = 1.0
"""Seconds between two reads of a tail that is too low: a new leader may only be catching up."""

Seen = Callable[[int, int, int], None]
Failed = Callable[[int, str], None]
"""Hears of the shard and of the reason, each time that a lost consumer could not be opened again."""


class _Anchor(NamedTuple):
    """The message that a re-opened consumer must deliver first."""

    seq: int
    time: bytes


class ShardTail:
    """All subscribed sessions of one shard, behind one consumer."""

    def __init__(
        self, connection: Connection, leader: Leader, shard: int, seen: Seen, failed: Failed, timeout: float
    ) -> None:
        self._connection = connection
        self._leader = leader
        self._shard = shard
        self._stream = stream_name(shard)
        self._seen = seen
        self._failed = failed
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[bytes, tuple[SessionTail, ...]] = {}
        self._news: tuple[tuple[Callable[[str], bool], NewsSink], ...] = ()
        self._following: Following | None = None
        self._begun = False
        """There is a position to go on from."""
        self._position = 0
        self._time = b""
        self._anchor: _Anchor | None = None
        self._breaks = 0
        self._opening = asyncio.Lock()
        self._open = asyncio.Event()
        self._back = asyncio.Event()
        self._mending: asyncio.Task[None] | None = None
        self._leaving: asyncio.TimerHandle | None = None

    async def subscribe(self, place: Place, sink: LiveSink, traces: TraceSink | None) -> SessionTail:
        """Start the live tail of a session. Raises ``LogUnavailable``."""
        tail = SessionTail(place.subject.encode(), sink, traces, self._breaks, self._leave)
        self._sessions[tail.subject] = (*self._sessions.get(tail.subject, ()), tail)
        self._stay()
        try:
            await self._ready()
            found = await self._leader.last(place.stream, place.subject)
        except BaseException:
            tail.close()
            raise
        tail.begin(found.stored.seq if found is not None else 0)
        return tail

    async def watch(self, wanted: Callable[[str], bool], sink: NewsSink) -> Callable[[], None]:
        """Tell of messages of wanted sessions; return what ends it. Raises ``LogUnavailable``."""
        row = (wanted, sink)

        def leave() -> None:
            self._news = tuple(other for other in self._news if other is not row)
            self._linger()

        self._news = (*self._news, row)
        self._stay()
        try:
            await self._ready()
        except BaseException:
            leave()
            raise
        return leave

    def _tell_news(self, subject: bytes, seq: int) -> None:
        session = subject.rpartition(b".")[2].decode()
        for wanted, sink in self._news:
            if wanted(session):
                sink(session, seq)

    def _leave(self, tail: SessionTail) -> None:
        """Forget a tail; the consumer goes a while after the last one."""
        left = tuple(other for other in self._sessions.get(tail.subject, ()) if other is not tail)
        if left:
            self._sessions[tail.subject] = left
        else:
            self._sessions.pop(tail.subject, None)
        self._linger()

    def _linger(self) -> None:
        """Let the consumer go after a while when nobody needs it any more."""
        if not self._sessions and not self._news and self._leaving is None and self._begun:
            self._leaving = self._loop.call_later(LINGER, self.stop)

    def _stay(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def stop(self) -> None:
        """Let the consumer go; the next subscription begins anew."""
        self._stay()
        if self._mending is not None:
            self._mending.cancel()
            self._mending = None
        if self._following is not None:
            self._following.close()
            self._following = None
        self._begun = False
        self._open.clear()

    async def close(self) -> None:
        """Let the consumer go for good."""
        mending = self._mending
        self.stop()
        if mending is not None:
            await asyncio.wait([mending])

    def connection_changed(self, connected: bool) -> None:
        """What was under way on a lost connection is lost; on its return a new consumer is opened."""
        if connected:
            self._back.set()
            return
        self._back.clear()
        if self._following is not None:
            self._following.close()
            self._lost("the connection to NATS was lost")

    # -- opening and opening again ---------------------------------------------------------------------

    async def _ready(self) -> None:
        """Return once a consumer is open. Raises ``LogUnavailable`` when none can be had in time."""
        async with self._opening:
            if not self._begun:
                await self._begin()
        try:
            async with asyncio.timeout(self._timeout):
                await self._open.wait()
        except TimeoutError as error:
            raise LogUnavailable(f"no consumer of {self._stream} can be opened now") from error

    async def _begin(self) -> None:
        following = self._new()
        try:
            made = await following.open(None)
        except LogRefused as error:
            raise LogUnavailable(str(error)) from error
        self._position, self._time, self._anchor = made.position, b"", None
        self._flow(following)

    def _new(self) -> Following:
        subject = event_subject(self._shard, "*")
        return Following(self._connection, self._stream, subject, self._take, self._lost, self._timeout)

    def _flow(self, following: Following) -> None:
        self._begun = True
        self._following = following
        self._open.set()
        following.flow()

    def _lost(self, why: str) -> None:
        self._following = None
        self._open.clear()
        if self._mending is None:
            self._mending = self._loop.create_task(self._mend())

    async def _mend(self) -> None:
        """Open a consumer where the lost one stood, as soon as that is possible."""
        pause = FIRST_PAUSE
        while True:
            try:
                if not self._connection.connected:
                    await self._back.wait()
                following = await self._open_again()
            except (LogUnavailable, LogRefused) as error:
                self._failed(self._shard, str(error))
                await asyncio.sleep(pause)
            except Exception as error:
                context = {"message": f"the consumer of {self._stream} could not be opened", "exception": error}
                self._loop.call_exception_handler(context)
                self._failed(self._shard, str(error))
                await asyncio.sleep(pause)
            else:
                self._mending = None
                self._flow(following)
                return
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _open_again(self) -> Following:
        following = self._new()
        known = bool(self._time)
        made = await following.open(self._position if known else self._position + 1)
        try:
            lost_from = await self._lost_end() if not made.pending else None
        except BaseException:
            following.close()
            raise
        if lost_from is not None:
            following.close()
            following = self._new()
            await following.open(lost_from)
            self._position, self._time, self._anchor = lost_from - 1, b"", None
            self._void()
        elif known:
            self._anchor = _Anchor(self._position, self._time)
        else:
            self._breaks += 1
        return following

    async def _lost_end(self) -> int | None:
        """Return where a log goes on that ends before our position, None when it does not end there."""
        tails = []
        for pause in (CONFIRM_AFTER, 0.0):
            tails.append((await self._leader.state(self._stream)).last_seq)
            if tails[-1] >= self._position:
                return None
            await asyncio.sleep(pause)
        return min(tails) + 1

    def _void(self) -> None:
        """No sequence of before says anything about what comes: it is another log, or one that lost its end."""
        self._breaks += 1
        for tails in self._sessions.values():
            for tail in tails:
                tail.forget()

    # -- messages --------------------------------------------------------------------------------------

    def _take(self, subject: bytes, seq: int, time: bytes, payload: bytes, block: bytes) -> None:
        """Take one message of the shard (the hot path)."""
        if self._anchor is not None:
            if self._holds(self._anchor, seq, time):
                return
        elif seq != self._position + 1:
            self._breaks += 1
        self._position = seq
        self._time = time
        if self._news:
            self._tell_news(subject, seq)
        tails = self._sessions.get(subject)
        if tails is not None:
            time_ns = int(time)
            self._seen(self._shard, seq, time_ns)
            for tail in tails:
                tail.take(seq, time_ns, payload, block, self._breaks)

    def _holds(self, anchor: _Anchor, seq: int, time: bytes) -> bool:
        """Judge the first message of a re-opened consumer: is it the one that was delivered last?"""
        self._anchor = None
        if (seq, time) == anchor:
            return True
        if seq == anchor.seq:
            self._void()
        else:
            self._breaks += 1
        return False
