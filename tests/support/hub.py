"""A hub on a log in memory, readers whose transport a test can stop, and what they were sent, decoded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from ringmere.core.coalesce import Rules
from ringmere.core.decoder import Decoder
from ringmere.core.event import Draft, make_payload
from ringmere.core.frames import HEARTBEAT, chunked
from ringmere.core.limits import Limits
from ringmere.core.reasons import CloseReason
from ringmere.hub.hub import Hub
from ringmere.hub.observer import Account, Observer
from ringmere.hub.subscriber import SubscribeOptions, Subscriber
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from ringmere.log.port import Row
from support.virtual import VirtualLoop, eventually

S1 = "s1"


class Got(NamedTuple):
    """One frame as a client sees it. ``id`` is None for a control frame; ``data`` is the envelope's."""

    id: int | None
    type: str
    data: Any


class Client:
    """The far end of one stream: keeps its bytes, and reads on or does not, as the test says.

    With ``high_water`` it pauses the reader by itself, inside a write, as a transport does.
    """

    def __init__(self, *, framed: bool = True, high_water: int | None = None, paused: bool = False) -> None:
        self.transport = "sse"
        self.framed = framed
        self.paused = paused
        self.high_water = high_water
        self.buffered = 0
        self.raw = bytearray()
        self.finished = False
        self.aborted = False
        self.reader: Subscriber | None = None

    # What the hub calls.

    def write(self, data: bytes) -> None:
        assert data, "an empty write would end a chunked body"
        assert not self.finished, "a write after the end"
        self.raw += data
        self.buffered += len(data)
        if self.high_water is not None and self.buffered > self.high_water and not self.paused:
            self.pause()

    def heartbeat(self) -> None:
        self.write(chunked(HEARTBEAT) if self.framed else HEARTBEAT)

    def finish(self, reason: CloseReason) -> None:
        assert not self.finished, "ended twice"
        self.finished = True

    def abort(self) -> None:
        self.aborted = True

    # What a test does.

    def pause(self) -> None:
        self.paused = True
        if self.reader is not None:
            self.reader.pause()

    def resume(self) -> None:
        self.buffered = 0
        self.paused = False
        assert self.reader is not None
        self.reader.resume()

    def read(self) -> None:
        """Take what the transport holds; the transport asks for more."""
        if self.paused:
            self.resume()
        self.buffered = 0

    def leave(self) -> None:
        assert self.reader is not None
        self.reader.lost()

    @property
    def over(self) -> bool:
        return self.finished or self.aborted

    @property
    def body(self) -> bytes:
        """The body without its chunk framing; every chunk must be whole."""
        return dechunk(bytes(self.raw)) if self.framed else bytes(self.raw)

    @property
    def frames(self) -> list[Got]:
        return [decoded(message.data, message.type) for message in Decoder().feed(self.body)]

    @property
    def ids(self) -> list[int]:
        return [frame.id for frame in self.frames if frame.id is not None]

    @property
    def controls(self) -> list[Got]:
        return [frame for frame in self.frames if frame.id is None]

    @property
    def types(self) -> list[str]:
        return [frame.type for frame in self.frames]

    def of(self, type: str) -> list[Any]:
        return [frame.data for frame in self.frames if frame.type == type]

    @property
    def story(self) -> list[int | str]:
        """Ids of events, types of control frames."""
        return [frame.type if frame.id is None else frame.id for frame in self.frames]

    @property
    def last_id(self) -> int | None:
        """The cursor an EventSource would come back with."""
        decoder = Decoder()
        decoder.feed(self.body)
        return int(decoder.last_id) if decoder.last_id else None


def dechunk(raw: bytes) -> bytes:
    body = bytearray()
    at = 0
    while at < len(raw):
        end = raw.index(b"\r\n", at)
        size = int(raw[at:end], 16)
        assert size, "an empty chunk ends the body"
        body += raw[end + 2 : end + 2 + size]
        assert raw[end + 2 + size : end + 4 + size] == b"\r\n"
        at = end + 4 + size
    return bytes(body)


def decoded(data: str, type: str) -> Got:
    envelope = json.loads(data)
    assert envelope["type"] == type
    assert envelope["v"] == 1
    return Got(envelope.get("id"), type, envelope["data"])


class Watcher(Observer):
    """Keeps what a test asks about."""

    def __init__(self) -> None:
        self.closed: list[CloseReason] = []
        self.delivered_events: list[int] = []
        self.accounts: list[Account] = []
        self.resumes: list[tuple[str, str]] = []
        self.skips: list[tuple[int, str]] = []
        self.gaps = 0
        self.resyncs: list[str] = []
        self.resync_modes: list[str] = []
        self.snapshots_written: list[str] = []
        self.snapshots_sent: list[str] = []
        self.fallen_back: list[CloseReason] = []
        self.caught_up_with: list[int] = []
        self.coalesced_events = 0
        self.degradations: list[tuple[int, str]] = []
        self.restorations: list[tuple[int, float]] = []

    def stream_closed(
        self, transport: str, session: str, stream_id: str, reason: CloseReason, seconds: float, account: Account
    ) -> None:
        self.closed.append(reason)
        self.delivered_events.append(account.events)
        self.accounts.append(account)

    def resumed(self, session: str, verdict: str, source: str) -> None:
        self.resumes.append((verdict, source))

    def resync(self, session: str, reason: str, detail: str | None, stream_id: str | None) -> None:
        self.resyncs.append(reason)

    def resync_mode(self, session: str, mode: str) -> None:
        self.resync_modes.append(mode)

    def snapshot_written(self, session: str, outcome: str, size: int) -> None:
        self.snapshots_written.append(outcome)

    def snapshot_sent(self, session: str, stream_id: str, cause: str) -> None:
        self.snapshots_sent.append(cause)

    def skipped(self, session: str, seq: int, reason: str) -> None:
        self.skips.append((seq, reason))

    def live_gap(self, session: str) -> None:
        self.gaps += 1

    def fell_back(self, session: str, stream_id: str, reason: CloseReason) -> None:
        self.fallen_back.append(reason)

    def caught_up(self, session: str, events: int) -> None:
        self.caught_up_with.append(events)

    def coalesced(self, session: str, events: int) -> None:
        self.coalesced_events += events

    def log_degraded(self, shard: int, reason: str) -> None:
        self.degradations.append((shard, reason))

    def log_restored(self, shard: int, seconds: float) -> None:
        self.restorations.append((shard, seconds))


