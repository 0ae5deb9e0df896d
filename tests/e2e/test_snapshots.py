"""Stored states over two instances on one NATS, while events are published: no gap and no double for anybody."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from ringmere.client.errors import Refused
from ringmere.client.publish import Publisher
from ringmere.client.snapshot import get_snapshot, put_snapshot
from ringmere.client.stream import Control, Event, follow
from support.gateway import gateway
from support.nats import running_server

EVENTS = 240
DEADLINE = 60.0


async def publish(url: str, truth: list[int]) -> None:
    """Publish numbers; ``truth`` has all that are acknowledged, the session is the only one of its stream."""
    async with Publisher(url) as to:
        for number in range(EVENTS):
            result = await to.publish("s1", {"type": "session_closed" if number == EVENTS - 1 else "n", "data": number})
            assert result.id == number + 1
            truth.append(number)


async def keep_snapshots(url: str, truth: list[int]) -> None:
    """Store what is the truth now, again and again, until all is published."""
    while len(truth) < EVENTS:
        covered = len(truth)
        await put_snapshot(url, "s1", covered, truth[:covered])
        await asyncio.sleep(0.02)


async def read_by_stream(url: str) -> list[int]:
    """Begin with the state that the gateway sends."""
    numbers: list[int] = []
    async with follow(url, "s1", snapshot=True, resync="snapshot") as following:
        async for item in following:
            if isinstance(item, Event):
                numbers.append(item.data)
            elif isinstance(item, Control) and item.snapshot is not None:
                numbers = list(item.snapshot.state)
    return numbers


async def read_by_hand(url: str) -> list[int]:
    """Load the state, then resume behind it."""
    found = await get_snapshot(url, "s1")
    assert found is not None
    numbers = list(found.state)
    async with follow(url, "s1", found.last_event_id) as following:
        async for item in following:
            assert not isinstance(item, Control) or item.type == "replay_complete"
            if isinstance(item, Event):
                numbers.append(item.data)
    return numbers


async def late(seconds: float, read: object, url: str) -> list[int]:
    await asyncio.sleep(seconds)
    return await read(url)  # type: ignore[operator, no-any-return]


async def test_state_and_rest_are_the_whole_whenever_a_reader_comes_and_on_either_instance(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path / "nats") as nats,
        gateway(tmp_path / "a", nats_url=nats.url) as one,
        gateway(tmp_path / "b", nats_url=nats.url) as two,
    ):
        truth: list[int] = []
        await put_snapshot(one.url, "s1", 0, [])
        readers = [
            late(0.05 * number, read, url)
            for number, (read, url) in enumerate(
                [(read_by_stream, one.url), (read_by_hand, two.url), (read_by_stream, two.url), (read_by_hand, one.url)]
                * 3
            )
        ]
        async with asyncio.timeout(DEADLINE):
            _, _, *seen = await asyncio.gather(publish(one.url, truth), keep_snapshots(two.url, truth), *readers)
        assert truth == list(range(EVENTS))
        assert [numbers == truth for numbers in seen] == [True] * len(readers)
        with pytest.raises(Refused) as refusal:
            await put_snapshot(two.url, "s1", EVENTS + 1, [])
        assert refusal.value.code == "unknown_event_id"
        async with aiohttp.ClientSession() as http, http.delete(f"{one.url}/session/s1?purge=1") as answer:
            assert answer.status == 204
        assert await get_snapshot(two.url, "s1") is None
