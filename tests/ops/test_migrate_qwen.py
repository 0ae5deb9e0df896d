"""What the page about the Qwen daemon's bus promises beyond what its SDK is shown to do (`tests/foreign`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from ringmere.client.publish import Publisher
from ringmere.client.stream import Control, Event, follow
from support.gateway import gateway

BASE = 1 << 40


@pytest.mark.parametrize("cursor", [1, 2, 8000])
async def test_in_a_log_that_begins_with_epoch_1_no_number_of_another_bus_is_taken_for_an_id(
    tmp_path: Path, cursor: int
) -> None:
    async with gateway(tmp_path, "--first-epoch", "1") as instance, Publisher(instance.url) as publisher:
        ids = [(await publisher.publish("s", {"type": "session_update", "data": n})).id for n in range(3)]
        assert ids == [BASE + 1, BASE + 2, BASE + 3]
        seen: list[int | str] = []
        async with asyncio.timeout(30), follow(instance.url, "s", cursor) as stream:
            async for item in stream:
                if isinstance(item, Event):
                    seen.append(item.id)
                elif isinstance(item, Control):
                    seen.append(item.data.get("reason", item.type))
                    if item.type == "replay_complete":
                        break
        assert seen == ["epoch_reset", *ids, "replay_complete"]


async def test_what_the_sdk_says_of_itself_is_no_obstacle(tmp_path: Path) -> None:
    async with gateway(tmp_path) as instance, aiohttp.ClientSession() as http:
        url = f"{instance.url}/session/s/events?connectReason=resume&previousStreamId=x&maxQueued=16"
        headers = {"Accept": "text/event-stream", "X-Qwen-Client-Id": "c1", "Authorization": "Bearer t"}
        async with http.get(url, headers=headers) as stream:
            assert stream.status == 200
            assert stream.headers["X-Qwen-Event-Epoch"] == stream.headers["X-Event-Epoch"]
