"""Publishing with acknowledgement: keys, safe retries, and what is told when it does not work."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from ringmere.client.backoff import Backoff
from ringmere.client.errors import BrokenStream, ClientError, Refused, Unreachable
from ringmere.client.publish import Published, Publisher
from ringmere.core.errors import InvalidBatch, InvalidEvent, InvalidKey, InvalidSessionId
from support.scripted import DEADLINE, Scripted, answer, drop, scripted

FAST = Backoff(retry=0.0, first=0.01, widest=0.02)
NOTE = {"type": "note", "data": {"n": 1}}


def stored(public_id: int, duplicate: bool = False) -> Any:
    return answer(200 if duplicate else 201, {"id": public_id, "sessionId": "s1", "duplicate": duplicate})


def rows(status: int, *results: dict[str, Any]) -> Any:
    return answer(status, {"sessionId": "s1", "results": list(results)})


def row(public_id: int) -> dict[str, Any]:
    return {"id": public_id, "duplicate": False}


def publisher(server: Scripted, **options: Any) -> Publisher:
    return Publisher(server.url, **{"backoff": FAST, **options})


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_stored_event_comes_back_with_its_id_and_went_with_a_fresh_key() -> None:
    async with scripted(stored(7), stored(8)) as server, publisher(server) as to:
        assert await to.publish("s1", NOTE) == Published(7, False)
        assert await to.publish("s1", NOTE) == Published(8, False)
    first, second = server.asked
    assert first.json == NOTE
    assert first.headers["content-type"] == "application/json"
    assert len(first.headers["idempotency-key"]) >= 16
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]
    assert "expected-last-event-id" not in first.headers


@pytest.mark.parametrize(
    "failure", [answer(503, {}), answer(429, {}), answer(504, {}), answer(502), answer(500), drop],
    ids=["503", "429", "504", "502", "500", "dropped"],
)  # fmt: skip
async def test_a_failure_that_may_pass_is_retried_with_the_same_key_and_body(failure: Any) -> None:
    async with scripted(failure, failure, stored(7, duplicate=True)) as server, publisher(server) as to:
        assert await to.publish("s1", NOTE) == Published(7, True)
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 1
    assert [asked.json for asked in server.asked] == [NOTE] * 3


async def test_a_try_without_an_answer_is_given_up_after_its_timeout_and_repeated() -> None:
    async with scripted(hang, stored(7)) as server, publisher(server, timeout=0.05) as to:
        assert await to.publish("s1", NOTE) == Published(7)
    assert len(server.asked) == 2


async def test_the_callers_key_and_expectation_are_sent() -> None:
    async with scripted(stored(7), stored(8)) as server, publisher(server, headers={"X-A": "b"}) as to:
        await to.publish("s1", NOTE, key="k-1", expected=6)
        await to.publish("s1", {**NOTE, "key": "row-key"})
    first, second = server.asked
    assert first.headers["idempotency-key"] == "k-1"
    assert first.headers["expected-last-event-id"] == "6"
    assert first.headers["x-a"] == "b"
    assert second.headers["idempotency-key"] == "row-key"
    assert second.json == NOTE


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 415, 422])
async def test_a_refusal_raises_with_its_code_and_is_not_repeated(status: int) -> None:
    problem = {"code": "some_code", "detail": "why", "current": 5}
    async with scripted(answer(status, problem)) as server, publisher(server) as to:
        with pytest.raises(Refused) as caught:
            await to.publish("s1", NOTE)
    assert (caught.value.status, caught.value.code, caught.value.problem["current"]) == (status, "some_code", 5)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("failure", "maybe"),
    [(answer(503, {}), False), (answer(504, {}), True), (drop, True)],
    ids=["503", "504", "dropped"],
)
async def test_when_patience_ends_it_says_whether_the_event_may_be_stored(failure: Any, maybe: bool) -> None:
    async with scripted(*[failure] * 1000) as server, publisher(server, patience=0.1) as to:
        with pytest.raises(Unreachable) as caught:
            await to.publish("s1", NOTE)
    assert caught.value.maybe_done is maybe


async def test_a_server_that_is_not_there_stores_nothing() -> None:
    async with scripted() as server:
        url = server.url
    async with Publisher(url, patience=0.05, backoff=FAST) as to:
        with pytest.raises(Unreachable) as caught:
            await to.publish("s1", NOTE)
    assert caught.value.maybe_done is False


async def test_retry_after_is_a_floor() -> None:
    async with scripted(answer(503, {}, {"Retry-After": "30"})) as server, publisher(server, patience=5.0) as to:
        with pytest.raises(Unreachable):
            await asyncio.wait_for(to.publish("s1", NOTE), DEADLINE)
    assert len(server.asked) == 1


async def test_a_batch_is_stored_in_one_request_with_a_key_for_each_row() -> None:
    events = [NOTE, {**NOTE, "key": "own"}, NOTE]
    async with scripted(rows(201, row(1), row(2), row(3))) as server, publisher(server) as to:
        assert await to.publish_batch("s1", events, key="k") == [Published(1), Published(2), Published(3)]
    (asked,) = server.asked
    assert [sent["key"] for sent in asked.json] == ["k/0", "own", "k/2"]
    assert asked.query == {}


async def test_rows_that_failed_for_the_moment_are_repeated_alone_and_with_their_keys() -> None:
    partial = rows(
        207, row(1), {"code": "log_unavailable", "detail": ""}, {"code": "key_reused", "detail": "other body"},
        {"code": "publish_unconfirmed", "detail": ""},
    )  # fmt: skip
    rest = rows(201, row(5), {"id": 4, "duplicate": True})
    async with scripted(partial, rest) as server, publisher(server) as to:
        results = await to.publish_batch("s1", [NOTE] * 4, key="k")
    assert [result for result in results if isinstance(result, Published)] == [
        Published(1), Published(5), Published(4, True),
    ]  # fmt: skip
    refused = results[2]
    assert isinstance(refused, Refused)
    assert refused.code == "key_reused"
    assert [sent["key"] for sent in server.asked[1].json] == ["k/1", "k/3"]


async def test_an_atomic_batch_says_so_and_carries_its_expectation() -> None:
    async with scripted(rows(201, row(1))) as server, publisher(server) as to:
        await to.publish_batch("s1", [NOTE], atomic=True, expected=0)
    assert server.asked[0].query == {"atomic": "1"}
    assert server.asked[0].headers["expected-last-event-id"] == "0"


async def test_what_cannot_be_an_event_is_refused_before_anything_is_sent() -> None:
    bad = {"type": "t", "data": float("nan")}
    async with scripted() as server, publisher(server) as to:
        for data in (float("nan"), float("inf"), object(), "\ud83d"):
            with pytest.raises(InvalidEvent):
                await to.publish("s1", {"type": "t", "data": data})
        with pytest.raises(InvalidEvent) as caught:
            await to.publish_batch("s1", [NOTE, bad])
        assert caught.value.index == 1
        for count in (0, 1001):
            with pytest.raises(InvalidBatch):
                await to.publish_batch("s1", [NOTE] * count)
        with pytest.raises(InvalidKey):
            await to.publish("s1", NOTE, key="a b")
        with pytest.raises(InvalidKey):
            await to.publish_batch("s1", [NOTE], key="x" * 255)
        with pytest.raises(InvalidSessionId):
            await to.publish("*", NOTE)
        assert server.asked == []


@pytest.mark.parametrize("body", [{}, {"id": "7"}, [], {"results": []}, {"id": True}])
async def test_an_answer_that_is_not_the_protocols_is_said_to_be_broken(body: Any) -> None:
    async with scripted(answer(201, body), answer(201, body)) as server, publisher(server) as to:
        with pytest.raises(BrokenStream):
            await to.publish("s1", NOTE)
        with pytest.raises(BrokenStream):
            await to.publish_batch("s1", [NOTE])


async def test_a_session_of_the_caller_stays_open_and_an_own_one_is_closed() -> None:
    async with scripted(stored(1), stored(2)) as server, aiohttp.ClientSession() as http:
        given = publisher(server, http=http)
        await given.publish("s1", NOTE)
        await given.aclose()
        assert not http.closed
        own = publisher(server)
        await own.publish("s1", NOTE)
        await own.aclose()
        await own.aclose()


async def test_an_address_that_is_none_raises_at_once() -> None:
    async with Publisher("nonsense") as to:
        with pytest.raises(ClientError) as caught:
            await to.publish("s1", NOTE)
    assert not isinstance(caught.value, Unreachable)


async def test_what_went_to_live_readers_only_is_nothing_that_was_published() -> None:
    sent = answer(202, {"id": None, "degraded": True})
    async with scripted(answer(503, {}), sent, stored(7)) as server, publisher(server) as to:
        assert await to.publish_or_degrade("s1", NOTE, key="k") is None
        assert await to.publish_or_degrade("s1", NOTE) == Published(7)
    assert [asked.headers.get("degraded") for asked in server.asked] == ["allow"] * 3
    assert [asked.headers["idempotency-key"] for asked in server.asked][:2] == ["k", "k"]
    assert [asked.json for asked in server.asked] == [NOTE] * 3


async def test_a_plain_publish_never_asks_for_live_readers_only() -> None:
    async with scripted(stored(7)) as server, publisher(server) as to:
        await to.publish("s1", NOTE)
    assert "degraded" not in server.asked[0].headers
