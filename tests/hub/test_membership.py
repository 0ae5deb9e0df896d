"""Sessions added to and dropped from an open stream: what may happen while they are being opened."""

from __future__ import annotations

import asyncio

import pytest

from ringmere.core.errors import LogUnavailable, SessionNotFound, TooManySessions
from ringmere.hub.membership import Change
from support.hub import world
from support.many import connect, events, stream_of


async def test_changes_made_at_the_same_time_do_not_pass_the_limit_together() -> None:
    async with world(max_sessions_per_stream=3) as w:
        client = await connect(w, "a", "b")
        change = w.hub.many.membership.change
        stream_id = stream_of(client).stream_id
        asked = (change(stream_id, Change(add=(name,))) for name in ("c", "d", "e"))
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in outcomes[1:]] == [TooManySessions, TooManySessions]
        assert set(stream_of(client).attachments) == {"a", "b", "c"}
        assert sum(channel.slots for channel in w.hub.channels) == 3


async def test_changes_that_add_the_same_session_at_the_same_time_count_it_once() -> None:
    async with world(max_sessions_per_stream=3) as w:
        client = await connect(w, "a", "b")
        change = w.hub.many.membership.change
        asked = (change(stream_of(client).stream_id, Change(add=("c",))) for _ in range(3))
        assert [one.sessions for one in await asyncio.gather(*asked)] == [("a", "b", "c")] * 3


@pytest.mark.parametrize("drop", ["a", "c"])
async def test_a_session_that_is_dropped_with_the_same_change_leaves_its_place(drop: str) -> None:
    async with world(max_sessions_per_stream=2) as w:
        client = await connect(w, "a", "b")
        change = Change(add=("c",), drop=(drop,))
        if drop == "a":
            changed = await w.hub.many.membership.change(stream_of(client).stream_id, change)
            assert changed.sessions == ("b", "c")
        else:
            with pytest.raises(TooManySessions):
                await w.hub.many.membership.change(stream_of(client).stream_id, change)


async def test_a_session_that_fails_while_another_is_opened_is_not_followed_in_silence() -> None:
    async with world(faults_expected=True) as w:
        client = await connect(w, "a")
        await w.connect(session="b")
        (followed,) = [channel for channel in w.hub.channels if channel.session == "b"]

        async def fail(_: str, session: str) -> None:
            if session == "c" and not followed.ended:
                followed.fail(ValueError("broken"))

        w.log.before = fail
        change = w.hub.many.membership.change
        with pytest.raises(LogUnavailable):
            await change(stream_of(client).stream_id, Change(add=("b", "c")))
        assert [fault["message"] for fault in w.faults] == ["session b could not be followed"]
        assert set(stream_of(client).attachments) == {"a"}
        await change(stream_of(client).stream_id, Change(add=("b", "c")))
        expected = [(name, seq) for name in ("b", "c") for seq in w.put(1, name)]
        await w.settle()
        assert events(client) == expected


async def test_a_change_gives_up_in_time_when_the_log_does_not_answer_and_keeps_no_place() -> None:
    async with world() as w:
        other, _ = await w.add()
        client = await connect(w, "a")
        stalled = asyncio.Event()

        async def stall(_: str, session: str) -> None:
            if session == "b":
                await stalled.wait()

        w.log.before = stall
        loop = asyncio.get_running_loop()
        for hub in (w.hub, other):
            began = loop.time()
            with pytest.raises(LogUnavailable):
                async with asyncio.timeout(60):
                    await hub.many.membership.change(stream_of(client).stream_id, Change(add=("b",)))
            assert loop.time() - began <= w.hub.limits.connect_deadline + 0.1
        assert set(stream_of(client).attachments) == {"a"}
        assert sum(channel.slots for channel in w.hub.channels) == 1
        stalled.set()
        await w.settle()
        changed = await other.many.membership.change(stream_of(client).stream_id, Change(add=("b",)))
        assert changed.sessions == ("a", "b")


async def test_an_unknown_session_is_refused_alike_by_every_instance() -> None:
    async with world(require_session=True) as w:
        other, _ = await w.add()
        w.put(1, "a")
        client = await connect(w, "a")
        for hub in (w.hub, other):
            with pytest.raises(SessionNotFound):
                await hub.many.membership.change(stream_of(client).stream_id, Change(add=("b",)))
        assert set(stream_of(client).attachments) == {"a"}
