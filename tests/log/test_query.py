"""Bounds whose reads are interleaved with what changes the log, and lists of very many sessions."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Callable

import pytest

from ringmere.core.cursor import Outcome, SubjectBounds, decide
from ringmere.core.errors import LogUnavailable
from ringmere.embedded import EmbeddedServer
from ringmere.log import query
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.jetstream import JetStreamLog, LogSettings, open_log
from ringmere.log.leader import Found, Leader, StreamState
from ringmere.log.memory_store import NS, MemoryStore
from ringmere.log.places import Places
from ringmere.log.port import Row
from ringmere.log.shards import event_subject, stream_name
from support.logs import fill, row
from support.nats import api, append, eventually

PLACE = Places(1).of("s1")
RING = 3


class SteppedLeader:
    """Reads a store in memory; ``between[n]`` happens to the store before the read number n."""

    def __init__(self, store: MemoryStore, between: dict[int, Callable[[], None]]) -> None:
        self.store = store
        self.between = between
        self.reads = 0

    def _step(self) -> None:
        change = self.between.pop(self.reads, None)
        self.reads += 1
        if change is not None:
            change()

    async def next(self, stream: str, subject: str, seq: int) -> Found | None:
        self._step()
        found = [message for message in self.store.stream(0).subjects.get("s1", []) if message.seq >= seq]
        return Found(subject, found[0]) if found else None

    async def last(self, stream: str, subject: str) -> Found | None:
        self._step()
        found = self.store.stream(0).subjects.get("s1", [])
        return Found(subject, found[-1]) if found else None

    async def state(self, stream: str, subject: str | None = None) -> StreamState:
        self._step()
        own = self.store.stream(0)
        counts = {subject or "": len(own.subjects["s1"])} if "s1" in own.subjects else None
        return StreamState(len(own.owners), own.first if own.owners else 0, own.tail, counts)

    async def purged_to(self) -> int:
        self._step()
        return self.store.streams[0].purged.get("s1", 0)


class World:
    """A store with a clock, filled with events of two sessions, and the list of all that s1 ever held."""

    def __init__(self, ring_size: int = RING) -> None:
        self.now = NS
        self.store = MemoryStore(ring_size=ring_size, log_ttl=10, clock=lambda: self.now)
        self.ever: list[int] = []

    def publish(self, count: int = 1, session: str = "s1") -> None:
        for _ in range(count):
            self.now += NS // 10
            seq = self.store.append(0, session, Row(b"{}"), None).seq
            if session == "s1":
                self.ever.append(seq)

    def age(self, seconds: float) -> None:
        self.now += int(seconds * NS)

    def purge(self) -> None:
        self.store.purge(0, "s1")

    def held(self) -> set[int]:
        return {message.seq for message in self.store.stream(0).subjects.get("s1", [])}


CHANGES: dict[str, Callable[[World], None]] = {
    "nothing": lambda world: None,
    "one more": lambda world: world.publish(1),
    "two more": lambda world: world.publish(2),
    "a ring more": lambda world: world.publish(RING + 2),
    "other session": lambda world: world.publish(2, "s2"),
    "some expire": lambda world: world.age(9.8),
    "all expire": lambda world: world.age(11),
    "purge": lambda world: world.purge(),
    "purge, one more": lambda world: (world.purge(), world.publish(1))[1],
    "expire, one more": lambda world: (world.age(11), world.publish(1))[1],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("stored", range(RING + 3))
async def test_no_change_between_the_reads_makes_something_lost_look_kept(stored: int, change: str) -> None:
    for step, leading in itertools.product(range(1, 5), (0, 2)):
        cursor_count = leading + 2 * stored + 2
        for cursor in range(1, cursor_count):
            world = World()
            world.publish(leading, "s2")
            for _ in range(stored):
                world.publish(1)
                world.publish(1, "s2")
            present = cursor in world.held()
            lost_before = {seq for seq in world.ever if seq > cursor} - world.held()
            leader = SteppedLeader(world.store, {step: lambda world=world: CHANGES[change](world)})  # type: ignore[misc]
            bounds = await query.bounds(leader, PLACE, leader.purged_to)  # type: ignore[arg-type]
            if bounds.stored == 0 or cursor > bounds.tail:
                continue
            verdict = decide(cursor, bounds, ring_size=RING, present=present)
            # What changes behind the counts is for the next read to find, unless it is a purge.
            lost_after = {seq for seq in world.ever if seq > cursor} - world.held()
            lost = lost_after if step <= 2 or change == "purge" else lost_before
            if lost and not present:
                assert verdict.outcome is not Outcome.CONTIGUOUS, (cursor, step, bounds)
            if not lost_before and change == "nothing":
                known_here = cursor in world.ever or cursor < (world.ever or [0])[0]
                if known_here and len(world.held()) <= RING:
                    assert verdict.outcome is Outcome.CONTIGUOUS, (cursor, step, bounds)


async def test_a_session_that_begins_between_the_reads_is_read_again() -> None:
    world = World()
    world.publish(2, "s2")
    leader = SteppedLeader(world.store, {2: world.publish})
    bounds = await query.bounds(leader, PLACE, leader.purged_to)  # type: ignore[arg-type]
    assert bounds == SubjectBounds(3, 1, 3, 3, 1, 0)


async def test_bounds_that_do_not_hold_still_are_unavailable() -> None:
    world = World()

    class Flicker(SteppedLeader):
        async def next(self, stream: str, subject: str, seq: int) -> Found | None:
            return None

    world.publish()
    leader = Flicker(world.store, {})
    with pytest.raises(LogUnavailable):
        await query.bounds(leader, PLACE, leader.purged_to)  # type: ignore[arg-type]


async def test_the_last_is_never_beyond_the_tail() -> None:
    world = World(ring_size=100)
    world.publish(3)
    leader = SteppedLeader(world.store, {1: lambda: world.publish(5)})
    bounds = await query.bounds(leader, PLACE, leader.purged_to)  # type: ignore[arg-type]
    assert bounds.first <= bounds.last <= bounds.tail


# On a real server.


@pytest.fixture
async def log(nats_server: EmbeddedServer) -> AsyncIterator[JetStreamLog]:
    opened = await open_log(ConnectOptions(servers=(nats_server.url,)), LogSettings(timeout=10))
    yield opened
    await opened.close()


async def test_what_a_direct_publisher_stored_under_no_session_id_is_not_listed(
    log: JetStreamLog, connection: Connection
) -> None:
    for name in ("a", "b%2e", "b|c", "é", "d"):
        await append(connection, event_subject(0, name), row(1).payload)
    assert [state.session for state in (await log.sessions("", "", 10)).sessions] == ["a", "d"]
    assert (await log.sessions("", "", 1)).next == "a"


async def test_more_sessions_than_the_server_names_at_once_are_all_listed(
    log: JetStreamLog, connection: Connection
) -> None:
    count = 100_200
    for number in range(count):
        # The answer to one in a thousand says that those before it are stored, too.
        if number % 1000 and number != count - 1:
            connection.send(event_subject(0, f"s{number:06}"), b"{}")
        else:
            await append(connection, event_subject(0, f"s{number:06}"), b"{}")
    first = await log.sessions("", "", 2)
    assert [state.session for state in first.sessions] == ["s000000", "s000001"]
    end = await log.sessions("", f"s{count - 3:06}", 10)
    assert [state.session for state in end.sessions] == [f"s{count - 2:06}", f"s{count - 1:06}"]
    assert end.next is None
    middle = await log.sessions("s0999", "s099998", 5)
    assert [state.session for state in middle.sessions] == ["s099999"]
    started = time.monotonic()
    positions = [(f"s{number:06}", number + number % 2) for number in range(2000)]
    answers = await log.newer(positions)
    assert answers == [number % 2 == 0 for number in range(2000)]
    assert time.monotonic() - started < 10


async def test_a_purge_leaves_what_was_appended_after_it_was_asked_for(
    log: JetStreamLog, connection: Connection
) -> None:
    await fill(log, "s1", range(3))
    leader = Leader(connection)

    async def record(seq: int) -> None:
        assert seq == 3
        await fill(log, "s1", [9])

    await query.purge(connection, leader, Places(1).of("s1"), record, has_head=True)
    assert [message.seq for message in (await log.page("s1", 1, 1000)).messages] == [4]


async def test_a_head_that_lags_behind_a_purge_is_not_shown(log: JetStreamLog, connection: Connection) -> None:
    await fill(log, "s1", range(3))
    place = Places(1).of("s1")

    async def copied() -> bool:
        found = await query.head(connection, place, lambda: _value(0))
        return found is not None and found.seq == 3

    await eventually(copied, "the head stream has the last message")
    assert (await query.head(connection, place, lambda: _value(2))) is not None
    assert (await query.head(connection, place, lambda: _value(3))) is None


async def test_leader_reads_of_a_stream_that_is_gone_are_unavailable(log: JetStreamLog, connection: Connection) -> None:
    await api(connection, f"STREAM.DELETE.{stream_name(0)}")
    for question in (log.bounds("s1"), log.last("s1"), log.contains("s1", 1), log.sessions("", "", 1)):
        with pytest.raises(LogUnavailable):
            await question


async def _value(number: int) -> int:
    return number
