"""Streams over WebSocket, with somebody else's clients: the first frame, cursors, the hello, every kind of end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from ringmere.core.errors import LogUnavailable
from ringmere.core.limits import Limits
from ringmere.http import websocket as door
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from support.doors import JSON, Gateway, Start
from support.raw_http import fetch


@asynccontextmanager
async def follow(gateway: Gateway, target: str, **options: Any) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://127.0.0.1:{gateway.port}{target}", proxy=None, **options) as socket:
        yield socket


async def take(socket: ClientConnection, count: int) -> list[dict[str, Any]]:
    """Return the envelopes of the next messages."""
    async with asyncio.timeout(20):
        messages = [await socket.recv() for _ in range(count)]
    assert all(isinstance(message, str) for message in messages)
    return [json.loads(message) for message in messages]


async def opened(socket: ClientConnection) -> dict[str, Any]:
    [first] = await take(socket, 1)
    assert first["type"] == "stream_opened"
    return dict(first["data"])


async def closed(socket: ClientConnection) -> tuple[int, str]:
    """Return how the server closes, when nothing comes before."""
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionClosed) as end:
            await socket.recv()
    assert end.value.rcvd is not None
    return end.value.rcvd.code, end.value.rcvd.reason


async def test_the_first_frame_says_what_a_page_cannot_read_and_events_follow_one_a_frame(gateway: Gateway) -> None:
    await gateway.numbers("s", 2)
    async with follow(gateway, "/session/s/ws") as socket:
        headers = socket.response.headers if socket.response is not None else {}
        first = await opened(socket)
        assert first["streamId"] == headers["X-Stream-Id"]
        assert first["eventEpoch"] == headers["X-Event-Epoch"]
        assert first["startEventId"] == int(headers["X-Start-Event-Id"]) == 2
        assert first["retryMs"] > 0
        assert "Sec-WebSocket-Extensions" not in headers, "no reader has an encoding of its own"
        await gateway.publish("s", "a\nb", {"k": "data: x"})
        events = await take(socket, 2)
        assert [(event["id"], event["v"], event["type"], event["data"]) for event in events] == [
            (3, 1, "t", "a\nb"),
            (4, 1, "t", {"k": "data: x"}),
        ]
        assert gateway.hub.stats().subscribers == {"sse": 0, "websocket": 1}
    await gateway.until(lambda: gateway.readers() == 0, "the reader has gone")
    assert gateway.watcher.closed == ["client_gone"]


@pytest.mark.parametrize("query", ["?last_event_id=1", "?lastEventId=1", "?from=1"])
async def test_a_cursor_in_the_query_resumes_behind_it(gateway: Gateway, query: str) -> None:
    await gateway.numbers("s", 3)
    async with follow(gateway, f"/session/s/ws{query}") as socket:
        assert "startEventId" not in await opened(socket)
        frames = await take(socket, 3)
        assert [frame.get("id") for frame in frames] == [2, 3, None]
        assert frames[-1]["data"] == {"replayedCount": 2, "lastReplayedEventId": 3}


async def test_a_cursor_in_the_header_counts_and_garbage_degrades_to_live_only(gateway: Gateway) -> None:
    await gateway.numbers("s", 2)
    async with follow(gateway, "/session/s/ws", additional_headers={"Last-Event-ID": "1"}) as socket:
        await opened(socket)
        assert (await take(socket, 1))[0]["id"] == 2
    async with follow(gateway, "/session/s/ws?last_event_id=x") as socket:
        first = await opened(socket)
        assert (first["cursorIgnored"], first["startEventId"]) == ("malformed", 2)
    assert gateway.watcher.ignored == [("s", "malformed")]


async def test_a_first_message_that_was_announced_says_where_the_stream_begins(gateway: Gateway) -> None:
    await gateway.numbers("s", 3)
    for hello, ids in (({"lastEventId": 1}, [2, 3]), ({"lastEventId": "2"}, [3]), ({"lastEventId": 0}, [1, 2, 3])):
        async with follow(gateway, "/session/s/ws?hello=1&last_event_id=3") as socket:
            await socket.send(json.dumps(hello))
            await opened(socket)
            assert [frame["id"] for frame in await take(socket, len(ids))] == ids
    await gateway.until(lambda: gateway.hub.slots == 0, "no slot is left taken")


async def test_without_a_cursor_the_hello_leaves_the_point_that_was_fixed_before_the_handshake(
    gateway: Gateway,
) -> None:
    await gateway.numbers("s", 2)
    for hello, ignored in (("{}", None), ('{"lastEventId":null}', None), ('{"lastEventId":"x"}', "malformed")):
        async with follow(gateway, "/session/s/ws?hello=1") as socket:
            assert socket.response is not None
            start = int(socket.response.headers["X-Start-Event-Id"])
            [late] = await gateway.publish("s", "between handshake and hello")
            await socket.send(hello)
            first = await opened(socket)
            assert (first["startEventId"], first.get("cursorIgnored")) == (start, ignored)
            assert [frame["id"] for frame in await take(socket, 1)] == [late]


async def test_the_epoch_token_of_a_hello_is_believed(gateway: Gateway) -> None:
    await gateway.numbers("s", 2)
    async with follow(gateway, "/session/s/ws?hello=1") as socket:
        await socket.send('{"lastEventId": 2, "eventEpoch": "another-0"}')
        await opened(socket)
        [verdict] = await take(socket, 1)
        assert (verdict["type"], verdict["data"]["detail"]) == ("state_resync_required", "epoch_mismatch")


@pytest.mark.parametrize(
    ("hello", "code"),
    [("nonsense", 1007), ("[]", 1007), ('{"lastEventId":1.5}', 1007), ('{"other":1}', 1007), (b"\xff", 1007),
     ('{"%s":1}' % ("é" * 200), 1007), ("x" * 5000, 1009)],
)  # fmt: skip
async def test_a_hello_that_cannot_be_read_closes_and_frees_the_slot(
    gateway: Gateway, hello: str | bytes, code: int
) -> None:
    async with follow(gateway, "/session/s/ws?hello=1") as socket:
        await socket.send(hello, text=True)
        assert (await closed(socket))[0] == code
    await gateway.until(lambda: gateway.hub.slots == 0, "the slot is free")


async def test_a_hello_that_does_not_come_or_a_client_that_leaves_frees_the_slot(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with follow(gateway, "/session/s/ws?hello=1"):
        assert gateway.hub.slots == 1
    await gateway.until(lambda: gateway.hub.slots == 0, "the slot of the client that left is free")
    monkeypatch.setattr(door, "HELLO_TIMEOUT", 0.05)
    async with follow(gateway, "/session/s/ws?hello=1") as socket:
        assert (await closed(socket))[0] == 1008
    assert gateway.hub.slots == 0


async def test_whatever_else_a_client_says_is_closed_with_1008(gateway: Gateway) -> None:
    for message in ('{"lastEventId":1}', b"binary"):
        async with follow(gateway, "/session/s/ws") as socket:
            await opened(socket)
            await socket.send(message)
            assert (await closed(socket))[0] == 1008
    await gateway.until(lambda: gateway.readers() == 0, "the readers have gone")


async def test_a_closed_session_ends_with_4002_live_replayed_and_at_its_end(gateway: Gateway) -> None:
    await gateway.numbers("s", 1)
    async with follow(gateway, "/session/s/ws") as live:
        await opened(live)
        await gateway.post("s", {"type": "session_closed", "data": {}})
        assert [frame["type"] for frame in await take(live, 1)] == ["session_closed"]
        assert await closed(live) == (4002, "session_closed")
    async with follow(gateway, "/session/s/ws?last_event_id=0") as replayed:
        await opened(replayed)
        assert [frame["type"] for frame in await take(replayed, 3)] == ["t", "session_closed", "replay_complete"]
        assert await closed(replayed) == (4002, "session_closed")
    async with follow(gateway, "/session/s/ws?last_event_id=2") as at_the_end:
        await opened(at_the_end)
        assert await closed(at_the_end) == (4002, "session_closed")
    assert gateway.hub.slots == 0


async def test_a_drain_tells_when_to_come_back_and_closes_with_4003(gateway: Gateway) -> None:
    async with follow(gateway, "/session/s/ws") as one, follow(gateway, "/ws?session=a,b") as many:
        for socket in (one, many):
            await opened(socket)
        draining = asyncio.create_task(gateway.hub.drain())
        for socket in (one, many):
            [frame] = await take(socket, 1)
            assert (frame["type"], set(frame["data"])) == ("server_draining", {"retryMs"})
            assert await closed(socket) == (4003, "draining")
        await draining
        async with follow(gateway, "/session/s/ws") as late:
            [frame] = await take(late, 1)
            assert (frame["type"], frame["data"]["errorKind"]) == ("stream_error", "draining")
            assert await closed(late) == (4003, "draining")


async def test_a_limit_is_told_and_closed_with_4008_or_is_a_status_where_that_was_asked_for(start: Start) -> None:
    limits = Limits(max_subscribers=1)
    gateway = await start(limits=limits)
    async with follow(gateway, "/session/s/ws") as first:
        await opened(first)
        async with follow(gateway, "/session/s/ws") as second:
            [frame] = await take(second, 1)
            assert frame["data"]["errorKind"] == "subscriber_limit_exceeded"
            assert frame["data"]["retryAfterMs"] == 5000
            assert await closed(second) == (4008, "subscriber_limit_exceeded")
    strict = await start(limits=limits, stream_errors="status")
    async with follow(strict, "/session/s/ws") as first:
        await opened(first)
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{strict.port}/session/s/ws", proxy=None)
        assert refused.value.response.status_code == 429


async def test_a_log_that_is_away_is_told_and_closed_with_4009(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise LogUnavailable("away")

    monkeypatch.setattr(gateway.hub, "subscribe", away)
    async with follow(gateway, "/session/s/ws") as socket:
        [frame] = await take(socket, 1)
        assert frame["data"]["errorKind"] == "log_unavailable"
        assert await closed(socket) == (4009, "log_unavailable")


@pytest.mark.parametrize(
    ("target", "code"),
    [("/session/s/ws?maxQueued=1", "invalid_max_queued"), ("/session/s/ws?overflow=x", "invalid_overflow"),
     ("/session/s/ws?hello=2", "invalid_hello"), ("/session/a*/ws", "invalid_session_id"),
     ("/ws", "invalid_sessions"), ("/ws?match=x", "invalid_match")],
)  # fmt: skip
async def test_what_is_final_is_a_problem_instead_of_a_handshake(gateway: Gateway, target: str, code: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{gateway.port}{target}", proxy=None)
    assert refused.value.response.status_code == 400
    assert refused.value.response.body is not None
    assert json.loads(refused.value.response.body)["code"] == code
    assert gateway.hub.slots == 0


async def test_an_unknown_session_is_404_where_sessions_are_required(start: Start) -> None:
    gateway = await start(require_session=True)
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{gateway.port}/session/nobody/ws", proxy=None)
    assert refused.value.response.status_code == 404


async def test_many_sessions_have_their_cursor_in_each_envelope_and_resume_at_it(start: Start) -> None:
    gateway = await start(log=MemoryLog(MemoryStore(shards=2)))
    names = [next(n for n in "abcdefgh" if gateway.log.shard_of(n) == shard) for shard in (0, 1)]
    target = "/ws?session=" + ",".join(names)
    async with follow(gateway, target) as socket:
        assert (await opened(socket))["startEventId"] == "0:0,1:0"
        for name in (*names, *names):
            await gateway.numbers(name, 1)
        seen = await take(socket, 4)
        assert {frame["sessionId"] for frame in seen} == set(names)
        assert seen[-1]["cursor"] == "0:2,1:2"
    for how, hello in ((f"&last_event_id={seen[1]['cursor']}", None), ("&hello=1", {"lastEventId": seen[1]["cursor"]})):
        async with follow(gateway, target + how) as socket:
            if hello is not None:
                await socket.send(json.dumps(hello))
            await opened(socket)
            again = await take(socket, 3)
            known = sorted((frame["sessionId"], frame["id"]) for frame in seen[2:])
            assert sorted((frame["sessionId"], frame["id"]) for frame in again[:2]) == known
            assert again[2]["type"] == "replay_complete"


async def test_one_shard_has_a_number_for_cursor_and_sessions_can_be_added(gateway: Gateway) -> None:
    async with follow(gateway, "/ws?session=a") as socket:
        stream_id = (await opened(socket))["streamId"]
        body = json.dumps({"add": ["b"]}).encode()
        assert (await fetch(gateway.port, "POST", f"/streams/{stream_id}/sessions", JSON, body)).status == 200
        await gateway.publish("b", 1)
        [event] = await take(socket, 1)
        assert (event["cursor"], event["id"], event["sessionId"]) == (1, 1, "b")


async def test_events_as_cloudevents_come_over_websocket_as_well(gateway: Gateway) -> None:
    async with follow(gateway, "/session/s/ws?format=cloudevents") as socket:
        await opened(socket)
        await gateway.publish("s", 1)
        [event] = await take(socket, 1)
        assert (event["specversion"], event["id"], event["data"]) == ("1.0", "1", 1)


async def test_a_reader_that_takes_nothing_is_evicted_with_4001_and_resumes_with_nothing_lost(start: Start) -> None:
    gateway = await start(limits=Limits(evict_grace=20.0))
    data = "x" * 100_000
    async with follow(gateway, "/session/s/ws?maxQueued=16", max_queue=1) as socket:
        await opened(socket)
        sent = 0
        while "queue_overflow" not in gateway.watcher.evictions:
            sent += len(await gateway.publish("s", data))
            assert sent < 1000
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1]["type"] != "client_evicted":
            seen += await take(socket, 1)
        assert await closed(socket) == (4001, "queue_overflow")
    assert [frame["type"] for frame in seen if frame["type"] != "t"] == ["slow_client_warning", "client_evicted"]
    ids = [frame["id"] for frame in seen if "id" in frame]
    assert seen[-1]["data"]["droppedAfter"] == ids[-1]
    async with follow(gateway, f"/session/s/ws?last_event_id={ids[-1]}") as socket:
        await opened(socket)
        ids += [frame["id"] for frame in await take(socket, sent - len(ids))]
    assert ids == list(range(1, sent + 1))


async def test_fragments_of_a_hello_are_put_together_by_another_client(gateway: Gateway) -> None:
    await gateway.numbers("s", 2)
    url = f"http://127.0.0.1:{gateway.port}/session/s/ws?hello=1"
    async with aiohttp.ClientSession() as http, http.ws_connect(url) as socket:
        for opcode, fin, part in ((1, 0, b'{"last'), (0, 0, b""), (0, 0x80, b'EventId":1}')):
            mask = b"\1\2\3\4"
            masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(part))
            assert socket._conn is not None
            assert socket._conn.transport is not None
            socket._conn.transport.write(bytes([fin | opcode, 0x80 | len(part)]) + mask + masked)
        assert (await socket.receive_json(timeout=20))["type"] == "stream_opened"
        assert (await socket.receive_json(timeout=20))["id"] == 2


async def test_heartbeats_are_pings_and_a_peer_that_answers_none_is_gone(start: Start) -> None:
    gateway = await start(limits=Limits(heartbeat=0.05))
    answers: list[Callable[..., Any]] = []
    async with follow(gateway, "/session/alive/ws", ping_interval=None) as alive:
        async with follow(gateway, "/session/dead/ws", ping_interval=None) as dead:
            await opened(dead)
            dead.protocol.recv_frame = lambda frame: answers.append(frame)  # type: ignore[method-assign, assignment]
            await gateway.until(lambda: gateway.watcher.closed == ["client_gone"], "the silent client is given up")
            assert len(answers) >= 3
        await opened(alive)
        await gateway.publish("alive", 1)
        assert (await take(alive, 1))[0]["id"] == 1


async def test_a_clients_own_ping_is_answered(gateway: Gateway) -> None:
    async with follow(gateway, "/session/s/ws") as socket, asyncio.timeout(20):
        assert await (await socket.ping(b"mine")) >= 0
