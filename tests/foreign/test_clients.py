"""Clients of other people against a running instance: live, dropped, behind the ring, at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from ringmere.embedded import EmbeddedServer, free_port
from support.foreign import CLIENTS, Follower, follow, missing
from support.gateway import gateway
from support.nats import eventually
from support.relay import relay

RING = 5
SETTINGS = ("--ring-size", str(RING), "--retry-ms", "100", "--heartbeat", "0.2s")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of an instance that runs for all tests of this file; each takes a session of its own."""
    async with gateway(tmp_path_factory.mktemp("foreign"), *SETTINGS) as instance:
        yield instance.url


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    """The name of a client, one after the other."""
    name = str(request.param)
    if reason := missing(name):
        pytest.skip(reason)
    return name


async def publish(server: str, session: str, count: int) -> list[int]:
    """Publish a batch of events and return their ids."""
    rows = [{"type": "t", "data": {"n": n}} for n in range(count)]
    async with aiohttp.ClientSession() as http, http.post(f"{server}/session/{session}/events", json=rows) as answer:
        assert answer.status == 201, await answer.text()
        return [row["id"] for row in (await answer.json())["results"]]


async def close(server: str, session: str) -> int:
    """Close a session and return the id of its terminal event."""
    async with aiohttp.ClientSession() as http:
        async with http.delete(f"{server}/session/{session}") as answer:
            assert answer.status == 204
        return int((await _show(http, server, session))["lastEventId"])


async def reads(server: str, session: str) -> None:
    """Wait until the session has a reader."""
    async with aiohttp.ClientSession() as http:

        async def some() -> bool:
            return bool((await _show(http, server, session)).get("readers"))

        await eventually(some, f"a reader of {session}")


async def _show(http: aiohttp.ClientSession, server: str, session: str) -> dict[str, Any]:
    async with http.get(f"{server}/session/{session}") as answer:
        return dict(await answer.json())


async def test_live_events_arrive_and_nothing_else_is_reported(server: str, client: str) -> None:
    session = f"live-{client}"
    async with relay(server) as way, follow(client, f"{way.url}/session/{session}/events") as follower:
        await reads(server, session)
        ids = await publish(server, session, 3)
        await follower.has(3)
        beats = way.beats
        await eventually(lambda: way.beats >= beats + 3, "three heartbeats")
        ids += await publish(server, session, 1)
        await follower.has(4)
        assert follower.ids == ids
        assert follower.types == ["t"] * 4


async def test_a_dropped_client_resumes_at_its_cursor_each_time(server: str, client: str) -> None:
    session = f"drop-{client}"
    ids = await publish(server, session, 2)
    async with relay(server) as way, follow(client, f"{way.url}/session/{session}/events", 0) as follower:
        await follower.until(lambda: follower.types == ["t", "t", "replay_complete"], "the replay")
        for drop in range(1, 4):
            way.cut()
            ids += await publish(server, session, 1)
            await follower.until(lambda drop=drop: len(follower.of_type("replay_complete")) > drop, "a resume")
            assert follower.ids == ids
            assert way.cursors[-1] == str(ids[-2])
        ids += await publish(server, session, 1)
        await follower.has(len(ids))
        assert follower.ids == ids
        assert [data["replayedCount"] for data in follower.of_type("replay_complete")] == [2, 1, 1, 1]


async def test_many_sessions_on_one_connection_are_resumed_by_their_one_cursor(server: str, client: str) -> None:
    if client.startswith("qwen"):
        pytest.skip("it builds the address of one session itself")
    one, other = f"many-{client}-1", f"many-{client}-2"
    ids = await publish(server, one, 1)
    cursor = ids[0]
    async with relay(server) as way, follow(client, f"{way.url}/events?session={one},{other}", cursor) as follower:
        await follower.until(lambda: follower.types == ["replay_complete"], "the beginning")
        for drop in range(1, 3):
            ids += await publish(server, other, 2) + await publish(server, one, 1)
            await follower.has(len(ids) - 1)
            way.cut()
            ids += await publish(server, one, 1) + await publish(server, other, 1)
            await follower.until(lambda drop=drop: len(follower.of_type("replay_complete")) > drop, "a resume")
        await follower.has(len(ids) - 1)
        assert follower.ids == ids[1:]
        named = {event.envelope["id"]: event.envelope["sessionId"] for event in follower.events if event.type == "t"}
        assert set(named.values()) == {one, other}


async def test_a_cursor_behind_the_ring_is_told_and_later_events_still_come(server: str, client: str) -> None:
    session = f"behind-{client}"
    ids = await publish(server, session, RING + 3)
    async with relay(server) as way, follow(client, f"{way.url}/session/{session}/events", ids[0]) as follower:
        await follower.until(lambda: "replay_complete" in follower.types, "the replay")
        ids += await publish(server, session, 1)
        await follower.has(RING + 1)
        assert follower.ids == ids[-RING - 1 :]
        assert follower.types == ["state_resync_required", *["t"] * RING, "replay_complete", "t"]
        [verdict] = follower.of_type("state_resync_required")
        assert verdict == {
            "reason": "ring_evicted", "lastDeliveredId": ids[0], "earliestAvailableId": ids[3],
        }  # fmt: skip


async def test_prx_6_the_end_of_a_session_stops_the_client_with_204(server: str, client: str) -> None:
    session = f"end-{client}"
    await publish(server, session, 2)
    async with relay(server) as way, follow(client, f"{way.url}/session/{session}/events", 0) as follower:
        await follower.until(lambda: "replay_complete" in follower.types, "the replay")
        terminal = await close(server, session)
        await follower.until(lambda: follower.closed is not None, "the end")
        assert follower.closed in ({"state": "closed", "code": 204}, {"state": "closed", "code": None})
        assert follower.types == ["t", "t", "replay_complete", "session_closed"]
        assert way.cursors[-1] == str(terminal)
        assert len(way.cursors) == 2


async def test_all_clients_live_through_a_kill_and_a_new_start(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    names = [name for name in CLIENTS if missing(name) is None]
    listen = f"127.0.0.1:{free_port()}"
    settings = ("--retry-ms", "100")
    async with AsyncExitStack() as stack:
        instance = await stack.enter_async_context(
            gateway(tmp_path, *settings, nats_url=nats_server.url, listen=listen)
        )
        url = f"{instance.url}/session/all/events"
        ids = await publish(instance.url, "all", 10)
        followers: list[Follower] = [await stack.enter_async_context(follow(name, url, 0)) for name in names]
        for follower in followers:
            await follower.has(10)
        await instance.kill()
        await instance.start()
        ids += await publish(instance.url, "all", 10)
        for follower in followers:
            await follower.has(20)
        assert {follower.name: follower.ids for follower in followers} == dict.fromkeys(names, ids)
        assert not any(follower.of_type("state_resync_required") for follower in followers)
