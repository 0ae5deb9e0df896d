"""Catching up with many sessions: whatever interrupts it, each event comes once, in order, and nothing spins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ringmere.core.backlog import Overflow
from ringmere.hub.membership import Change
from support.hub import Client, world
from support.many import connect, events, seen, stream_of
from support.virtual import eventually


@pytest.mark.parametrize("count", [10, 25, 35, 100])
@pytest.mark.parametrize("overflow", list(Overflow))
@pytest.mark.parametrize("high_water", [None, 4000])
async def test_a_session_that_is_added_with_a_ring_of_any_length_loses_nothing(
    count: int, overflow: Overflow, high_water: int | None
) -> None:
    async with world(page_bytes=20_000, parked_bytes=20_000, turn_bytes=20_000, max_queued=16) as w:
        expected = []
        for _ in range(count):
            expected += [("b", seq) for seq in w.put(1, "b", size=1000)]
            w.put(1, "x")
        client = await connect(w, "a", overflow=overflow, client=Client(high_water=high_water))
        await w.settle()
        change = Change(add=("b",), from_start=True)
        await w.hub.many.membership.change(stream_of(client).stream_id, change)
        for _ in range(50):
            await w.settle(0.1)
            assert not client.over
            client.read()
        assert events(client) == expected


async def test_a_new_epoch_amid_a_catch_up_brings_nothing_again() -> None:
    async with world(page_bytes=20_000, window_bytes=1000) as w:
        expected = []
        for _ in range(100):
            expected += [("b", seq) for seq in w.put(1, "b", size=1000)]
            w.put(1, "x")
        client = await connect(w, "a", "b", from_start=True, client=Client(high_water=4000))
        await eventually(lambda: len(events(client)) > 5)
        assert len(events(client)) < 50
        w.store.rewind(199)
        for _ in range(50):
            await w.settle(0.1)
            client.read()
        assert events(client) == expected


@pytest.mark.parametrize("late", ["a", "b"])
async def test_a_session_that_learns_of_another_log_late_is_waited_for_without_spinning(late: str) -> None:
    async with world() as w:
        for _ in range(50):
            w.put(1, "a")
            w.put(1, "b")
        client = await connect(w, "a", "b", cursor="90")
        await w.settle(1)
        last = w.log.last

        async def slow(session: str) -> Any:
            if session == late:
                await asyncio.sleep(1)
            return await last(session)

        w.log.last = slow  # type: ignore[method-assign]
        w.store.recreate(0)
        before = len(events(client))
        for _ in range(6):
            w.put(1, "a")
            w.put(1, "b")
        await w.settle(5)
        assert [name for name, _ in events(client)[before:]] == ["a", "b"] * 6
        verdicts = [row.data["sessionId"] for row in seen(client) if row.type == "state_resync_required"]
        assert sorted(verdicts) == ["a", "b"]
