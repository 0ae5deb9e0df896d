"""How people use sessions, from end to end: an EventSource nobody has changed, and the SDK, over two instances.

Connect first and start the task after; come back late; finish and stop reconnecting; stop a task from anywhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from ringmere.client.backoff import Backoff
from ringmere.client.bus import Bus
from ringmere.client.errors import TaskCancelled
from ringmere.client.snapshot import get_snapshot, put_snapshot
from ringmere.client.stream import follow as follow_session
from support.foreign import Event, Follower, follow, missing
from support.gateway import gateway
from support.nats import eventually, running_server
from support.relay import Relay, relay
from support.talk import get, numbers, publish

RING = 50
WITHIN = 30.0
FAST = Backoff(retry=0.05, first=0.05, widest=0.2)
FLAGS = ("--ring-size", str(RING), "--retry-ms", "100", "--log-level", "warning")
TURN = Path(__file__).resolve().parent.parent / "data" / "agent-turn-small.ndjson"


@asynccontextmanager
async def pair(directory: Path, *flags: str) -> AsyncIterator[tuple[str, str]]:
    """Run two instances on a NATS of their own; their addresses."""
    async with (
        running_server(directory / "nats") as nats,
        gateway(directory / "a", *FLAGS, *flags, nats_url=nats.url) as one,
        gateway(directory / "b", *FLAGS, *flags, nats_url=nats.url) as two,
    ):
        yield one.url, two.url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def urls(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, str]]:
    """Two instances that run for all tests of this file; each takes a session of its own."""
    async with pair(tmp_path_factory.mktemp("flows")) as found:
        yield found


@pytest.fixture(params=["eventsource", "sdk"])
def kind(request: pytest.FixtureRequest) -> str:
    """Who follows: npm's EventSource, or the SDK."""
    return _there(request)


@pytest.fixture(params=["chromium", "sdk"])
def strict(request: pytest.FixtureRequest) -> str:
    """Who follows where a block of only an id counts, which npm's EventSource passes over: a browser's, or the SDK."""
    return _there(request)


