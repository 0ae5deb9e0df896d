"""The connection under a stream: bytes, the hand-over, and the end."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any, cast

import pytest

from ringmere.core.coalesce import Rules
from ringmere.core.frames import LAST_CHUNK, chunked
from ringmere.core.reasons import CloseReason
from ringmere.http import handover
from ringmere.http.stream import SseSink
from ringmere.hub.subscriber import Subscriber
from support.doors import JSON, Gateway, Start
from support.raw_http import Stream, connection, fetch, request_bytes

EVENTS = "/session/s1/events"


class FakeTransport:
    """Keeps what it is given; it is closed once its buffer is empty."""

    def __init__(self, buffered: int = 0) -> None:
        self.calls: list[Any] = []
        self.buffered = buffered
        self.closing = False
        self.aborted = asyncio.Event()

    def write(self, data: bytes) -> None:
        assert not self.closing, "a write after the close"
        self.calls.append(data)

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def close(self) -> None:
        self.closing = True
        self.calls.append("close")

    def abort(self) -> None:
        self.closing = True
        self.calls.append("abort")
        self.aborted.set()


class FakeSubscriber:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def lost(self) -> None:
        self.calls.append("lost")


def _sink(transport: FakeTransport, *, framed: bool = True) -> tuple[SseSink, FakeSubscriber]:
    subscriber = FakeSubscriber()
    sink = SseSink(cast(Subscriber, subscriber), cast(asyncio.Transport, transport), framed=framed, paused=False)
    return sink, subscriber


async def test_the_end_is_the_last_chunk_and_the_close_and_nothing_can_follow_it() -> None:
    transport = FakeTransport()
    sink, _ = _sink(transport)
    sink.write(chunked(b"x"))
    sink.finish(CloseReason.DRAINING)
    sink.write(chunked(b"late"))
    sink.finish(CloseReason.DRAINING)
    assert transport.calls == [chunked(b"x"), LAST_CHUNK, "close"]


async def test_an_unframed_stream_ends_by_its_close_alone() -> None:
    transport = FakeTransport()
    sink, _ = _sink(transport, framed=False)
    sink.finish(CloseReason.DRAINING)
    assert transport.calls == ["close"]


async def test_an_end_that_is_never_taken_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "FLUSH_GRACE", 0.01)
    transport = FakeTransport(buffered=10)
    sink, _ = _sink(transport)
    sink.finish(CloseReason.DRAINING)
    async with asyncio.timeout(5):
        await transport.aborted.wait()
    assert transport.calls == [LAST_CHUNK, "close", "abort"]


async def test_an_end_that_is_taken_in_time_is_not_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "FLUSH_GRACE", 0.01)
    transport = FakeTransport(buffered=10)
    sink, subscriber = _sink(transport)
    sink.finish(CloseReason.DRAINING)
    sink.lost()
    await asyncio.sleep(0.03)
    assert transport.calls == [LAST_CHUNK, "close"]
    assert subscriber.calls == ["lost"]


async def test_an_abort_still_works_after_the_end() -> None:
    transport = FakeTransport(buffered=10)
    sink, _ = _sink(transport)
    sink.finish(CloseReason.DRAINING)
    sink.abort()
    assert transport.calls == [LAST_CHUNK, "close", "abort"]
    sink.lost()
    sink.abort()
    sink.write(b"x")
    assert transport.calls[-1] == "abort"
    assert len(transport.calls) == 3


async def test_pause_and_resume_reach_the_reader_with_the_flag_set_first() -> None:
    sink, subscriber = _sink(FakeTransport())
    sink.pause()
    assert (sink.paused, subscriber.calls) == (True, ["pause"])
    sink.resume()
    assert (sink.paused, subscriber.calls) == (False, ["pause", "resume"])


async def test_the_bytes_of_a_stream_are_headers_chunks_and_the_last_chunk(gateway: Gateway) -> None:
    await gateway.numbers("s1", 1)
    await fetch(gateway.port, "DELETE", "/session/s1")
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", f"{EVENTS}?from=start"))
        head = await raw.head()
        assert head.headers["transfer-encoding"] == "chunked"
        body = await raw.rest()
    assert body.endswith(b"\r\n" + LAST_CHUNK)
    assert body.count(LAST_CHUNK) == 1
    blob = b""
    while body:
        size, rest = body.split(b"\r\n", 1)
        length = int(size, 16)
        assert rest[length : length + 2] == b"\r\n"
        blob += rest[:length]
        body = rest[length + 2 :]
    *blocks, rest = re.sub(rb"(?m)^:.*\n", b"", blob).split(b"\n\n")
    assert rest == b""
    assert [block.split(b"\n")[-3] for block in blocks] == [b"id: 1", b"id: 2"]
    assert blocks[0].startswith(b"retry: ")


async def test_a_request_pipelined_behind_a_stream_is_not_answered_into_it(gateway: Gateway) -> None:
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", EVENTS) + request_bytes("GET", "/livez"))
        await raw.head()
        await gateway.publish("s1", 1)
        await raw.send(request_bytes("GET", "/livez"))
        await fetch(gateway.port, "DELETE", "/session/s1")
        body = b"".join([chunk async for chunk in raw.chunks()])
    assert b"HTTP/1.1" not in body
    assert body.count(b"\nid: ") == 2


async def test_a_kept_connections_next_response_is_byte_exact(gateway: Gateway) -> None:
    event = b'{"type":"t","data":1}'
    async with connection(gateway.port) as raw:
        for number in range(1, 4):
            await raw.send(request_bytes("POST", EVENTS, JSON, event))
            answer = await raw.answer()
            assert answer.body == b'{"id":%d,"sessionId":"s1","duplicate":false}' % number
            assert answer.raw.startswith(b"HTTP/1.1 201 Created\r\n")
            await raw.send(request_bytes("GET", f"{EVENTS}?maxQueued=1"))
            assert (await raw.answer()).code == "invalid_max_queued"
        await raw.send(request_bytes("GET", EVENTS))
        assert (await raw.head()).status == 200


async def test_pipelined_requests_are_answered_in_their_order(gateway: Gateway) -> None:
    events = [request_bytes("POST", EVENTS, JSON, b'{"type":"t","data":%d}' % n) for n in range(50)]
    async with connection(gateway.port) as raw:
        await raw.send(b"".join(events))
        ids = [(await raw.answer()).json["id"] for _ in events]
    assert ids == list(range(1, 51))


async def test_a_full_socket_pauses_its_own_reader_only_and_a_slow_reader_gets_everything(gateway: Gateway) -> None:
    healthy = await gateway.stream("s1")
    slow = await gateway.stream("s1", "?maxQueued=2048")
    sock = slow.connection.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    slow.connection.writer.transport.pause_reading()
    text = "x" * 60_000
    for _ in range(10):
        body = b"[" + b",".join(b'{"type":"t","data":"%b"}' % text.encode() for _ in range(10)) + b"]"
        assert (await gateway.post("s1", body)).status == 201
        assert len(await healthy.take(10)) == 10
    assert gateway.hub.stats().backlog_events > 0
    slow.connection.writer.transport.resume_reading()
    frames = await slow.take(100)
    assert [frame.id for frame in frames if frame.id] == sorted(frame.id for frame in frames if frame.id)
    assert gateway.hub.stats().backlog_events_max <= 2048


async def _stopped(gateway: Gateway, query: str) -> Stream:
    """Open a stream that takes as little as a socket can, and stop reading it."""
    slow = await gateway.stream("s1", query)
    sock = slow.connection.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    slow.connection.writer.transport.pause_reading()
    return slow


async def _post_many(gateway: Gateway, count: int, size: int = 60_000) -> None:
    """Publish so many large events of type ``t``."""
    batch = b"[" + b",".join([b'{"type":"t","data":"%b"}' % (b"x" * size)] * 10) + b"]"
    for _ in range(count // 10):
        assert (await gateway.post("s1", batch)).status == 201


async def test_a_reader_that_asked_for_it_is_not_evicted_but_gets_everything_from_the_log(gateway: Gateway) -> None:
    slow = await _stopped(gateway, "?overflow=catchup&maxQueued=16")
    await _post_many(gateway, 300)
    assert 0 < gateway.hub.stats().backlog_events <= 16
    slow.connection.writer.transport.resume_reading()
    frames = await slow.take(301)
    assert [frame.id for frame in frames if frame.id] == [*range(1, 301)]
    assert [frame.type for frame in frames if not frame.id] == ["slow_client_warning"]
    [published] = await gateway.publish("s1", "live again")
    assert [frame.id for frame in await slow.take(1)] == [published]
    assert gateway.hub.backlog_bytes == 0


async def test_a_reader_that_catches_up_is_told_where_the_ring_has_overtaken_it(start: Start) -> None:
    gateway = await start(ring_size=20)
    slow = await _stopped(gateway, "?overflow=catchup&maxQueued=16")
    await _post_many(gateway, 300)
    slow.connection.writer.transport.resume_reading()
    seen = await slow.take(1)
    while seen[-1].id != 300:
        seen += await slow.take(1)
    verdicts = [index for index, frame in enumerate(seen) if frame.type == "state_resync_required"]
    assert len(verdicts) == 1
    before = [frame.id for frame in seen[: verdicts[0]] if frame.id]
    assert before == [*range(1, len(before) + 1)]
    assert [frame.id for frame in seen[verdicts[0] + 1 :] if frame.id] == [*range(281, 301)]
    data = seen[verdicts[0]].data
    assert data == {"reason": "ring_evicted", "lastDeliveredId": len(before), "earliestAvailableId": 281}


async def test_a_backlog_becomes_few_events_for_a_reader_that_asked_for_it(start: Start) -> None:
    gateway = await start(coalesce=Rules({"chunk": "/data/text"}))
    streams = [await _stopped(gateway, query) for query in ("?coalesce=1", "")]
    while gateway.hub.stats().backlog_events < 2 * 3:
        await _post_many(gateway, 10)
    text = [f"{n} é " for n in range(100)]
    batch = [{"type": "chunk", "data": {"text": piece, "by": "a"}} for piece in text]
    last = (await gateway.post("s1", batch)).json["results"][-1]["id"]
    got = []
    for slow in streams:
        slow.connection.writer.transport.resume_reading()
        frames = await slow.take(1)
        while frames[-1].id != last:
            frames += await slow.take(1)
        got.append([frame for frame in frames if frame.type == "chunk"])
    merged, single = got
    assert (len(merged), len(single)) == (1, 100)
    assert merged[0].data == {"text": "".join(text), "by": "a"}
    assert "".join(frame.data["text"] for frame in single) == "".join(text)
    assert gateway.hub.backlog_bytes == 0
