"""What the log on JetStream knows across sessions, and what instances ask and tell each other; a part of it.

Questions between instances are plain NATS requests on ``ringmere.stream.<name>``: nothing is stored, and when nobody
serves a name NATS says so at once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from ringmere.core.cursor import EpochTable
from ringmere.core.errors import LogRefused, LogUnavailable
from ringmere.log.connect import Connection, NoReply, Subscription
from ringmere.log.consumer_tails import ConsumerTails
from ringmere.log.epochs import Epochs
from ringmere.log.leader import Leader
from ringmere.log.listing import Listing
from ringmere.log.port import Answerer, LogListener, NewsSink, Tail
from ringmere.log.shards import control_subject, live_subject, stream_name
from ringmere.log.stamps import live_stamp

ASK_TIMEOUT = 5.0
"""Seconds that another instance may take to answer: it may have to open sessions first."""

_NOBODY = b"NATS/1.0 503"


class News:
    """Subscriptions of all shards' republished messages."""

    def __init__(self, subscriptions: list[Subscription]) -> None:
        self._subscriptions = subscriptions

    def close(self) -> None:
        """End them."""
        for subscription in self._subscriptions:
            subscription.close()


class Service:
    """A served name; questions under way when it is closed are still answered."""

    def __init__(self, connection: Connection, answer: Answerer) -> None:
        self._connection = connection
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()
        self.subscription: Subscription | None = None

    def close(self) -> None:
        """Serve the name no more."""
        if self.subscription is not None:
            self.subscription.close()

    def take(self, _subject: bytes, reply: bytes, _headers: bytes, payload: bytes) -> None:
        """Take a question."""
        task = asyncio.create_task(self._work(reply.decode(), payload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, reply: str, payload: bytes) -> None:
        try:
            self._connection.send(reply, await self._answer(payload))
        except LogUnavailable:
            return  # there is no connection to answer on: whoever asked hears nothing, and says so
        except Exception as error:
            context = {"message": "a question of another instance could not be answered", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


class Across:
    """The parts it leans on are set by :class:`~ringmere.log.jetstream.JetStreamLog`."""

    connection: Connection
    shards: int
    _epochs: Epochs
    _leader: Leader
    _listing: Listing
    _consumers: ConsumerTails | None
    _listener: LogListener | None

    def table(self, shard: int) -> EpochTable:
        """Return the current epoch table of a shard."""
        return self._epochs.table(shard)

    async def newest(self, shard: int) -> int:
        """Return the sequence that a shard's stream gave last."""
        return (await self._leader.state(stream_name(shard))).last_seq

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the ids of sessions that have messages stored."""
        return await self._listing.names(prefix, limit)

    async def watch(self, wanted: Callable[[str], bool], sink: NewsSink) -> Tail:
        """Tell of messages of wanted sessions as they are stored."""
        if self._consumers is not None:
            return await self._consumers.watch(wanted, sink)
        subscriptions: list[Subscription] = []

        def take(subject: bytes, _reply: bytes, block: bytes, _payload: bytes) -> None:
            session = subject.rpartition(b".")[2].decode()
            if wanted(session):
                stamp = live_stamp(block)
                if stamp is not None:
                    sink(session, stamp[0])

        try:
            for shard in range(self.shards):
                subscriptions += [await self.connection.subscribe(live_subject(shard, "*"), take)]
        except BaseException as error:
            News(subscriptions).close()
            if isinstance(error, LogRefused):
                raise LogUnavailable(str(error)) from error
            raise
        return News(subscriptions)

    async def serve(self, name: str, answer: Answerer) -> Tail:
        """Answer what instances ask under a name."""
        service = Service(self.connection, answer)
        try:
            service.subscription = await self.connection.subscribe(control_subject(name), service.take)
        except LogRefused as error:
            raise LogUnavailable(str(error)) from error
        return service

    async def ask(self, name: str, request: bytes) -> bytes | None:
        """Ask whoever serves a name.

        The answer comes back beside the question: gateways need not be allowed to write to anybody's inbox.
        """
        reply = control_subject(secrets.token_hex(11))
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def take(_subject: bytes, _reply: bytes, headers: bytes, payload: bytes) -> None:
            if not answer.done():
                answer.set_result(None if headers.startswith(_NOBODY) else payload)

        try:
            subscription = await self.connection.subscribe(reply, take)
        except LogRefused as error:
            raise LogUnavailable(str(error)) from error
        try:
            self.connection.send(control_subject(name), request, reply)
            async with asyncio.timeout(ASK_TIMEOUT):
                return await answer
        except TimeoutError as error:
            raise NoReply("the instance that has the stream did not answer in time") from error
        finally:
            subscription.close()

    def _degraded_event(self, session: str, payload: bytes) -> None:
        if self._listener is not None:
            self._listener.degraded_event(session, payload)

    def _storing_doubted(self, shard: int) -> None:
        if self._listener is not None and shard < self.shards:
            self._listener.storing_doubted(shard)

    def _cancel_noticed(self, session: str, task: str) -> None:
        if self._listener is not None:
            self._listener.cancel_noticed(session, task)

    def _purged(self, session: str) -> None:
        if self._listener is not None:
            self._listener.session_purged(session)
