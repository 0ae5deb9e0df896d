"""Clients that recover as the protocol says, against the publisher's own state, whatever happens to the log between.

Events leave the ring, grow too old or are purged; sessions end and go on; stored states come and go; readers drop in
the middle of a replay and come back on any instance. A client that takes its state for whole must have the publisher's;
one whose log has lost something it had not seen must not, until a stored state helps it.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from ringmere.core.errors import NewerSnapshot, SnapshotNotFound, UnknownEventId
from ringmere.core.event import make_payload
from ringmere.core.limits import Limits
from ringmere.core.snapshot import SnapshotDraft
from ringmere.hub.options import Resync
from ringmere.log.memory_store import MemoryStore
from ringmere.log.port import Row
from support.machine import HubMachine, budget
from support.model_client import Manner, ModelClient, State, folded

TTL = 20.0
SESSIONS = ("a", "b")
KEYS = ("x", "y", "z")
SETTLED = 5.0
LIMITS = Limits(
    window_bytes=900,
    window_bytes_total=1500,
    turn_bytes=800,
    page_bytes=120,
    page_cache=3,
    sweep_first=0.5,
    sweep_max=2.0,
    write_timeout=40.0,
    channel_linger=2.0,
)
MANNERS = st.builds(Manner, st.booleans(), st.sampled_from([Resync.REPLAY, Resync.SNAPSHOT]), st.booleans())
INSTANCES = st.integers(0, 1)


class Truth:
    """What the publisher of one session knows: each event's id, and the state behind it."""

    def __init__(self) -> None:
        self.states: dict[int, State] = {0: {}}
        self.closed = False
        self.purged_to = 0
        """The last event before a purge: who has missed it is told so before the next one (contract 10.4)."""

    @property
    def last_id(self) -> int:
        """The id of the last event, 0 without one."""
        return max(self.states)

    @property
    def state(self) -> State:
        """The state behind the last event."""
        return self.states[self.last_id]