def _there(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name != "sdk" and (reason := missing(name)):
        pytest.skip(reason)
    return name


def reading(
    kind: str, url: str, session: str, cursor: int | None = None, *, wish: str = ""
) -> AbstractAsyncContextManager[Follower]:
    """Follow a session at one address; ``wish`` is ``resync`` or ``snapshot`` of contract 10.2."""
    if kind == "sdk":
        return _sdk(url, session, cursor, wish)
    query = {"": "?anchor=1", "resync": "?resync=snapshot", "snapshot": "?snapshot=1"}[wish]
    return follow(kind, f"{url}/session/{session}/events{query}", cursor)


@asynccontextmanager
async def _sdk(url: str, session: str, cursor: int | None, wish: str) -> AsyncIterator[Follower]:
    follower = Follower("sdk")

    async def listen() -> None:
        begin: Any = "live" if cursor is None else cursor
        resync: Any = "snapshot" if wish == "resync" else "replay"
        stream = follow_session(url, session, begin, backoff=FAST, resync=resync, snapshot=wish == "snapshot")
        async with stream:
            async for item in stream:
                follower.events.append(Event(item.type, str(stream.last_id), item.envelope, {}))
        follower.states.append({"state": "closed"})

    listening = asyncio.create_task(listen())
    try:
        yield follower
    finally:
        if listening.done():
            listening.result()
        listening.cancel()
        await asyncio.wait([listening])


def state_of(follower: Follower) -> list[int]:
    """Return the numbers of all events as the follower knows them: from a stored state, and what came behind it."""
    known: list[int] = []
    for event in follower.events:
        if event.type == "session_snapshot":
            known = list(event.envelope["data"]["state"])
        elif "id" in event.envelope:
            known.append(event.envelope["data"]["n"])
    return known


async def is_read(url: str, session: str) -> None:
    """Wait until an instance has a reader of the session."""

    async def some() -> bool:
        answer = await get(url, f"/session/{session}")
        return answer.status == 200 and bool(answer.json["readers"])

    await eventually(some, f"a reader of {session}", WITHIN)


async def close(url: str, session: str) -> int:
    """Close a session; the id of its last event."""
    async with aiohttp.ClientSession() as http, http.delete(f"{url}/session/{session}") as answer:
        assert answer.status == 204
    return int((await get(url, f"/session/{session}")).json["lastEventId"])


async def moves(way: Relay, url: str, session: str) -> None:
    """Cut the client off and let it come back at another instance."""
    way.target = url
    way.cut()
    await is_read(url, session)


async def test_connect_first_and_start_the_task_after(urls: tuple[str, str], strict: str) -> None:
    """Also when the connection is cut, and leads to another instance, before anything has been published."""
    one, two = urls
    session = f"first-{strict}"
    turn = [json.loads(line) for line in TURN.read_text().splitlines()]
    for event in turn:
        del event["at_ms"]
    async with relay(one) as way, reading(strict, way.url, session) as client, Bus(one) as bus:
        await is_read(one, session)
        await moves(way, two, session)
        assert way.cursors[0] is None
        assert way.cursors[-1] is not None
        way.target = one
        way.cut()
        async with bus.task(session, f"task-{strict}") as task:
            for event in turn:
                await bus.publish(session, event)
            task.result = "done"
        await client.has(len(turn) + 1)
        told = [event.envelope for event in client.events if "id" in event.envelope]
        assert [(row["type"], row["data"]) for row in told[:-1]] == [(row["type"], row["data"]) for row in turn]
        assert (told[-1]["type"], told[-1]["data"]["result"]) == ("task_completed", "done")
        assert client.ids == sorted(set(client.ids))
        assert "state_resync_required" not in client.types


@pytest.mark.parametrize("wish", ["resync", "snapshot"])
async def test_come_back_late_and_get_the_state_and_the_rest(urls: tuple[str, str], kind: str, wish: str) -> None:
    """With a cursor that the ring has left behind, or as somebody new; cut off once more right after."""
    one, two = urls
    session = f"late-{wish}-{kind}"
    ids = await publish(one, session, numbers(RING + 30))
    covered = RING + 20
    await put_snapshot(two, session, ids[covered - 1], list(range(1, covered + 1)))
    cursor = ids[1] if wish == "resync" else None
    async with relay(one) as way, reading(kind, way.url, session, cursor, wish=wish) as client:
        await client.until(lambda: "replay_complete" in client.types, "the replay")
        begin = ["state_resync_required"] if wish == "resync" else []
        assert client.types == [*begin, "session_snapshot", *["t"] * 10, "replay_complete"]
        assert state_of(client) == list(range(1, RING + 31))
        await moves(way, two, session)
        assert way.cursors[-1] == str(ids[-1])
        await publish(one, session, numbers(5, RING + 31))
        await client.has(15)
        assert state_of(client) == list(range(1, RING + 36))
        assert client.types.count("session_snapshot") == 1


async def test_come_back_late_and_load_the_state_that_the_verdict_names(urls: tuple[str, str], kind: str) -> None:
    """Load it at one instance and resume behind it at the other, while more is published."""
    one, two = urls
    session = f"load-{kind}"
    ids = await publish(one, session, numbers(RING + 30))
    await put_snapshot(one, session, ids[RING], list(range(1, RING + 2)))
    async with reading(kind, one, session, ids[1]) as client:
        await client.until(lambda: "replay_complete" in client.types, "the replay")
        [verdict] = client.of_type("state_resync_required")
        assert verdict["reason"] == "ring_evicted"
        assert verdict["snapshot"] == f"/session/{session}/snapshot"
    found = await get_snapshot(two, session)
    assert found is not None
    await publish(one, session, numbers(5, RING + 31))
    async with reading(kind, two, session, found.last_event_id) as client:
        await client.until(lambda: "replay_complete" in client.types, "the replay")
        assert "state_resync_required" not in client.types
        assert found.state + state_of(client) == list(range(1, RING + 36))


async def test_finish_and_stop_reconnecting_until_somebody_asks_again(urls: tuple[str, str], kind: str) -> None:
    """Closed at another instance. Who joins late gets the last event; who comes after the session went on, the rest."""
    one, two = urls
    session = f"end-{kind}"
    ids = await publish(one, session, numbers(3))
    async with relay(one) as way, reading(kind, way.url, session, ids[0]) as client:
        await client.until(lambda: "replay_complete" in client.types, "the replay")
        ids.append(await close(two, session))
        await client.until(lambda: client.closed is not None, "the end")
        assert client.ids == ids[1:]
        assert client.types[-1] == "session_closed"
    async with reading(kind, two, session) as late:
        await late.until(lambda: late.closed is not None, "the end")
        assert late.types == ["session_closed"]
    async with relay(two) as way, reading(kind, way.url, session, ids[-1]) as again:
        await again.until(lambda: again.closed is not None, "no stream at all")
        assert again.events == []
        assert len(way.cursors) == 1
    ids += await publish(two, session, numbers(2, 4))
    async with reading(kind, one, session, ids[3]) as reopened:
        await reopened.has(2)
        assert reopened.ids == ids[4:]
        assert reopened.closed is None


async def test_the_final_state_outlives_the_log(tmp_path: Path, strict: str) -> None:
    async with pair(tmp_path, "--log-ttl", "1s") as (one, two):
        [last] = await publish(one, "over", [{"type": "t", "data": {"n": 1}, "terminal": True}])
        await put_snapshot(two, "over", last, [1], final=True)

        async def expired() -> bool:
            return (await get(one, "/session/over")).json["firstEventId"] is None

        await eventually(expired, "the log has expired", WITHIN)
        async with relay(one) as way, reading(strict, way.url, "over") as client:
            await client.until(lambda: client.closed is not None, "the end")
            assert client.types == ["session_snapshot"]
            assert state_of(client) == [1]
            assert len(way.cursors) <= 2
        async with reading(strict, two, "over", last) as again:
            await again.until(lambda: again.closed is not None, "no stream at all")
            assert again.events == []


async def test_stop_a_task_from_any_instance(urls: tuple[str, str], kind: str) -> None:
    """The worker is at one, the reader and who cancels at the other; the next task of the session is not touched."""
    one, two = urls
    session = f"cancel-{kind}"
    async with reading(kind, two, session) as client, Bus(one) as worker:
        await is_read(two, session)

        async def run_and_be_stopped() -> None:
            async with asyncio.timeout(WITHIN), worker.task(session, "task-1"):
                await worker.publish(session, {"type": "t", "data": {"n": 1}})
                await client.has(1)
                cancel = f"{two}/session/{session}/tasks/task-1/cancel"
                async with aiohttp.ClientSession() as http, http.post(cancel, json={"reason": "wrong way"}) as answer:
                    assert answer.status == 202
                await asyncio.Event().wait()

        with pytest.raises(TaskCancelled, match="wrong way"):
            await run_and_be_stopped()
        async with asyncio.timeout(WITHIN), worker.task(session, "task-2"):
            await worker.publish(session, {"type": "t", "data": {"n": 2}})
        await client.has(4)
        assert client.types == ["t", "task_cancelled", "t", "task_completed"]
        [cancelled] = client.of_type("task_cancelled")
        assert (cancelled["taskId"], cancelled["reason"]) == ("task-1", "wrong way")
