"""Opening and closing the door."""

from __future__ import annotations

import asyncio
import time

import pytest

from ringmere.http import server as server_module
from ringmere.http.app import build_app
from ringmere.http.server import listen
from support.doors import Gateway, running
from support.raw_http import connect, fetch, request_bytes


async def test_port_0_takes_a_free_port_and_tells_it(gateway: Gateway) -> None:
    host, port = gateway.listener.addresses[0]
    assert host == "127.0.0.1"
    assert port > 0


async def test_a_port_that_is_taken_is_an_os_error_and_leaves_nothing_open(gateway: Gateway) -> None:
    with pytest.raises(OSError):
        await listen(build_app(gateway.hub), "127.0.0.1", gateway.port)
    assert (await gateway.get("/livez")).status == 200


async def test_lif_3_a_stop_with_open_streams_ends_them_cleanly_and_at_once() -> None:
    async with running() as gateway:
        streams = [await gateway.stream("s1", "?from=start") for _ in range(10)]
        idle = [await connect(gateway.port) for _ in range(5)]
        begin = time.monotonic()
        await gateway.hub.close()
        await gateway.listener.close()
        assert time.monotonic() - begin < 2
        for stream in streams:
            assert await stream.all() == []
        for raw in idle:
            assert await raw.rest() == b""
        with pytest.raises(OSError):
            await connect(gateway.port)
    left = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    assert not left


async def test_lif_3_a_stream_whose_client_reads_nothing_does_not_hold_the_stop_up() -> None:
    async with running() as gateway:
        stream = await gateway.stream("s1")
        stream.connection.writer.transport.pause_reading()
        big = "x" * 500_000
        for _ in range(20):
            await gateway.publish("s1", big)
        async with asyncio.timeout(10):
            await gateway.hub.close()
            await gateway.listener.close()


async def test_a_request_in_flight_is_answered_before_the_stop() -> None:
    async with running() as gateway:
        entered, going_on = asyncio.Event(), asyncio.Event()

        async def hold(method: str, session: str) -> None:
            entered.set()
            await going_on.wait()

        gateway.log.before = hold
        request = asyncio.create_task(gateway.post("s1", {"type": "t", "data": 1}))
        await entered.wait()
        stop = asyncio.create_task(gateway.listener.close())
        await asyncio.sleep(0)
        going_on.set()
        assert (await request).status == 201
        await stop


async def test_a_request_that_never_ends_does_not_hold_the_stop_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "STOP_GRACE", 0.05)
    async with running() as gateway:
        entered = asyncio.Event()

        async def hold(method: str, session: str) -> None:
            entered.set()
            await asyncio.Event().wait()

        gateway.log.before = hold
        request = asyncio.create_task(gateway.post("s1", {"type": "t", "data": 1}))
        await entered.wait()
        async with asyncio.timeout(5):
            await gateway.listener.close()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await request


async def test_a_kept_connection_serves_many_requests(gateway: Gateway) -> None:
    raw = await connect(gateway.port)
    for _ in range(50):
        await raw.send(request_bytes("GET", "/livez"))
        assert (await raw.answer()).status == 200
    raw.close()
    assert (await fetch(gateway.port, "GET", "/livez", {"Connection": "close"})).headers["connection"] == "close"
