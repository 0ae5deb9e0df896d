"""The hooks into aiohttp: pinned, and watched so that an upgrade cannot loosen them unnoticed."""

from __future__ import annotations

import asyncio
from importlib.metadata import requires, version
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from ringmere.http import protocol
from ringmere.http.protocol import GatewayProtocol, GatewayServer
from support.doors import Gateway
from support.raw_http import connection, request_bytes

EVENTS = "/session/s1/events"


class Ears:
    """Keeps what an attached reader would hear."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def pause(self) -> None:
        self.heard.append("pause")

    def resume(self) -> None:
        self.heard.append("resume")

    def lost(self) -> None:
        self.heard.append("lost")


class Shrinking:
    """A transport whose buffer is less each time somebody looks."""

    def __init__(self) -> None:
        self.left = 1000
        self.step = 1
        self.looks = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        self.left -= self.step
        return self.left

    def abort(self) -> None:
        self.aborted = True


def _only(gateway: Gateway) -> GatewayProtocol:
    [protocol] = [handler for handler in gateway.server.connections if handler.connected]
    assert isinstance(protocol, GatewayProtocol)
    return protocol


def test_aiohttp_is_the_version_these_hooks_were_written_for() -> None:
    assert aiohttp.__version__.startswith("3.14.")
    assert "aiohttp~=3.14.0" in (requires("ringmere") or []), version("ringmere")


async def test_a_protocol_has_no_dictionary(gateway: Gateway) -> None:
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", "/livez"))
        await raw.answer()
        assert not hasattr(_only(gateway), "__dict__")


async def test_pause_resume_and_loss_are_passed_on_once_attached(gateway: Gateway) -> None:
    ears = Ears()
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", "/livez"))
        await raw.answer()
        protocol = _only(gateway)
        protocol.pause_writing()
        protocol.resume_writing()
        assert ears.heard == []
        protocol.hand_over(ears)
        protocol.pause_writing()
        assert protocol.writing_paused
        protocol.resume_writing()
        assert ears.heard == ["pause", "resume"]
    await gateway.until(lambda: ears.heard[-1] == "lost")
    assert ears.heard == ["pause", "resume", "lost"]


async def test_a_handed_over_connection_is_held_by_nothing_of_aiohttp(gateway: Gateway) -> None:
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", EVENTS))
        await raw.head()
        protocol = _only(gateway)
        assert protocol.connected, "the connection outlives its request"
        assert protocol._task_handler is None
        assert protocol._keepalive_handle is None
        assert protocol._parser is None
        assert protocol._current_request is None
        assert not protocol._messages
    await gateway.until(lambda: not gateway.server.connections, "the server to forget the connection")


async def test_input_after_the_hand_over_is_read_and_dropped(gateway: Gateway) -> None:
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", EVENTS) + request_bytes("GET", "/livez") * 40)
        await raw.head()
        protocol = _only(gateway)
        for _ in range(20):
            await raw.send(request_bytes("GET", "/livez") * 500)
        await gateway.publish("s1", 1)
        async for chunk in raw.chunks():
            assert b"HTTP/1.1" not in chunk
            if b"id: 1\n" in chunk:
                break
        assert not protocol._messages
    await gateway.until(lambda: gateway.readers() == 0, "the reader's end after so much input")


async def test_the_server_makes_its_own_protocol_with_the_named_bounds() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        raise NotImplementedError

    server = GatewayServer(handler, lambda error: None, asyncio.get_running_loop())
    protocol = server()
    assert isinstance(protocol, GatewayProtocol)
    assert protocol.access_logger is None
    assert (protocol.max_line_size, protocol.max_field_size, protocol.max_headers) == (8192, 8192, 64)
    assert protocol.keepalive_timeout == 75.0


async def test_a_connection_that_stays_open_holds_no_answer_that_was_given(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[web.StreamResponse, bool]] = []
    finish = RequestHandler.finish_response

    async def spied(self: RequestHandler, *arguments: Any) -> tuple[web.StreamResponse, bool]:
        response, gone = await finish(self, *arguments)
        given.append((response, isinstance(response, web.Response) and bool(response.body)))
        return response, gone

    monkeypatch.setattr(RequestHandler, "finish_response", spied)
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", "/openapi.json"))
        assert len((await raw.answer()).body) > 10_000
        await gateway.until(lambda: bool(given), "the answer is given")
        assert _only(gateway).connected
        ((response, had_body),) = given
        assert had_body
        assert isinstance(response, web.Response)
        assert response.body is None


async def test_a_client_that_takes_nothing_of_its_answers_is_cut_off(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "STALLED", 0.3)
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", "/livez"))
        await raw.answer()
        transport = _only(gateway).transport
        assert transport is not None
        # More than the kernel and the client's own buffers take.
        transport.write(bytes(32 << 20))
        await gateway.until(lambda: not gateway.server.connections, "the connection is cut")


async def test_a_slow_client_that_takes_some_of_its_answer_keeps_its_connection(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "STALLED", 0.2)
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("GET", "/livez"))
        await raw.answer()
        held = _only(gateway)
        transport = Shrinking()
        held.transport, real = transport, held.transport  # type: ignore[assignment]
        held.pause_writing()
        await gateway.until(lambda: transport.looks > 4, "several looks")
        assert not transport.aborted
        transport.step = 0
        await gateway.until(lambda: transport.aborted, "the end, when it takes no more")
        held.transport = real
