"""The connection of a WebSocket stream, byte by byte: what clients may not do, and that it is closed in order."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.frames import Close, Frame, Opcode

from ringmere.core.reasons import CloseReason
from ringmere.core.websocket import newest_frames
from ringmere.http import handover
from ringmere.http.options import MAX_FRAMES, MAX_MESSAGE
from support.doors import Gateway
from support.handshake import RawSocket, raw_socket


async def opened(socket: RawSocket) -> None:
    assert json.loads(bytes((await socket.frame()).data))["type"] == "stream_opened"


async def gone(gateway: Gateway) -> None:
    await gateway.until(lambda: gateway.hub.slots == 0 and gateway.readers() == 0, "the reader has gone")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (Frame(Opcode.TEXT, b"{}").serialize(mask=False), 1002),
        (b"\xc9\x80\0\0\0\0", 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (Frame(Opcode.CONT, b"x").serialize(mask=True), 1002),
        (b"\x09\x80\0\0\0\0", 1002),
        (Frame(Opcode.TEXT, b"x" * (MAX_MESSAGE + 1)).serialize(mask=True), 1009),
        (b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1009),
        (Frame(Opcode.TEXT, b"x" * MAX_MESSAGE).serialize(mask=True), 1008),
    ],
    ids=["unmasked", "reserved bit", "unknown opcode", "stray fragment", "fragmented ping", "oversized",
         "a length to allocate", "unasked"],
)  # fmt: skip
async def test_a_client_that_breaks_a_rule_is_told_which_and_frees_everything(
    gateway: Gateway, frame: bytes, code: int
) -> None:
    async with raw_socket(gateway.port, "/session/s/ws") as socket:
        await opened(socket)
        await socket.raw.send(frame)
        assert await socket.close_code() == code
        await socket.eof()
    await gone(gateway)


async def test_an_oversized_hello_in_fragments_is_refused_before_its_end(gateway: Gateway) -> None:
    async with raw_socket(gateway.port, "/session/s/ws?hello=1") as socket:
        await socket.send(Opcode.TEXT, b"x" * 3000, fin=False)
        await socket.send(Opcode.CONT, b"x" * 3000, fin=False)
        assert await socket.close_code() == 1009
        await socket.eof()
    await gone(gateway)


@pytest.mark.parametrize("frame", [Frame(Opcode.PING, b""), Frame(Opcode.PONG, b"")], ids=["pings", "pongs"])
async def test_a_flood_of_small_frames_is_cut_off(gateway: Gateway, frame: Frame) -> None:
    async with raw_socket(gateway.port, "/session/s/ws") as socket:
        await opened(socket)
        await socket.raw.send(frame.serialize(mask=True) * MAX_FRAMES)
        await socket.send(Opcode.PING, b"still welcome? no")
        assert await socket.close_code() == 1008
        await socket.eof()
    await gone(gateway)


async def test_endless_empty_fragments_of_a_hello_are_cut_off(gateway: Gateway) -> None:
    async with raw_socket(gateway.port, "/session/s/ws?hello=1") as socket:
        await socket.send(Opcode.TEXT, b"", fin=False)
        await socket.raw.send(Frame(Opcode.CONT, b"", fin=False).serialize(mask=True) * MAX_FRAMES)
        assert await socket.close_code() == 1008
        await socket.eof()
    await gone(gateway)


async def test_a_close_of_the_client_is_answered_in_kind(gateway: Gateway) -> None:
    async with raw_socket(gateway.port, "/session/s/ws") as socket:
        await opened(socket)
        await socket.send(Opcode.CLOSE, Close(1001, "bye").serialize())
        assert await socket.close_code() == 1001
        await socket.eof()
    await gone(gateway)
    assert gateway.watcher.closed == ["client_gone"]


async def test_the_connection_stays_until_the_client_has_answered_a_close(gateway: Gateway) -> None:
    async with raw_socket(gateway.port, "/session/s/ws") as socket:
        await opened(socket)
        await gateway.post("s", {"type": "session_closed", "data": {}})
        assert await socket.close_code() == CloseReason.SESSION_CLOSED.number
        assert gateway.hub.slots == 0, "its slot is free at once"
        await socket.send(Opcode.PONG, b"under way when the close came")
        await socket.send(Opcode.CLOSE, Close(4002, "").serialize())
        await socket.eof()


async def test_a_client_that_never_answers_a_close_is_cut_off(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "FLUSH_GRACE", 0.05)
    async with raw_socket(gateway.port, "/session/s/ws") as socket:
        await opened(socket)
        await gateway.post("s", {"type": "session_closed", "data": {}})
        assert await socket.close_code() == 4002
        async with asyncio.timeout(20):
            with pytest.raises((ConnectionError, AssertionError)):
                await socket.frame()


async def test_all_readers_of_a_session_share_the_frames_of_a_turn(gateway: Gateway) -> None:
    newest_frames.cache_clear()
    async with (
        raw_socket(gateway.port, "/session/s/ws") as one,
        raw_socket(gateway.port, "/session/s/ws") as two,
        raw_socket(gateway.port, "/session/s/ws") as three,
    ):
        for socket in (one, two, three):
            await opened(socket)
        before = newest_frames.cache_info()
        await gateway.publish("s", 1)
        for socket in (one, two, three):
            assert json.loads(bytes((await socket.frame()).data))["id"] == 1
        after = newest_frames.cache_info()
        assert (after.misses - before.misses, after.hits - before.hits) == (1, 2)


async def test_nothing_is_framed_where_nobody_reads_over_websocket(gateway: Gateway) -> None:
    newest_frames.cache_clear()
    stream = await gateway.stream("s")
    await gateway.publish("s", 1)
    assert [frame.id for frame in await stream.take(1)] == [1]
    assert newest_frames.cache_info().misses == 0
