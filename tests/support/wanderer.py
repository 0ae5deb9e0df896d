"""A reader that drops its connection at random moments and resumes, at any of several instances."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from ringmere.core.decoder import Decoder
from support.raw_http import connect, request_bytes

Way = Literal["header", "query"]


class Wanderer:
    """Reads one session from ``cursor`` on; ``events`` and ``controls`` are the envelopes it was sent.

    ``urls`` are the instances it chooses from, ``stay`` the longest time in seconds on one connection. It is
    dropped by a reset in the middle of whatever is under way; what had not wholly arrived does not count.
    """

    def __init__(
        self, seed: int, urls: Sequence[str], session: str, way: Way = "header", cursor: int = 0, stay: float = 0.8
    ) -> None:
        self.urls = urls
        self.session = session
        self.way = way
        self.cursor = cursor
        self.stay = stay
        self.events: list[dict[str, Any]] = []
        self.controls: list[dict[str, Any]] = []
        self.connections = 0
        self._random = random.Random(seed)

    @property
    def ids(self) -> list[int]:
        """The ids of the events in the order they came."""
        return [event["id"] for event in self.events]

    async def read(self, enough: Callable[[], bool]) -> None:
        """Read until ``enough()``, with a new connection whenever the time on one is over or it is lost."""
        while not enough():
            try:
                async with asyncio.timeout(self._random.uniform(0.02, self.stay)):
                    await self._one_connection(enough)
            except (TimeoutError, OSError, asyncio.IncompleteReadError):
                # Dropped, or the instance is away or died in the middle of a chunk.
                await asyncio.sleep(self._random.uniform(0, 0.05))

    async def _one_connection(self, enough: Callable[[], bool]) -> None:
        port = urlsplit(self._random.choice(self.urls)).port
        assert port is not None
        target = f"/session/{self.session}/events"
        headers = {}
        if self.way == "query":
            target += f"?last_event_id={self.cursor}"
        else:
            headers["Last-Event-ID"] = str(self.cursor)
        connection = await connect(port)
        try:
            await connection.send(request_bytes("GET", target, headers))
            answer = await connection.head()
            assert answer.status == 200, answer
            self.connections += 1
            decoder = Decoder()
            async for blob in connection.blobs():
                for message in decoder.feed(blob):
                    self._take(json.loads(message.data))
                if enough():
                    return
        finally:
            connection.reset()

    def _take(self, envelope: dict[str, Any]) -> None:
        if "id" in envelope:
            self.events.append(envelope)
            self.cursor = envelope["id"]
        else:
            self.controls.append(envelope)
