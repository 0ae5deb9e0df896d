"""The opening handshake: what is none, and whose pages may open one."""

from __future__ import annotations

import pytest

from support.doors import Gateway, Start
from support.handshake import HANDSHAKE
from support.raw_http import Answer, connection, request_bytes


async def shake(gateway: Gateway, headers: dict[str, str], version: str = "1.1", method: str = "GET") -> Answer:
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes(method, "/session/s/ws", headers, version=version))
        head = await raw.head()
        if head.status != 101 and method != "HEAD":
            head.body = await raw.reader.readexactly(int(head.headers["content-length"]))
        return head


async def test_the_answer_is_that_of_the_standards_example(gateway: Gateway) -> None:
    answer = await shake(gateway, HANDSHAKE)
    assert answer.status == 101
    assert answer.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert (answer.headers["upgrade"], answer.headers["connection"]) == ("websocket", "Upgrade")
    assert "content-length" not in answer.headers
    assert "transfer-encoding" not in answer.headers
    await gateway.until(lambda: gateway.readers() == 0, "the reader has gone")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"Upgrade": ""}, 426, "upgrade_required"),
        ({"Upgrade": "h2c"}, 426, "upgrade_required"),
        ({"Connection": "keep-alive"}, 426, "upgrade_required"),
        ({"Sec-WebSocket-Version": "8"}, 426, "upgrade_required"),
        ({"Sec-WebSocket-Key": ""}, 400, "invalid_upgrade"),
        ({"Sec-WebSocket-Key": "c2hvcnQ="}, 400, "invalid_upgrade"),
        ({"Sec-WebSocket-Key": "§"}, 400, "invalid_upgrade"),
    ],
)
async def test_what_is_no_handshake_is_told_what_is_missing(
    gateway: Gateway, change: dict[str, str], status: int, code: str
) -> None:
    answer = await shake(gateway, {**HANDSHAKE, **change})
    assert (answer.status, answer.code) == (status, code)
    if "Sec-WebSocket-Version" in change:
        assert answer.headers["sec-websocket-version"] == "13"
    if status == 426:
        assert answer.headers["upgrade"] == "websocket"
    assert gateway.hub.slots == 0


async def test_http_1_0_and_head_cannot_be_upgraded(gateway: Gateway) -> None:
    assert (await shake(gateway, HANDSHAKE, version="1.0")).status == 426
    assert (await shake(gateway, HANDSHAKE, method="HEAD")).status == 426


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("a.example", "http://a.example", 101),
        ("a.example", "https://a.example", 101),
        ("A.example:443", "https://a.example", 101),
        ("a.example:8080", "http://a.example:8080", 101),
        ("[::1]:8080", "http://[::1]:8080", 101),
        ("a.example", "http://a.example:8080", 403),
        ("a.example:8080", "http://a.example", 403),
        ("a.example", "http://b.example", 403),
        ("a.example", "http://a.example.b.example", 403),
        ("a.example", "null", 403),
        ("a.example", "file://a.example", 403),
        ("a.example", "", 403),
        ("a.example", "http://a.example:x", 403),
    ],
)
async def test_pages_of_the_same_host_are_welcome_and_no_others(
    gateway: Gateway, host: str, origin: str, status: int
) -> None:
    answer = await shake(gateway, {**HANDSHAKE, "Host": host, "Origin": origin})
    assert answer.status == status
    if status == 403:
        assert answer.code == "origin_not_allowed"
        assert gateway.hub.slots == 0


async def test_named_origins_are_welcome_and_a_star_welcomes_all(start: Start) -> None:
    named = await start(cors_origins=("https://app.example",))
    assert (await shake(named, {**HANDSHAKE, "Origin": "https://app.example"})).status == 101
    assert (await shake(named, {**HANDSHAKE, "Origin": "https://other.example"})).status == 403
    everybody = await start(cors_origins=("*",))
    assert (await shake(everybody, {**HANDSHAKE, "Origin": "null"})).status == 101
