"""Sessions that begin while a stream of what matches is open: each joins once, and each is counted once."""

from __future__ import annotations

import asyncio
from typing import Any

from support.hub import world
from support.many import connect, events, seen, stream_of


async def test_a_session_on_its_way_in_counts_once_for_the_bound() -> None:
    async with world(max_sessions_per_stream=6) as w:
        client = await connect(w, match="run-")
        await w.settle()
        client.pause()
        for number in range(6):
            w.put(1, f"run-{number}")
            await w.settle(1)
        assert not client.over
        client.resume()
        await w.settle(2)
        assert [name for name, _ in events(client)] == [f"run-{number}" for number in range(6)]
        w.put(1, "run-7")
        await w.settle(1)
        assert seen(client)[-1].data["errorKind"] == "match_too_broad"


async def test_the_watch_of_a_stream_that_left_is_not_taken_from_one_that_is_being_let_in() -> None:
    async with world() as w:
        first = await connect(w, match="run-")
        await w.settle()
        first.leave()
        await w.settle(w.hub.limits.connect_deadline + 0.9)
        names = w.log.names

        async def slow(prefix: str, limit: int) -> Any:
            await asyncio.sleep(0.5)
            return await names(prefix, limit)

        w.log.names = slow  # type: ignore[method-assign]
        client = await connect(w, match="run-")
        (seq,) = w.put(1, "run-1")
        await w.settle(1)
        assert events(client) == [("run-1", seq)]


async def test_a_closed_session_that_goes_on_joins_once_when_both_ways_find_it() -> None:
    async with world() as w:
        client = await connect(w, match="run-")
        expected = [("run-1", seq) for seq in (*w.put(1, "run-1"), *w.put(1, "run-1", type="session_closed"))]
        await w.settle(1)
        assert not stream_of(client).attachments
        newer = w.log.newer

        async def slow(known: Any) -> Any:
            await asyncio.sleep(1)
            return await newer(known)

        w.log.newer = slow  # type: ignore[method-assign]
        w.hub.many.look_at_all()
        await w.settle(0.1)
        expected += [("run-1", seq) for seq in w.put(2, "run-1")]
        await w.settle(3)
        expected += [("run-1", seq) for seq in w.put(2, "run-1")]
        await w.settle(1)
        assert events(client) == expected


async def test_a_session_that_fails_while_it_is_let_in_is_let_in_again() -> None:
    async with world(faults_expected=True) as w:
        client = await connect(w, match="run-")

        def fail_at_once() -> None:
            for channel in w.hub.channels:
                channel.fail(ValueError("broken"))
            if not w.faults:
                asyncio.get_running_loop().call_soon(fail_at_once)

        fail_at_once()
        (first,) = w.put(1, "run-1")
        await w.settle(0.1)
        assert [fault["message"] for fault in w.faults] == ["session run-1 could not be followed"]
        await w.settle(3)
        (second,) = w.put(1, "run-1")
        await w.settle(1)
        assert events(client) == [("run-1", first), ("run-1", second)]
        assert not client.over


async def test_a_fault_while_looking_for_sessions_is_reported_and_the_next_look_finds_them() -> None:
    async with world(faults_expected=True) as w:
        client = await connect(w, match="run-")
        names, broken = w.log.names, ValueError("broken")

        async def fault(prefix: str, limit: int) -> Any:
            w.log.names = names  # type: ignore[method-assign]
            raise broken

        w.log.names = fault  # type: ignore[method-assign]
        w.log.lose_news = True
        (seq,) = w.put(1, "run-1")
        await w.settle(12)
        assert [fault["exception"] for fault in w.faults] == [broken]
        await w.settle(12)
        assert events(client) == [("run-1", seq)]


async def test_a_fault_while_looking_for_one_stream_does_not_keep_the_others_from_being_looked_for() -> None:
    async with world(faults_expected=True) as w:
        clients = {prefix: await connect(w, match=prefix) for prefix in ("run-", "job-")}
        names = w.log.names

        async def fault(prefix: str, limit: int) -> Any:
            if prefix == "run-":
                raise ValueError("broken")
            return await names(prefix, limit)

        w.log.names = fault  # type: ignore[method-assign]
        w.log.lose_news = True
        w.put(1, "run-1")
        (seq,) = w.put(1, "job-1")
        await w.settle(12)
        assert len(w.faults) == 1
        assert events(clients["job-"]) == [("job-1", seq)]
        assert events(clients["run-"]) == []


async def test_a_session_that_is_purged_while_it_is_let_in_is_passed_over_and_found_when_it_goes_on() -> None:
    async with world(require_session=True) as w:
        client = await connect(w, match="run-")
        w.put(1, "run-1")
        w.put(1, "run-2")
        w.store.purge(0, "run-1")
        await w.settle(1)
        assert events(client) == [("run-2", 2)]
        assert not stream_of(client).prospects.holds
        assert {channel.session: channel.slots for channel in w.hub.channels if channel.slots} == {"run-2": 1}
        w.put(1, "run-1")
        w.put(1, "run-2")
        await w.settle(1)
        assert events(client)[1:] == [("run-1", 3), ("run-2", 4)]
