"""Streams over WebSocket from real processes: a killed instance costs a reader nothing, a stopped one says goodbye."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from ringmere.embedded import EmbeddedServer
from support.gateway import gateway
from support.nats import eventually
from support.talk import numbers, publish


class Reader:
    """Follows over WebSocket, at one instance after the other, always behind the last id that it has."""

    def __init__(self, urls: list[str]) -> None:
        self.ids: list[int] = []
        self.controls: list[str] = []
        self.ends: list[int | None] = []
        self._urls = [url.replace("http", "ws") for url in urls]

    async def follow(self, count: int) -> None:
        """Read until ``count`` events are here."""
        while len(self.ids) < count:
            try:
                where = self._urls[len(self.ends) % len(self._urls)]
                cursor = self.ids[-1] if self.ids else 0
                async with connect(f"{where}/session/s/ws?last_event_id={cursor}", proxy=None) as socket:
                    while len(self.ids) < count:
                        frame = json.loads(await socket.recv())
                        if "id" in frame:
                            self.ids.append(frame["id"])
                        else:
                            self.controls.append(frame["type"])
            except ConnectionClosed as end:
                self.ends.append(end.rcvd.code if end.rcvd is not None else None)
            except OSError:
                self.ends.append(None)


async def test_a_killed_and_a_stopped_instance_cost_a_reader_nothing(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(gateway(tmp_path / name, "--drain-grace", "2", nats_url=nats_server.url))
            for name in ("one", "two")
        ]
        reader = Reader([one.url, two.url])
        following = asyncio.create_task(reader.follow(400))
        sent = await publish(two.url, "s", numbers(100))
        async with asyncio.timeout(60):
            await eventually(lambda: len(reader.ids) >= 50, "50 events", 30)
            await one.kill()
            sent += await publish(two.url, "s", numbers(200, 101))
            await eventually(lambda: len(reader.ids) >= 300, "300 events", 30)
            await one.start()
            reader._urls[0] = one.url.replace("http", "ws")
            two.signal(signal.SIGTERM)
            sent += await publish(one.url, "s", numbers(100, 301))
            await following
        assert reader.ids == sent
        assert "state_resync_required" not in reader.controls
        assert "server_draining" in reader.controls
        assert reader.ends[0] is None
        assert 4003 in reader.ends
