"""Sessions as people read them (contract 10.4): a fence is neither counted nor named."""

from __future__ import annotations

from support.hub import S1, world


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