class World:
    """One store, its log and hub, more instances on demand, and the faults that nobody else has seen."""

    def __init__(
        self, store: MemoryStore, limits: Limits, *, require_session: bool = False, coalesce: Rules | None = None
    ) -> None:
        self.store = store
        self.coalesce = coalesce
        self.limits = limits
        self.require_session = require_session
        self.faults: list[Any] = []
        self.hubs: list[Hub] = []
        self.watchers: list[Watcher] = []
        self.hub, self.log = self.instance()
        self.watcher = self.watchers[0]

    def instance(self) -> tuple[Hub, MemoryLog]:
        log = MemoryLog(self.store)
        watcher = Watcher()
        hub = Hub(
            log,
            self.limits,
            watcher,
            require_session=self.require_session,
            coalesce=self.coalesce,
            clock=self.store.clock,
        )
        self.hubs.append(hub)
        self.watchers.append(watcher)
        return hub, log

    async def add(self) -> tuple[Hub, MemoryLog]:
        hub, log = self.instance()
        await hub.start()
        return hub, log

    def put(self, count: int = 1, session: str = S1, size: int = 0, type: str = "t") -> list[int]:
        """Publish past the hub, at once; return the sequences."""
        shard = self.log.shard_of(session)
        return [
            self.store.append(shard, session, Row(event(number, size, type).payload), None).seq
            for number in range(count)
        ]

    def put_raw(self, payload: bytes, session: str = S1) -> int:
        return self.store.append(self.log.shard_of(session), session, Row(payload), None).seq

    async def connect(
        self,
        cursor: int | None = None,
        session: str = S1,
        *,
        hub: Hub | None = None,
        client: Client | None = None,
        **options: Any,
    ) -> Client:
        client = client or Client()
        reader = await (hub or self.hub).subscribe(session, SubscribeOptions(cursor=cursor, **options))
        client.reader = reader
        reader.attach(client)
        return client

    async def stalled(self, session: str = S1, **options: Any) -> Client:
        """Connect a live client that reads nothing more from now on."""
        client = await self.connect(session=session, **options)
        client.pause()
        return client

    async def settle(self, seconds: float = 0.2) -> None:
        """Let everything happen that needs no more than ``seconds`` of virtual time."""
        await asyncio.sleep(seconds)

    def assert_empty(self) -> None:
        """Nothing of any reader is left."""
        for hub in self.hubs:
            stats = hub.stats()
            assert sum(stats.subscribers.values()) == 0
            assert hub.backlog_bytes == 0
            assert not hub.paused
            assert hub.slots == 0
            for channel in hub.channels:
                assert channel.slots == 0
                assert channel.readers == ()


def event(number: int, size: int = 0, type: str = "t") -> Draft:
    return make_payload(type, {"n": number, "pad": "x" * size} if size else {"n": number})


@asynccontextmanager
async def world(
    *,
    ring_size: int = 8000,
    log_ttl: float = 3600.0,
    shards: int = 1,
    head_ttl: float = 7 * 86400.0,
    require_session: bool = False,
    coalesce: Rules | None = None,
    faults_expected: bool = False,
    store: MemoryStore | None = None,
    **limits: Any,
) -> AsyncIterator[World]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    store = store or MemoryStore(
        ring_size=ring_size, log_ttl=log_ttl, shards=shards, head_ttl=head_ttl, clock=loop.time_ns
    )
    made = World(store, Limits(**limits), require_session=require_session, coalesce=coalesce)
    loop.set_exception_handler(lambda _, context: made.faults.append(context))
    tasks = asyncio.all_tasks()
    await made.hub.start()
    try:
        yield made
        if not faults_expected:
            assert made.faults == []
    finally:
        for hub in made.hubs:
            await hub.close()
        await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == tasks, "tasks were left behind"
    if not faults_expected:
        assert made.faults == []
    made.assert_empty()


async def arrived(client: Client, count: int, within: float = 10.0) -> None:
    """Wait until the client has ``count`` events."""
    await eventually(lambda: len(client.ids) >= count, within, f"{count} events")


async def over(client: Client, within: float = 10.0) -> CloseReason:
    """Wait until the stream has ended; return why."""
    assert client.reader is not None
    async with asyncio.timeout(within):
        return await client.reader.wait()
