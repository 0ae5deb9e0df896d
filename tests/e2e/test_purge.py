"""A purge is everybody's: what one instance removes is in no window of another, and whoever lost something is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ringmere.core.decoder import Decoder, Message
from ringmere.embedded import EmbeddedServer
from support.gateway import GatewayProcess, gateway
from support.nats import eventually


class Reading:
    """One open stream of a gateway process."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._decoder = Decoder()
        self._seen: list[Message] = []

    async def next(self) -> tuple[str, Any]:
        """Return type and data of the next frame."""
        while not self._seen:
            chunk = await self._response.content.readany()
            assert chunk, "the stream ended"
            self._seen += self._decoder.feed(chunk)
        message = self._seen.pop(0)
        return message.type, json.loads(message.data)["data"]


async def publish(http: aiohttp.ClientSession, at: GatewayProcess, *data: object) -> list[int]:
    """Publish one event a value into ``s``; return the ids."""
    ids = []
    for value in data:
        async with http.post(f"{at.url}/session/s/events", json={"type": "t", "data": value}) as answer:
            assert answer.status == 201
            ids.append((await answer.json())["id"])
    return ids


async def read(http: aiohttp.ClientSession, at: GatewayProcess, cursor: int) -> Reading:
    """Follow ``s`` behind a cursor."""
    response = await http.get(f"{at.url}/session/s/events", headers={"Last-Event-ID": str(cursor)})
    assert response.status == 200
    return Reading(response)


@pytest.mark.parametrize("tail", ["republish", "consumer"])
async def test_a_purge_at_one_instance_empties_the_windows_of_all_and_who_lost_something_is_told(
    nats_server: EmbeddedServer, tmp_path: Path, tail: str
) -> None:
    flags = ("--tail", tail)
    async with (
        gateway(tmp_path, *flags, nats_url=nats_server.url) as one,
        gateway(tmp_path, *flags, nats_url=nats_server.url) as two,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
    ):
        ids = await publish(http, one, 1, 2, 3)
        live = await read(http, two, 0)
        assert [(await live.next())[0] for _ in range(4)] == ["t", "t", "t", "replay_complete"]
        async with http.delete(f"{one.url}/session/s", params={"purge": "1"}) as answer:
            assert answer.status == 204

        async def gone() -> bool:
            """The other instance, which has a reader and so a window, judges a cursor in it as lost."""
            resumed = await read(http, two, ids[0])
            type, data = await resumed.next()
            resumed._response.close()
            return type == "state_resync_required" and data["reason"] == "ring_evicted"

        await eventually(gone, "the other instance has dropped its window", 30)
        for instance in (one, two):
            resumed = await read(http, instance, ids[1])
            assert await resumed.next() == (
                "state_resync_required",
                {"reason": "ring_evicted", "lastDeliveredId": ids[1], "earliestAvailableId": ids[-1] + 1},
            )
            assert await resumed.next() == ("replay_complete", {"replayedCount": 0})
            complete = await read(http, instance, ids[-1])
            assert await complete.next() == ("replay_complete", {"replayedCount": 0})
        # The live reader had everything that was purged, so it lost nothing and is told nothing.
        assert (await publish(http, two, 4))[0] > ids[-1]
        assert await live.next() == ("t", 4)
        async with http.get(f"{two.url}/metrics") as scrape:
            assert "ringmere_purges_total 0.0" in await scrape.text()
        async with http.get(f"{one.url}/metrics") as scrape:
            assert "ringmere_purges_total 1.0" in await scrape.text()
        assert '"event": "session_purged"' in one.output
