"""Bodies: their size, their speed, their encoding."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from ringmere.core.limits import MIB, Limits
from ringmere.http import body as body_module
from support.doors import JSON, Gateway, Start
from support.raw_http import connection, fetch, request_bytes

EVENTS = "/session/s1/events"
GOOD = b'{"type":"t","data":1}'


async def test_a_body_declared_too_large_is_413_before_it_is_read(gateway: Gateway) -> None:
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("POST", EVENTS, {**JSON, "Content-Length": str(8 * MIB + 1)}))
        answer = await raw.answer()
    assert (answer.status, answer.code, answer.json["limit"]) == (413, "event_too_large", 8 * MIB)
    assert await gateway.publish("s1", 1) == [1]


async def test_a_body_that_turns_out_too_large_is_413(gateway: Gateway) -> None:
    headers = {**JSON, "Transfer-Encoding": "chunked"}
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("POST", EVENTS, headers))
        chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
        for _ in range(8):
            await raw.send(chunk)
        await raw.send(b"1\r\n \r\n")
        answer = await raw.answer()
        assert (answer.status, answer.code) == (413, "event_too_large")
    assert await gateway.publish("s1", 1) == [1]
    assert gateway.app.door.body_bytes == 0


async def test_the_sender_of_a_large_body_reads_its_413_and_no_reset(start: Start) -> None:
    gateway = await start(limits=Limits(request_bytes=1024))
    answer = await fetch(gateway.port, "POST", EVENTS, JSON, b" " * 4 * MIB)
    assert (answer.status, answer.json["limit"]) == (413, 1024)


async def test_a_body_of_eight_mebibytes_is_read(gateway: Gateway) -> None:
    padded = GOOD + b" " * (8 * MIB - len(GOOD))
    assert (await fetch(gateway.port, "POST", EVENTS, JSON, padded)).status == 201


async def test_a_chunked_body_is_read(gateway: Gateway) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in GOOD) + b"0\r\n\r\n"
    headers = {**JSON, "Transfer-Encoding": "chunked"}
    answer = await fetch(gateway.port, "POST", EVENTS, headers, chunks)
    assert answer.status == 201


async def test_a_body_whose_framing_breaks_is_400_at_once(gateway: Gateway) -> None:
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("POST", EVENTS, {**JSON, "Transfer-Encoding": "chunked"}) + b"5\r\n{")
        await gateway.until(lambda: gateway.app.door.body_bytes == 1, "the handler to read")
        await raw.send(b'"typXX\r\nzz\r\n')
        async with asyncio.timeout(2):
            answer = await raw.answer()
        assert (answer.status, answer.code) == (400, "broken_body")
        assert await raw.rest() == b""
    assert gateway.app.door.body_bytes == 0
    assert await gateway.publish("s1", 1) == [1]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity"])
async def test_a_compressed_body_is_415_and_never_unpacked(gateway: Gateway, encoding: str) -> None:
    bomb = zlib.compress(b" " * 64 * MIB)
    answer = await fetch(gateway.port, "POST", EVENTS, {**JSON, "Content-Encoding": encoding}, bomb)
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


async def test_a_body_that_does_not_come_is_408(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "BODY_TIMEOUT", 0.05)
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("POST", EVENTS, {**JSON, "Content-Length": "21"}) + b'{"type"')
        answer = await raw.answer()
    assert (answer.status, answer.code) == (408, "request_timeout")
    assert gateway.app.door.body_bytes == 0
    assert await gateway.publish("s1", 1) == [1]


async def test_all_bodies_together_are_bounded_and_small_ones_pass_again(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_module, "BODY_BYTES_TOTAL", 2 * MIB)
    async with connection(gateway.port) as first:
        head = request_bytes("POST", EVENTS, {**JSON, "Content-Length": str(2 * MIB)})
        await first.send(head + b" " * (2 * MIB - 10))
        await gateway.until(lambda: gateway.app.door.body_bytes == 2 * MIB - 10)
        answer = await fetch(gateway.port, "POST", EVENTS, JSON, GOOD)
        assert (answer.status, answer.code) == (503, "publish_overloaded")
        assert int(answer.headers["retry-after"]) >= 1
    await gateway.until(lambda: gateway.app.door.body_bytes == 0)
    assert await gateway.publish("s1", 1) == [1]


async def test_who_expects_100_continue_gets_it_only_when_the_body_is_wanted(gateway: Gateway) -> None:
    expecting = {**JSON, "Expect": "100-continue", "Content-Length": str(len(GOOD))}
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("POST", EVENTS, expecting))
        assert await raw.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await raw.send(GOOD)
        assert (await raw.answer()).status == 201
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("POST", EVENTS, {**expecting, "Content-Length": str(9 * MIB)}))
        assert (await raw.answer()).status == 413
    answer = await fetch(gateway.port, "POST", EVENTS, {**JSON, "Expect": "miracles"}, GOOD)
    assert (answer.status, answer.code) == (417, "expectation_failed")


async def test_an_http_1_0_publisher_is_served_and_closed(gateway: Gateway) -> None:
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("POST", EVENTS, JSON, GOOD, version="1.0"))
        answer = await raw.answer()
        assert (answer.version, answer.status) == ("HTTP/1.0", 201)
        assert await raw.rest() == b""
