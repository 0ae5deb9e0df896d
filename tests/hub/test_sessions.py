"""Sessions as people read them (contract 10.4): a fence is neither counted nor named."""

from __future__ import annotations

import pytest

from ringmere.core.errors import LogUnavailable, SessionNotFound
from support.hub import S1, arrived, world


async def test_a_fence_is_neither_counted_nor_named() -> None:
    async with world(ring_size=3) as w:
        for _ in range(5):
            w.put(1)
            w.put(1, "s2")
        page = await w.hub.sessions()
        assert [
            (row["sessionId"], row["firstEventId"], row["lastEventId"], row["events"]) for row in page.sessions
        ] == [
            ("s1", 5, 9, 3),
            ("s2", 6, 10, 3),
        ]
        assert page.next is None


async def test_sessions_come_in_pages_and_tell_whether_they_are_closed() -> None:
    async with world() as w:
        for name in ("a", "b", "c"):
            w.put(1, name)
        await w.hub.close_session("b")
        first = await w.hub.sessions(limit=2)
        rest = await w.hub.sessions(after=first.next or "", limit=2)
        assert [(row["sessionId"], row["closed"]) for row in first.sessions] == [("a", False), ("b", True)]
        assert [row["sessionId"] for row in rest.sessions] == ["c"]


async def test_a_session_without_events_but_with_readers_is_described() -> None:
    async with world() as w:
        await w.connect()
        row = await w.hub.session(S1)
        assert row["events"] == 0
        assert [reader["state"] for reader in row["readers"]] == ["live"]


async def test_a_session_is_shown_with_its_bounds_its_times_and_its_readers_the_one_furthest_behind_first() -> None:
    async with world(ring_size=3) as w:
        healthy, slow = await w.connect(), await w.stalled()
        for _ in range(5):
            w.put(1)
        await w.settle()
        await arrived(healthy, 5)
        row = await w.hub.session(S1)
        assert (row["firstEventId"], row["lastEventId"], row["events"], row["closed"]) == (3, 5, 3, False)
        assert row["firstEventAt"] <= row["lastEventAt"]
        assert row["idleSeconds"] >= 0
        assert row["evictions"] == 0
        assert [reader["streamId"] for reader in row["readers"]] == [c.reader.stream_id for c in (slow, healthy)]
        first, last = row["readers"]
        assert (first["transport"], first["positionId"], first["backlogEvents"]) == ("sse", 0, 5)
        assert (last["positionId"], last["behindEvents"], last["behindSeconds"]) == (5, 0, 0.0)


async def test_a_session_whose_log_has_expired_is_shown_by_its_head() -> None:
    async with world(log_ttl=10.0) as w:
        w.put(2)
        await w.hub.close_session(S1)
        last = (await w.hub.session(S1))["lastEventAt"]
        await w.settle(60)
        row = await w.hub.session(S1)
        assert (row["firstEventId"], row["lastEventId"], row["events"], row["closed"]) == (None, 3, 0, True)
        assert row["lastEventAt"] == last
        assert row["idleSeconds"] > 50
        await w.hub.purge(S1)
        with pytest.raises(SessionNotFound):
            await w.hub.session(S1)


async def test_closed_and_purged_sessions_are_told_to_the_observer_once_they_are() -> None:
    async with world() as w:
        told: list[tuple[str, str]] = []
        w.hub.observer.session_closed = lambda session: told.append(("closed", session))  # type: ignore[method-assign]
        w.hub.observer.session_purged = lambda session: told.append(("purged", session))  # type: ignore[method-assign]
        await w.hub.close_session(S1)
        await w.hub.purge(S1)
        w.log.disconnect()
        with pytest.raises(LogUnavailable):
            await w.hub.purge("s2")
        assert told == [("closed", S1), ("purged", S1)]
