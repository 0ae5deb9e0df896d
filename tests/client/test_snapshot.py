"""The client's side of stored states: what is sent is what was given, and what is none is told apart (10.1)."""

from __future__ import annotations

from typing import Any

import pytest

from ringmere.client.errors import Refused
from ringmere.client.snapshot import get_snapshot, put_snapshot
from ringmere.core.errors import InvalidSnapshot
from support.scripted import answer, scripted


@pytest.mark.parametrize("state", [float("nan"), {"x": float("inf")}, object(), "\ud800"])
async def test_what_has_no_json_is_refused_before_anything_is_sent(state: Any) -> None:
    async with scripted() as server:
        with pytest.raises(InvalidSnapshot):
            await put_snapshot(server.url, "s", 1, state)
        assert server.asked == []


async def test_a_state_is_sent_as_it_was_given_also_with_a_number_beyond_64_bits() -> None:
    state = {"big": 10**30, "text": "ü\n", "list": [1.5, None, True]}
    async with scripted(answer(201, {})) as server:
        await put_snapshot(server.url, "s", 7, state, final=True)
        assert server.asked[0].json == {"lastEventId": 7, "state": state, "final": True}


async def test_only_the_gateways_own_word_means_that_there_is_no_state() -> None:
    async with scripted(answer(404, {"code": "snapshot_not_found"}), answer(404, {"code": "not_found"})) as server:
        assert await get_snapshot(server.url, "s") is None
        with pytest.raises(Refused, match="not_found"):
            await get_snapshot(server.url, "s")