class Machine(HubMachine):
    """One store, two instances, two sessions with a publisher each, and clients of all manners."""

    @initialize(ring=st.integers(2, 6), head_ttl=st.sampled_from([0.0, 3 * TTL, 7 * 86400.0]))
    def begin(self, ring: int, head_ttl: float) -> None:
        self.store = MemoryStore(ring_size=ring, log_ttl=TTL, head_ttl=head_ttl, clock=self.loop.time_ns)
        self.truths = {session: Truth() for session in SESSIONS}
        self.clients: list[ModelClient] = []
        self.number = 0
        self.start(self.store, LIMITS)

    # What the publisher does.

    async def _publish(self, session: str, keys: str, *, terminal: bool = False) -> None:
        truth = self.truths[session]
        for key in keys:
            self.number += 1
            data = {"key": key, "n": self.number}
            payload = make_payload("session_closed" if terminal else "set", data).payload
            seq = self.store.append(0, session, Row(payload), None).seq
            truth.states[self.store.tables[0].id_of(seq)] = folded(truth.state, data)
            truth.closed = terminal
            await asyncio.sleep(0)

    @rule(session=st.sampled_from(SESSIONS), keys=st.text(KEYS, min_size=1, max_size=9))
    def publish(self, session: str, keys: str) -> None:
        """Publish; a closed session goes on with it."""
        self.run(self._publish(session, keys))

    @rule(session=st.sampled_from(SESSIONS))
    def close_session(self, session: str) -> None:
        self.run(self._publish(session, "x", terminal=True))

    async def _store_state(self, session: str, instance: int, behind: int, *, final: bool = False) -> None:
        truth = self.truths[session]
        covered = sorted(truth.states)[-1 - behind :][0]
        draft = SnapshotDraft(covered, json.dumps(truth.states[covered]).encode(), final)
        try:
            await self.world.hubs[instance].snapshots.put(session, draft)
        except NewerSnapshot as error:
            self.faults += [error] if error.current <= covered else []
        except UnknownEventId:
            assert not self._provable(session, covered)

    def _provable(self, session: str, covered: int) -> bool:
        """Whether the log can still say that the session has had this event: it is stored, or the last one it knows."""
        stored = [message.seq for message in self.store.stream(0).subjects.get(session, [])]
        head = self.store.head(0, session)
        return covered in stored or (head is not None and covered == head.seq)

    @rule(session=st.sampled_from(SESSIONS), instance=INSTANCES, behind=st.integers(0, 4), final=st.booleans())
    def store_state(self, session: str, instance: int, behind: int, final: bool) -> None:
        final = final and behind == 0 and self.truths[session].closed
        self.run(self._store_state(session, instance, behind, final=final))

    @rule(
        session=st.sampled_from(SESSIONS), instance=INSTANCES, behind=st.integers(0, 2), keys=st.text(KEYS, min_size=1)
    )
    def store_state_while_events_are_published(self, session: str, instance: int, behind: int, keys: str) -> None:
        async def both() -> None:
            await asyncio.gather(self._publish(session, keys[:9]), self._store_state(session, instance, behind))

        self.run(both())

    @rule(session=st.sampled_from(SESSIONS), instance=INSTANCES)
    def drop_state(self, session: str, instance: int) -> None:
        self.run(self.world.hubs[instance].snapshots.drop(session))

    # What clients do.

    @rule(
        session=st.sampled_from(SESSIONS),
        manner=MANNERS,
        instance=INSTANCES,
        begin=st.sampled_from(["live", "0", "load"]),
        keys=st.text(KEYS, max_size=6),
    )
    def a_client_comes_while_events_are_published(
        self, session: str, manner: Manner, instance: int, begin: str, keys: str
    ) -> None:
        client = ModelClient(session, manner)

        async def comes() -> None:
            if begin == "load":
                await self._load(client, instance)
            elif begin == "0":
                client.cursor = 0
            # Who is there before the first event has everything from then on, and so has who reads all of it from 0.
            client.whole = client.whole or begin == "0" or not self.truths[session].last_id
            await self._open(client, instance)

        async def both() -> None:
            await comes()
            await self._publish(session, keys)

        self.clients.append(client)
        self.run(both())

    async def _open(self, client: ModelClient, instance: int) -> None:
        truth, manner = self.truths[client.session], client.manner
        if client.cursor is None and truth.last_id:
            client.whole = False  # cut off before it knew where it had begun: it is as new
        if not client.cursor and self._shortened(client.session):
            client.whole = False
        last_id = truth.last_id
        client.opened(
            await self.world.connect(
                client.cursor,
                client.session,
                hub=self.world.hubs[instance],
                resync=manner.resync,
                snapshot=manner.snapshot,
                anchor=manner.native,
            )
        )
        if client.stopped and client.whole:
            assert client.state in [state for public_id, state in truth.states.items() if public_id >= last_id]

    def _shortened(self, session: str) -> bool:
        """Whether the log has lost its oldest events and has no fence: who asks for all of it is not told (4.5)."""
        stored = len(self.store.stream(0).subjects.get(session, []))
        return stored < min(len(self.truths[session].states) - 1, self.store.ring_size + 1)

    async def _load(self, client: ModelClient, instance: int) -> bool:
        """Do what a client does with the URL of a verdict: load the state, to resume behind it."""
        try:
            found = await self.world.hubs[instance].snapshots.get(client.session)
        except SnapshotNotFound:
            return False
        client.load(json.loads(found.state), found.last_event_id)
        return True

    def _picked(self, pick: int) -> list[ModelClient]:
        return self.clients[pick % len(self.clients) :][:1] if self.clients else []

    @rule(
        pick=st.integers(0, 9), instance=INSTANCES, read=st.integers(0, 12) | st.none(), keys=st.text(KEYS, max_size=9)
    )
    def drop_and_come_back(self, pick: int, instance: int, read: int | None, keys: str) -> None:
        """Lose the connection, anywhere in what is on its way, and resume while more is published."""
        for client in self._picked(pick):

            async def again(client: ModelClient = client) -> None:
                self._drop(client, read)
                await asyncio.gather(self._open(client, instance), self._publish(client.session, keys))

            self.run(again())

    def _drop(self, client: ModelClient, read: int | None = None) -> None:
        if client.client is not None:
            client.take(read)
        client.leave()

    @rule(pick=st.integers(0, 9), read=st.integers(0, 12) | st.none())
    def go_away(self, pick: int, read: int | None) -> None:
        for client in self._picked(pick):

            async def away(client: ModelClient = client) -> None:
                self._drop(client, read)

            self.run(away())

    @rule(pick=st.integers(0, 9))
    def stop_reading(self, pick: int) -> None:
        for client in self._picked(pick):
            if client.client is not None and not client.client.over:
                self.call(client.client.pause)

    @rule(pick=st.integers(0, 9))
    def read_on(self, pick: int) -> None:
        for client in self._picked(pick):
            if client.client is not None and client.client.paused and not client.client.over:
                self.call(client.client.resume)

    # What happens to the log and the way to it.

    @rule(instance=INSTANCES, session=st.sampled_from(SESSIONS), keys=st.text(KEYS, min_size=1, max_size=9))
    def an_instance_loses_its_connection_for_a_while(self, instance: int, session: str, keys: str) -> None:
        async def away() -> None:
            self.logs[instance].disconnect()
            await self._publish(session, keys)
            self.logs[instance].reconnect()

        self.run(away())

    @rule(instance=INSTANCES, count=st.integers(1, 3))
    def lose_live(self, instance: int, count: int) -> None:
        self.logs[instance].drop_live(count)

    @rule(session=st.sampled_from(SESSIONS), instance=INSTANCES)
    def purge(self, session: str, instance: int) -> None:
        self.run(self.world.hubs[instance].purge(session))
        self.truths[session].purged_to = self.truths[session].last_id

    @rule(seconds=st.sampled_from([TTL / 2, TTL + 1]))
    def expire(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    # The check.

    @rule()
    def settle(self) -> None:
        """Give everything time; then hold each client's word to the publisher's."""
        self.run(self._settle())

    async def _settle(self) -> None:
        for client in self.clients:
            if client.client is not None and client.client.paused and not client.client.over:
                client.client.resume()
        await asyncio.sleep(SETTLED)
        await asyncio.gather(*(self._follow(client, number % 2) for number, client in enumerate(self.clients)))
        assert self.faults == []

    async def _follow(self, client: ModelClient, instance: int) -> None:
        """Do what a client does by itself: come back when the stream ends, until it is told that nothing follows."""
        while client.client is not None:
            client.take()
            if client.stopped or not client.client.over:
                self._hold(client)
                return
            await self._open(client, instance)
            await asyncio.sleep(SETTLED)

    def _hold(self, client: ModelClient) -> None:
        truth = self.truths[client.session]
        if client.whole and not client.stopped and truth.last_id > truth.purged_to:
            assert client.state == truth.state

    async def _recover(self, client: ModelClient, instance: int) -> None:
        """Load the stored state, if there is one, and resume behind it."""
        if not client.whole and await self._load(client, instance):
            client.leave()
            await self._open(client, instance)
            await asyncio.sleep(SETTLED)
            await self._follow(client, instance)

    @rule(instance=INSTANCES)
    def recover(self, instance: int) -> None:
        self.run(self._recover_all(instance))

    async def _recover_all(self, instance: int) -> None:
        await self._settle()
        await asyncio.gather(*(self._recover(client, instance) for client in self.clients))

    async def _come_back(self, client: ModelClient) -> None:
        if client.client is None or client.stopped:
            await self._open(client, 0)

    def finish(self) -> None:
        self.run(self._end())

    async def _end(self) -> None:
        """Store a last state: with it every client, also one that is away, gets to the publisher's."""
        await self._settle()
        for session in SESSIONS:
            await self._publish(session, "z")
            await self._store_state(session, 0, 0)
        await asyncio.gather(*(self._come_back(client) for client in self.clients))
        await self._recover_all(1)
        for client in self.clients:
            assert client.whole
            client.leave()


@pytest.mark.timeout(240)
class TestRecovery(Machine.TestCase):  # type: ignore[name-defined, misc]
    settings = budget(60, 40, shrink=False)
