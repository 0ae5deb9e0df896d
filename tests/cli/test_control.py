"""``ringmere cancel`` against a real gateway."""

from __future__ import annotations

import asyncio
import json

from ringmere.embedded import free_port
from support.command import ringmere
from support.talk import get


async def test_a_cancel_is_taken_and_told_as_it_is_shown(server: str) -> None:
    done = await ringmere("cancel", "c1", "t1", "--reason", "no longer wanted", "--json", server=server)
    assert done.code == 0, done.err
    assert done.lines == [(await get(server, "/session/c1/tasks/t1/cancel")).json]
    assert done.lines[0]["reason"] == "no longer wanted"
    again = await ringmere("cancel", "c1", "t1", "--reason", "later", server=server)
    assert (again.code, again.out.count("\n")) == (0, 1)
    assert again.out.startswith("t1 is cancelled since ")
    assert again.out.endswith(": no longer wanted\n")


async def test_a_cancel_needs_no_reason(server: str) -> None:
    done = await ringmere("cancel", "c2", "t1", "--json", server=server)
    assert (done.code, json.loads(done.out)["cancelled"]) == (0, True)
    assert "reason" not in done.lines[0]


async def test_what_is_no_id_or_no_reason_ends_with_2(server: str) -> None:
    for arguments in (("a.b", "t"), ("s", "*"), ("s", "t", "--reason", "x" * 501), ("s",)):
        assert (await ringmere("cancel", *arguments, server=server)).code == 2
    assert (await get(server, "/session/s/tasks/t/cancel")).json["cancelled"] is False


async def test_without_a_gateway_it_fails_with_one_line_in_time() -> None:
    async with asyncio.timeout(60):
        done = await ringmere("cancel", "s", "t", server=f"http://127.0.0.1:{free_port()}")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "gave up" in done.err
