"""Readers that stop and go at any moment, with everything that can happen to their backlog (contract 6.6 to 6.8)."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringmere.core.backlog import Overflow
from ringmere.core.coalesce import Rules
from ringmere.core.limits import KIB
from support.hub import Client, World, world
from support.virtual import VirtualLoop, eventually

RULES = Rules({"t": "/data"})
PUBLISH = st.tuples(st.just("publish"), st.integers(1, 40))
STOP = st.tuples(st.just("stop"), st.integers(0, 1))
GO = st.tuples(st.just("go"), st.integers(0, 1))
WAIT = st.tuples(st.just("wait"), st.sampled_from([0, 1, 10, 100, 2600]))
STEPS = st.lists(st.one_of(PUBLISH, PUBLISH, STOP, GO, WAIT), min_size=5, max_size=40)


class Walk:
    """Two readers of one session, one with a transport that pauses by itself; the data is ``<its sequence>,``."""

    def __init__(self, w: World, clients: list[Client]) -> None:
        self.world = w
        self.clients = clients
        self.last = 0

    async def step(self, what: str, value: int) -> None:
        if what == "publish":
            for _ in range(value):
                self.last = self.world.put_raw(b'{"type":"t","data":"%d,"}' % (self.last + 1))
        elif what == "wait":
            await asyncio.sleep(value / 100)
        else:
            client = self.clients[value]
            if not client.over and client.paused is (what == "go"):
                client.read() if what == "go" else client.pause()

    async def finish(self) -> None:
        """Let both read to the end of what is stored, and hold them to it."""
        for client in self.clients:
            await eventually(lambda client=client: self._read(client), 60)
            self.check(client)

    def _read(self, client: Client) -> bool:
        if client.over:
            return True
        client.read()
        return self.last == 0 or client.last_id == self.last

    def check(self, client: Client) -> None:
        """Every sequence once and in order, or a verdict that names both edges of what is missing."""
        last, due = 0, 1
        for frame in client.frames:
            if frame.type == "state_resync_required":
                assert frame.data["lastDeliveredId"] == last
                assert frame.data["earliestAvailableId"] > due
                due = frame.data["earliestAvailableId"]
            elif frame.id is not None:
                numbers = [int(number) for number in frame.data.split(",")[:-1]]
                assert numbers == [*range(due, due + len(numbers))]
                last = frame.id
                assert last == numbers[-1]
                due = last + 1
            elif frame.type == "client_evicted":
                assert frame.data["reason"] in ("write_timeout", "too_slow")
                assert frame.data["droppedAfter"] == last
            else:
                assert frame.type == "slow_client_warning"


@pytest.mark.parametrize("coalesce", [False, True])
def test_every_event_comes_once_or_its_loss_is_told(coalesce: bool) -> None:
    falls: list[int] = []

    @given(ring=st.sampled_from([3, 30, 5000]), memory=st.sampled_from([150, 300, 100 * KIB]), steps=STEPS)
    @settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def walk(ring: int, memory: int, steps: list[tuple[str, int]]) -> None:
        loop = VirtualLoop()
        asyncio.set_event_loop(loop)
        try:
            falls.append(loop.run_until_complete(_walk(coalesce, ring, memory, steps)))
        finally:
            loop.close()
            asyncio.set_event_loop(None)

    walk()
    assert sum(falls) > 20, "the walks hardly ever led where they should"


async def _walk(coalesce: bool, ring: int, memory: int, steps: list[tuple[str, int]]) -> int:
    """Walk once; return how often a reader fell back."""
    async with world(
        ring_size=ring,
        coalesce=RULES,
        backlog_bytes_total=memory,
        max_queued_bytes=300 if coalesce else 2 * KIB,
        window_bytes=KIB,
        page_bytes=KIB,
        turn_bytes=KIB,
    ) as w:
        ends = (Client(), Client(high_water=400))
        clients = [
            await w.connect(client=end, overflow=Overflow.CATCHUP, coalesce=coalesce, max_queued=4) for end in ends
        ]
        walk = Walk(w, clients)
        await walk.step("publish", 1)
        await asyncio.sleep(0.01)
        for what, value in steps:
            await walk.step(what, value)
        await walk.finish()
        for client in clients:
            if not client.over:
                client.leave()
        return len(w.watcher.fallen_back)
