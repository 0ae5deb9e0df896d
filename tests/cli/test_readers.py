"""``ringmere readers`` against a real gateway."""

from __future__ import annotations

import aiohttp

from ringmere.cli.readers import COLUMNS
from support.command import Done, ringmere
from support.nats import eventually
from support.stopped import stopped_reader


async def test_nobody_is_behind(server: str) -> None:
    assert (await ringmere("readers", server=server)).out == "nobody is behind\n"
    assert (await ringmere("readers", "--json", server=server)).out == ""


async def test_a_reader_that_does_not_read_is_shown(server: str) -> None:
    with await stopped_reader(server, "lagging"):
        found: list[Done] = []

        async def listed() -> bool:
            events = [{"type": "note", "data": "x" * 60_000}] * 20
            at = f"{server}/session/lagging/events"
            async with aiohttp.ClientSession() as http, http.post(at, json=events) as answer:
                assert answer.status == 201
            found.append(await ringmere("readers", "--json", server=server))
            return any(row["backlogEvents"] for row in found[-1].lines)

        await eventually(listed, "the reader is behind", 60.0)
        [row] = found[-1].lines
        assert row["sessionId"] == "lagging"
        done = await ringmere("readers", "--limit", "1", server=server)
        title, line = done.out.splitlines()
        assert title.split()[:4] == ["session", "behind", "events", "queued"]
        assert line.split()[0] == "lagging"


async def test_a_limit_that_is_none_ends_with_2(server: str) -> None:
    assert (await ringmere("readers", "--limit", "0", server=server)).code == 2


def test_a_reader_of_several_sessions_has_a_line_too() -> None:
    row = {
        "sessionId": "team-*", "streamId": "s", "transport": "sse", "state": "live", "positionId": 7, "warned": True,
        "backlogEvents": 3, "backlogBytes": 90, "maxQueued": 256, "ageSeconds": 5.0, "worker": 1,
    }  # fmt: skip
    cells = [cell(row) for cell in COLUMNS.values()]
    assert cells == ["team-*", "", "?", "3/256", "90", "yes", "", "live", "", "1"]
