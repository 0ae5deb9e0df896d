"""Cancel over HTTP: ask, look, wait (contract 10.3)."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from ringmere.core.errors import LogUnavailable
from support.doors import Gateway, Start
from support.raw_http import Answer, connect, fetch, request_bytes

JSON = {"Content-Type": "application/json"}
PATH = "/session/s1/tasks/t1/cancel"


async def cancel(gateway: Gateway, body: bytes = b"", path: str = PATH, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await fetch(gateway.port, "POST", path, named, body)


async def test_a_cancel_is_taken_and_told(gateway: Gateway) -> None:
    assert (await gateway.get(PATH)).json == {"sessionId": "s1", "taskId": "t1", "cancelled": False}
    began = time.time_ns() // 1_000_000
    answer = await cancel(gateway, b'{"reason":"no longer wanted"}', **JSON)
    assert answer.status == 202
    told = answer.json
    assert began <= told.pop("requestedAt") <= time.time_ns() // 1_000_000
    assert told == {"sessionId": "s1", "taskId": "t1", "cancelled": True, "reason": "no longer wanted"}
    shown = await gateway.get(PATH)
    assert (shown.status, shown.json) == (200, answer.json)
    assert shown.headers["cache-control"] == "no-store"


async def test_a_cancel_needs_no_body_and_a_repeated_one_gets_the_first_ones_answer(gateway: Gateway) -> None:
    first = await cancel(gateway)
    assert (first.status, "reason" in first.json) == (202, False)
    again = await cancel(gateway, b'{"reason":"later"}', **JSON)
    assert (again.status, again.json) == (202, first.json)


async def test_only_the_task_that_is_named_is_cancelled(gateway: Gateway) -> None:
    await cancel(gateway)
    for path in ("/session/s1/tasks/t2/cancel", "/session/s2/tasks/t1/cancel", "/session/t1/tasks/s1/cancel"):
        assert (await gateway.get(path)).json["cancelled"] is False


async def test_a_cancel_is_no_event_and_no_session(gateway: Gateway) -> None:
    await cancel(gateway)
    assert (await gateway.get("/sessions")).json["sessions"] == []
    assert await gateway.publish("s1", 1) == [1]


@pytest.mark.parametrize("bad", ["*", "%3E", "a.b", "a%2Fb", "%20", "x" * 129, "%00"])
async def test_what_is_no_id_is_400_for_session_and_task(gateway: Gateway, bad: str) -> None:
    for path in (f"/session/{bad}/tasks/t1/cancel", f"/session/s1/tasks/{bad}/cancel"):
        for answer in (await cancel(gateway, path=path), await gateway.get(path)):
            assert (answer.status, answer.code) == (400, "invalid_session_id")
    assert gateway.log.calls["cancel"] == 0


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed_body"),
        (b"[]", 422, "invalid_cancel"),
        (json.dumps({"reason": "x" * 501}).encode(), 422, "invalid_cancel"),
        (b'{"because":"x"}', 422, "invalid_cancel"),
    ],
)
async def test_what_is_no_cancel_is_refused(gateway: Gateway, body: bytes, status: int, code: str) -> None:
    answer = await cancel(gateway, body, **JSON)
    assert (answer.status, answer.code) == (status, code)
    assert (await gateway.get(PATH)).json["cancelled"] is False


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"{}", {}),
        (b"{}", {"Content_Type": "text/plain"}),
        (b"", {"Content_Type": "text/plain"}),
        (b"", {"Origin": "https://elsewhere.example"}),
    ],
)
async def test_a_page_from_elsewhere_cannot_send_one_without_asking_first(
    gateway: Gateway, body: bytes, headers: dict[str, str]
) -> None:
    answer = await cancel(gateway, body, **headers)
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert (await gateway.get(PATH)).json["cancelled"] is False


async def test_a_page_that_may_call_sends_one_as_json(gateway: Gateway) -> None:
    assert (await cancel(gateway, Origin="https://elsewhere.example", **JSON)).status == 202


async def test_who_waits_is_answered_when_it_is_cancelled(gateway: Gateway) -> None:
    waits = [asyncio.create_task(gateway.get(f"{PATH}?wait=30")) for _ in range(3)]
    await gateway.until(lambda: gateway.hub.cancels.waiters == 3, "all wait")
    told = (await cancel(gateway)).json
    assert [(answer.status, answer.json) for answer in await asyncio.gather(*waits)] == [(200, told)] * 3
    assert (await gateway.get(f"{PATH}?wait=30")).json == told


async def test_a_wait_ends_without_a_cancel(gateway: Gateway) -> None:
    began = time.monotonic()
    answer = await gateway.get(f"{PATH}?wait=1")
    assert (answer.status, answer.json["cancelled"]) == (200, False)
    assert time.monotonic() - began >= 1
    assert (await gateway.get(f"{PATH}?wait=0")).json["cancelled"] is False


@pytest.mark.parametrize("wait", ["-1", "31", "1.5", "x", "", "1&wait=2"])
async def test_a_wait_that_is_none_is_400(gateway: Gateway, wait: str) -> None:
    answer = await gateway.get(f"{PATH}?wait={wait}")
    assert (answer.status, answer.code) == (400, "invalid_wait")


async def test_who_leaves_waits_no_more(gateway: Gateway) -> None:
    connection = await connect(gateway.port)
    await connection.send(request_bytes("GET", f"{PATH}?wait=30", {}))
    await gateway.until(lambda: gateway.hub.cancels.waiters == 1, "it waits")
    connection.close()
    await gateway.until(lambda: gateway.hub.cancels.waiters == 0, "nobody waits")
    assert (await gateway.get(PATH)).json["cancelled"] is False, "and that is no cancel"


async def test_a_connection_that_has_waited_can_be_used_again(gateway: Gateway) -> None:
    connection = await connect(gateway.port)
    for _ in range(2):
        await connection.send(request_bytes("GET", f"{PATH}?wait=1", {}))
        assert (await connection.answer()).status == 200
    connection.close()


async def test_a_drain_answers_those_who_wait_and_closes_their_connection(gateway: Gateway) -> None:
    wait = asyncio.create_task(gateway.get(f"{PATH}?wait=30"))
    await gateway.until(lambda: gateway.log.calls["cancelled"] == 1, "it has looked")
    await gateway.hub.drain()
    answer = await wait
    assert (answer.status, answer.json["cancelled"], answer.headers["connection"]) == (200, False, "close")
    refused = await gateway.get(f"{PATH}?wait=30")
    assert (refused.status, refused.code) == (503, "draining")


async def test_a_log_that_is_away_is_503(gateway: Gateway) -> None:
    async def away(method: str, session: str) -> None:
        raise LogUnavailable("away")

    gateway.log.before = away
    for answer in (await cancel(gateway), await gateway.get(PATH), await gateway.get(f"{PATH}?wait=30")):
        assert (answer.status, answer.code) == (503, "log_unavailable")
        assert answer.headers["retry-after"]


async def test_can_1_a_disconnect_is_never_a_cancel(start: Start) -> None:
    gateway = await start()
    await gateway.numbers("s1", 2)
    stream = await gateway.stream("s1", "?from=start")
    stream.close()
    await gateway.until(lambda: gateway.readers() == 0, "the reader is gone")
    assert (await gateway.get(PATH)).json["cancelled"] is False
    assert gateway.log.calls["cancel"] == 0
