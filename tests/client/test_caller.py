"""A call that is tried again: at one gateway, or at the next."""

from __future__ import annotations

import time

import pytest
from aiohttp import web

from ringmere.client.backoff import Backoff
from ringmere.client.caller import Caller
from ringmere.client.errors import Refused, Unreachable
from ringmere.embedded import free_port
from support.scripted import answer, drop, scripted

PATH = "/session/s1/events"
SLOW = Backoff(retry=0.0, first=60.0, widest=60.0)
"""A pause that would fail its test by its length."""
FAST = Backoff(retry=0.0, first=0.01, widest=0.02)


def soon() -> float:
    return time.monotonic() + 10


def nobody() -> str:
    return f"http://127.0.0.1:{free_port()}"


async def test_the_next_gateway_is_asked_without_a_pause_and_then_first() -> None:
    async with scripted(answer(200, 1), answer(200, 2)) as server:
        caller = Caller([nobody(), nobody(), server.url], backoff=SLOW)
        assert await caller.call("GET", PATH, deadline=soon()) == b"1"
        assert await caller.call("GET", PATH, deadline=soon()) == b"2"
        await caller.aclose()


@pytest.mark.parametrize("failure", [answer(503, {}), answer(502), drop], ids=["503", "502", "dropped"])
async def test_a_gateway_that_cannot_now_is_left_for_the_next(failure: web.Response) -> None:
    async with scripted(failure) as one, scripted(answer(200, 1)) as two:
        caller = Caller([one.url, two.url], backoff=SLOW)
        assert await caller.call("POST", PATH, body=b"{}", deadline=soon()) == b"1"
        assert two.asked[0].body == b"{}"
        await caller.aclose()


async def test_when_all_have_failed_it_waits_and_begins_again() -> None:
    async with scripted(answer(503, {}), answer(200, 1)) as one, scripted(answer(503, {})) as two:
        caller = Caller([one.url, two.url], backoff=FAST)
        assert await caller.call("GET", PATH, deadline=soon()) == b"1"
        assert (len(one.asked), len(two.asked)) == (2, 1)
        await caller.aclose()


async def test_a_refusal_is_final_wherever_it_comes_from() -> None:
    async with scripted(answer(422, {"code": "invalid_cancel"})) as one, scripted() as two:
        caller = Caller([one.url, two.url])
        with pytest.raises(Refused, match="invalid_cancel"):
            await caller.call("GET", PATH, deadline=soon())
        assert two.asked == []
        await caller.aclose()


async def test_it_gives_up_at_its_deadline_and_says_whether_it_may_be_done() -> None:
    caller = Caller([nobody(), nobody()], backoff=FAST)
    with pytest.raises(Unreachable) as error:
        await caller.call("GET", PATH, deadline=time.monotonic() + 0.05)
    assert error.value.maybe_done is False
    await caller.aclose()
    async with scripted(drop) as server:
        caller = Caller(server.url, backoff=SLOW)
        with pytest.raises(Unreachable) as error:
            await caller.call("POST", PATH, body=b"{}", deadline=time.monotonic() + 0.05)
        assert error.value.maybe_done is True
        await caller.aclose()


def test_without_an_address_there_is_no_caller() -> None:
    with pytest.raises(ValueError, match="no address"):
        Caller([])
