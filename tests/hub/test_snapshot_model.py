"""Stored states and resumes against a publisher's own state: a client that follows the rules always ends there."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from ringmere.core.errors import NewerSnapshot, SnapshotNotFound
from ringmere.core.event import make_payload
from ringmere.core.limits import Limits
from ringmere.core.snapshot import SnapshotDraft
from ringmere.hub.options import Resync
from ringmere.log.memory_store import MemoryStore
from ringmere.log.port import Row
from support.hub import S1, Client
from support.machine import HubMachine, budget

LIMITS = Limits(window_bytes=900, page_bytes=120, page_cache=3, turn_bytes=800, sweep_first=0.5, sweep_max=2.0)


class Model:
    """A client: its state is the numbers of all events, which it has from a stored state and from events."""

    def __init__(self, wish: Resync) -> None:
        self.wish = wish
        self.cursor: int | None = None
        self.numbers: list[int] = []
        self.whole = False
        """Whether its state has no hole: what a client may show as the truth."""
        self.stale = False
        self.client: Client | None = None
        self.seen = 0

    def take(self) -> None:
        """Apply what has come, frame by frame, as the protocol says."""
        assert self.client is not None
        frames = self.client.frames[self.seen :]
        self.seen += len(frames)
        for frame in frames:
            if frame.id is not None:
                assert self.cursor is None or frame.id > self.cursor, "an event came twice"
                self.numbers = [*self.numbers, frame.data["n"]]
                self.cursor = frame.id
            elif frame.type == "state_resync_required":
                self.whole = False
                self.stale = frame.data.get("detail") == "snapshot_stale"
            elif frame.type == "session_snapshot":
                self.numbers = frame.data["state"]
                self.cursor = frame.data["lastEventId"]
                self.whole = not self.stale


class Machine(HubMachine):
    """One store, two instances, a publisher that stores its state now and then, and clients."""

    @initialize(ring=st.sampled_from([2, 4, 12, 40]))
    def begin(self, ring: int) -> None:
        self.store = MemoryStore(ring_size=ring, clock=self.loop.time_ns)
        self.truth: list[int] = []
        self.last_id = 0
        self.models: list[Model] = []
        self.start(self.store, LIMITS)

    async def _publish(self, count: int) -> None:
        for _ in range(count):
            number = len(self.truth)
            seq = self.store.append(0, S1, Row(make_payload("t", {"n": number}).payload), None).seq
            self.truth.append(number)
            self.last_id = self.store.tables[0].id_of(seq)
            await asyncio.sleep(0)

    @rule(count=st.integers(1, 5))
    def publish(self, count: int) -> None:
        self.run(self._publish(count))

    async def _snapshot(self, instance: int, behind: int) -> None:
        covered = max(0, len(self.truth) - behind)
        public_id = covered  # one session in the stream, one epoch: ids are counted from 1
        state = json.dumps(self.truth[:covered]).encode()
        with contextlib.suppress(NewerSnapshot):
            await self.world.hubs[instance].snapshots.put(S1, SnapshotDraft(public_id, state))

    @rule(instance=st.integers(0, 1), behind=st.integers(0, 4))
    def snapshot(self, instance: int, behind: int) -> None:
        self.run(self._snapshot(instance, behind))

    @rule(instance=st.integers(0, 1), behind=st.integers(0, 2), count=st.integers(1, 9))
    def snapshot_while_publishing(self, instance: int, behind: int, count: int) -> None:
        async def both() -> None:
            await asyncio.gather(self._publish(count), self._snapshot(instance, behind))

        self.run(both())

    @rule(instance=st.integers(0, 1), wish=st.sampled_from([Resync.REPLAY, Resync.SNAPSHOT]), count=st.integers(0, 6))
    def a_new_client_comes_while_events_are_published(self, instance: int, wish: Resync, count: int) -> None:
        model = Model(wish)
        self.models.append(model)

        async def both() -> None:
            await asyncio.gather(self._connect(model, instance), self._publish(count))

        self.run(both())

    async def _connect(self, model: Model, instance: int) -> None:
        hub = self.world.hubs[instance]
        if model.cursor is None and model.wish is Resync.REPLAY:
            model.cursor, model.whole = 0, True
            await self._load(model, hub)
        model.stale = False
        model.client = await self.world.connect(
            model.cursor, hub=hub, resync=model.wish, snapshot=model.wish is Resync.SNAPSHOT
        )
        model.seen = 0

    async def _load(self, model: Model, hub: Any) -> None:
        """Do what a client does with the URL of a verdict: load the state, and resume behind it."""
        try:
            found = await hub.snapshots.get(S1)
        except SnapshotNotFound:
            return
        model.numbers, model.cursor, model.whole = json.loads(found.state), found.last_event_id, True

    @rule(pick=st.integers(0, 9), instance=st.integers(0, 1), count=st.integers(0, 12))
    def drop_and_come_back_on_any_instance(self, pick: int, instance: int, count: int) -> None:
        if not self.models:
            return
        model = self.models[pick % len(self.models)]
        assert model.client is not None

        async def again() -> None:
            model.take()
            assert model.client is not None
            if not model.client.over:
                model.client.leave()
            await self._publish(count)
            await self._connect(model, instance)

        self.run(again())

    @rule(instance=st.integers(0, 1), count=st.integers(1, 9))
    def an_instance_loses_its_connection_for_a_while(self, instance: int, count: int) -> None:
        log = self.store.watchers[instance]

        async def away() -> None:
            log.disconnect()  # type: ignore[attr-defined]
            await self._publish(count)
            log.reconnect()  # type: ignore[attr-defined]

        self.run(away())

    @rule()
    def settle(self) -> None:
        self.run(asyncio.sleep(5))
        for model in self.models:
            self.run(self._recover(model))
        assert self.faults == []

    async def _recover(self, model: Model) -> None:
        """Follow the documented recovery until state is whole; then it must be the publisher's."""
        model.take()
        if not model.whole and model.wish is Resync.REPLAY:
            before = model.cursor
            await self._load(model, self.world.hub)
            if model.whole:
                assert model.client is not None
                model.client.leave()
                await self._connect(model, 0)
                await asyncio.sleep(5)
                model.take()
            else:
                assert model.cursor == before
        if model.whole:
            assert model.numbers == self.truth

    def finish(self) -> None:
        self.settle()
        # With a fresh state, whoever comes back ends with the publisher's.
        self.run(self._snapshot(0, 0))
        for model in self.models:
            assert model.client is not None
            model.client.leave()
            model.cursor = None
            self.run(self._connect(model, 1))
        self.run(asyncio.sleep(5))
        for model in self.models:
            model.take()
            assert model.numbers == self.truth
            assert model.client is not None
            model.client.leave()


@pytest.mark.timeout(180)
class TestSnapshotModel(Machine.TestCase):  # type: ignore[name-defined, misc]
    settings = budget(80, 25)
