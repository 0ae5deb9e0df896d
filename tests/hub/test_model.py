"""Log and hub against a plain ring, under publishes, faults and readers that come and go, in any order."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from ringmere.core.cursor import EpochRow
from ringmere.core.errors import Unavailable
from ringmere.core.limits import Limits
from ringmere.log.memory_store import MemoryStore
from ringmere.log.port import Row
from support.hub import Client, event
from support.machine import HubMachine, budget
from support.ring_model import Reading, Ring

TTL = 20.0
SESSIONS = ("a", "b")
NOT_EVENTS = (b"hello", b"", b"\xff\xfe", b'{"type":"client_evicted","data":1}')
LIMITS = Limits(
    window_bytes=900,
    window_bytes_total=1500,
    turn_bytes=800,
    parked_bytes=500,
    page_bytes=120,
    page_cache=3,
    sweep_first=0.5,
    sweep_max=2.0,
    write_timeout=40.0,
    channel_linger=2.0,
)


class Machine(HubMachine):
    """One store, one or two instances, and everybody who reads."""

    @initialize(ring=st.integers(1, 5), instances=st.integers(1, 2))
    def begin(self, ring: int, instances: int) -> None:
        self.store = MemoryStore(ring_size=ring, log_ttl=TTL, clock=self.loop.time_ns)
        self.rings = {session: Ring(self.store, session) for session in SESSIONS}
        self.readings: list[Reading] = []
        self.start(self.store, LIMITS, instances)

    # What publishers do.

    @rule(session=st.sampled_from(SESSIONS), count=st.integers(1, 9), wait=st.booleans())
    def publish(self, session: str, count: int, wait: bool) -> None:
        self.run(self._publish(session, count, wait))

    async def _publish(self, session: str, count: int, wait: bool) -> None:
        for number in range(count):
            self._put(session, event(number).payload, event=True)
            if wait:
                await asyncio.sleep(0)

    def _put(self, session: str, payload: bytes, *, event: bool, terminal: bool = False) -> None:
        seq = self.store.append(0, session, Row(payload), None).seq
        self.rings[session].wrote(seq, event=event, terminal=terminal)

    @rule(session=st.sampled_from(SESSIONS), payload=st.sampled_from(NOT_EVENTS))
    def publish_what_is_no_event(self, session: str, payload: bytes) -> None:
        self._put(session, payload, event=False)

    @rule(session=st.sampled_from(SESSIONS))
    def close_session(self, session: str) -> None:
        self._put(session, event(0, type="session_closed").payload, event=True, terminal=True)

    # What readers do.

    @rule(
        session=st.sampled_from(SESSIONS),
        instance=st.integers(0, 1),
        where=st.sampled_from(["0", "first-1", "first", "middle", "last", "last+1", "other", "old"]),
        pick=st.integers(0, 20),
        queued=st.sampled_from([None, 16]),
    )
    def connect(self, session: str, instance: int, where: str, pick: int, queued: int | None) -> None:
        cursor = self._cursor(session, where, pick)
        self._connect(session, instance, cursor, False, queued)

    @rule(session=st.sampled_from(SESSIONS), instance=st.integers(0, 1), from_start=st.booleans())
    def connect_without_a_cursor(self, session: str, instance: int, from_start: bool) -> None:
        self._connect(session, instance, None, from_start, None)

    def _cursor(self, session: str, where: str, pick: int) -> int:
        ids = [message.id for message in self.rings[session].messages]
        stored = sorted(self.rings[session].stored())
        others = [message.id for name in SESSIONS if name != session for message in self.rings[name].messages]
        choices = {
            "0": [0],
            "first-1": [ids[index - 1] for index, id in enumerate(ids) if index and stored and id == stored[0]],
            "first": stored[:1],
            "middle": stored,
            "last": ids[-1:],
            "last+1": [self.store.tables[0].id_of(self.store.stream(0).tail) + 1],
            "other": others,
            "old": ids,
        }[where]
        return choices[pick % len(choices)] if choices else 0

    def _connect(self, session: str, instance: int, cursor: int | None, from_start: bool, queued: int | None) -> None:
        hub = self.world.hubs[instance % len(self.world.hubs)]
        try:
            client = self.run(self.world.connect(cursor, session, hub=hub, from_start=from_start, max_queued=queued))
        except Unavailable:
            return
        if client.reader.ended and not client.raw:
            return
        begins = cursor if cursor is not None else client.reader.start_id or 0
        self.readings.append(Reading(client, self.rings[session], begins, cursor, from_start))

    def _open(self) -> list[Client]:
        return [reading.client for reading in self.readings if not reading.client.over]

    @rule(pick=st.integers(0, 20))
    def pause(self, pick: int) -> None:
        for client in self._open()[pick : pick + 1]:
            self.call(client.pause)

    @rule(pick=st.integers(0, 20))
    def resume(self, pick: int) -> None:
        for client in [client for client in self._open() if client.paused][pick : pick + 1]:
            self.call(client.resume)

    @rule(pick=st.integers(0, 20), instance=st.integers(0, 1))
    def drop_and_come_back(self, pick: int, instance: int) -> None:
        for reading in [reading for reading in self.readings if not reading.client.over][pick : pick + 1]:
            reading.check(settled=False)
            self.call(reading.client.leave)
            self.readings.remove(reading)
            cursor = reading.client.last_id
            self._connect(reading.ring.session, instance, cursor, reading.from_start and cursor is None, None)

    # What goes wrong.

    @rule(instance=st.integers(0, 1), count=st.integers(1, 3))
    def drop_live(self, instance: int, count: int) -> None:
        self.logs[instance % len(self.logs)].drop_live(count)

    @rule(instance=st.integers(0, 1))
    def hold_live(self, instance: int) -> None:
        self.logs[instance % len(self.logs)].hold_live()

    @rule(instance=st.integers(0, 1))
    def release_live(self, instance: int) -> None:
        self.call(self.logs[instance % len(self.logs)].release_live)

    @rule(instance=st.integers(0, 1), connected=st.booleans())
    def connection(self, instance: int, connected: bool) -> None:
        log = self.logs[instance % len(self.logs)]
        if connected != log.connected:
            self.call(log.reconnect if connected else log.disconnect)

    @rule(instance=st.integers(0, 1), lag=st.integers(0, 3))
    def replica_lags(self, instance: int, lag: int) -> None:
        self.logs[instance % len(self.logs)].replica_lag = lag

    @rule(session=st.sampled_from(SESSIONS))
    def purge(self, session: str) -> None:
        self.rings[session].doubtful = True
        self._overtake_live()
        self.call(lambda: self.store.purge(0, session))

    @rule(stalled=st.booleans())
    def expire(self, stalled: bool) -> None:
        """The whole log grows too old, while the process runs or while it stands still."""
        self._overtake_live()
        for ring in self.rings.values():
            ring.doubtful = True
        for log in self.logs:
            log.replica_lag = 0  # no replica stays behind for as long as the log keeps a message
        self.run(asyncio.sleep(2.5))
        if stalled:
            self.loop.jump(TTL + 1)
        self.run(asyncio.sleep(0.01 if stalled else TTL + 1))

    @precondition(lambda self: len(self.store.tables[0].rows) < 5)
    @rule()
    def recreate(self) -> None:
        for ring in self.rings.values():
            ring.recreated()
        self._overtake_live()
        self.call(self.store.recreate)

    @precondition(lambda self: len(self.store.tables[0].rows) < 5)
    @rule(lost=st.integers(1, 3))
    def promote(self, lost: int) -> None:
        """A copy that lagged takes over: the newest messages are gone."""
        newest: EpochRow = self.store.tables[0].newest
        tail = max(newest.first - 1, self.store.stream(0).tail - lost)
        if tail == self.store.stream(0).tail:
            return
        for ring in self.rings.values():
            ring.rewound(tail)
        self._overtake_live()
        self.call(lambda: self.store.rewind(tail))

    def _overtake_live(self) -> None:
        """An instance hears of another log, or a purge, behind all that was sent before: one connection, in order.

        And nothing is on its way for as long as the log keeps it.
        """
        for log in self.logs:
            log.lose_held()

    # Time, and the check.

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.06, 0.3, 1.1]))
    def advance(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule()
    def settle(self) -> None:
        """Mend everything, give it time, and hold every reader to the ring."""
        self.run(self._mend())
        self._check(settled=True)

    async def _mend(self) -> None:
        for log in self.logs:
            log.replica_lag = 0
            log.release_live()
            if not log.connected:
                log.reconnect()
        for client in self._open():
            if client.paused:
                client.resume()
        await asyncio.sleep(5)

    def _check(self, *, settled: bool) -> None:
        for reading in self.readings:
            reading.check(settled=settled)
        assert self.faults == []
        for hub in self.world.hubs:
            members = [reader for channel in hub.channels for reader in channel.members]
            assert hub.slots == len(members)
            assert hub.window_budget.used == sum(channel.window.size for channel in hub.channels)
            if settled:
                assert hub.backlog_bytes == 0
                assert not hub.paused

    def finish(self) -> None:
        self.settle()
        for reading in self.readings:
            if not reading.client.over:
                self.call(reading.client.leave)


@pytest.mark.timeout(240)
class TestModel(Machine.TestCase):  # type: ignore[name-defined, misc]
    settings = budget(80, 40)
