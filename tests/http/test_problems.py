"""Errors as clients see them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

import ringmere.http
from ringmere.core import errors
from ringmere.core.errors import LogUnavailable, PublishOverloaded, PublishUnconfirmed, RingmereError, StartRefused
from ringmere.http.problems import PROBLEMS, problem
from support.doors import JSON, Gateway, Start
from support.raw_http import connect, connection, fetch, request_bytes


def _leaves(root: type[RingmereError]) -> list[type[RingmereError]]:
    below = root.__subclasses__()
    return [leaf for child in below for leaf in _leaves(child)] or [root]


SERVED = [
    leaf
    for leaf in _leaves(RingmereError)
    if leaf.__module__ == errors.__name__
    and not issubclass(leaf, (StartRefused, errors.FrameTooLong, errors.InvalidParameter))
]


@pytest.mark.parametrize("leaf", SERVED, ids=lambda leaf: leaf.__name__)
def test_every_error_that_a_request_can_meet_has_its_own_row(leaf: type[RingmereError]) -> None:
    assert leaf.code in PROBLEMS


def test_every_code_that_a_door_names_has_a_row() -> None:
    source = "".join(path.read_text() for path in Path(ringmere.http.__file__).parent.glob("*.py"))
    named = set(re.findall(r'HttpProblem\(\s*"(\w+)"', source)) | set(re.findall(r'"(invalid_\w+)"', source))
    assert len(named) > 10
    assert named <= PROBLEMS.keys()


def test_a_problem_says_type_title_status_code_and_detail() -> None:
    response = problem("invalid_event", "why", index=3)
    assert response.headers["Content-Type"] == "application/problem+json"
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {
        "type": "urn:ringmere:problem:invalid_event",
        "title": "Invalid event",
        "status": 422,
        "code": "invalid_event",
        "detail": "why",
        "index": 3,
    }


@pytest.mark.parametrize(
    ("error", "status", "wait"),
    [
        (LogUnavailable("away", 2.5), 503, "3"),
        (PublishOverloaded("full", 0.2), 503, "1"),
        (PublishUnconfirmed("no answer; without a key a retry may store it twice"), 504, "1"),
    ],
)
async def test_what_may_be_tried_again_says_when(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, error: RingmereError, status: int, wait: str
) -> None:
    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(gateway.hub, "publish", fail)
    answer = await gateway.post("s1", {"type": "t", "data": 1})
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (status, error.code, wait)
    assert answer.json["detail"] == str(error)


async def test_an_error_nobody_expected_is_500_without_detail_and_is_reported(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(gateway.hub, "publish", fail)
    answer = await gateway.post("s1", {"type": "t", "data": 1})
    assert (answer.status, answer.code) == (500, "internal_error")
    assert b"secret" not in answer.body
    assert "detail" not in answer.json
    assert [type(error) for error in gateway.errors] == [ZeroDivisionError]
    gateway.errors.clear()
    monkeypatch.undo()
    assert await gateway.publish("s1", 1) == [1]


async def test_a_connection_error_from_below_is_reported_while_the_client_is_there(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(gateway.hub, "publish", fail)
    assert (await gateway.post("s1", {"type": "t", "data": 1})).status == 500
    assert [type(error) for error in gateway.errors] == [ConnectionResetError]
    gateway.errors.clear()


async def test_lif_4_clients_that_reset_are_disconnects_and_no_errors(start: Start) -> None:
    gateway = await start()
    for turn in range(5):
        streams = [await gateway.stream(f"s{turn}", "?from=start") for _ in range(20)]
        await gateway.publish(f"s{turn}", *range(3))
        for stream in streams:
            stream.connection.reset()
        await gateway.publish(f"s{turn}", *range(3))
    await gateway.until(lambda: gateway.readers() == 0, "all readers gone")
    assert gateway.watcher.closed == ["client_gone"] * 100
    assert gateway.errors == []


async def test_lif_4_a_publisher_that_leaves_in_the_middle_of_its_body_is_no_error(gateway: Gateway) -> None:
    connections = [await connect(gateway.port) for _ in range(10)]
    for index, raw in enumerate(connections):
        await raw.send(request_bytes("POST", "/session/s1/events", {**JSON, "Content-Length": "100"}) + b'{"type"')
        if index % 2:
            raw.reset()
        else:
            raw.close()
    await gateway.until(lambda: len(asyncio.all_tasks()) <= 12, "the handlers' end")
    assert await gateway.publish("s1", 1) == [1]
    assert gateway.errors == []


async def test_a_line_that_is_too_long_is_431_and_the_next_connection_works(gateway: Gateway) -> None:
    for request in (
        request_bytes("GET", "/livez?" + "x" * 9000),
        request_bytes("GET", "/livez", {"Cookie": "x" * 9000}),
    ):
        async with connection(gateway.port) as raw:
            await raw.send(request)
            answer = await raw.answer()
            assert (answer.status, answer.code) == (431, "request_header_too_large")
            assert answer.json["limit"] == 8192
            assert await raw.rest() == b""
    assert (await gateway.get("/livez")).status == 200


@pytest.mark.parametrize(
    "request_text",
    [
        b"HELLO\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)),
        b"GET /livez HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(80)) + b"\r\n",
    ],
    ids=["no request", "version", "header name", "length", "two lengths", "tls", "too many headers"],
)
async def test_what_is_no_http_is_refused_quietly(gateway: Gateway, request_text: bytes) -> None:
    async with connection(gateway.port) as raw:
        await raw.send(request_text)
        answer = await raw.answer()
        assert (answer.status, answer.code) == (400, "bad_request")
        assert await raw.rest() == b""
    assert gateway.errors == []
    assert (await fetch(gateway.port, "GET", "/livez")).status == 200
