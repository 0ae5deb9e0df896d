"""An instance in this process: a log in memory, the hub, and the doors on a free port."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiohttp.web import Server

from ringmere.core.coalesce import Rules
from ringmere.core.limits import Limits
from ringmere.http.app import App, build_app
from ringmere.http.options import HttpOptions
from ringmere.http.server import Listener, listen
from ringmere.hub.hub import Hub
from ringmere.hub.observer import Observer
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from support.raw_http import Answer, Stream, connect, fetch, request_bytes

JSON = {"Content-Type": "application/json"}


class Watcher(Observer):
    """Keeps what a test asks about."""

    def __init__(self) -> None:
        self.ignored: list[tuple[str, str]] = []
        self.closed: list[str] = []
        self.evictions: list[str] = []

    def cursor_ignored(self, session: str, reason: str) -> None:
        self.ignored.append((session, reason))

    def stream_closed(self, transport: str, session: str, stream_id: str, reason: Any, *rest: Any) -> None:
        self.closed.append(reason.label)

    def evicted(self, session: str, stream_id: str, reason: Any) -> None:
        self.evictions.append(reason.label)


class Gateway:
    """What a test has in hand: the running instance and short ways to talk to it."""

    def __init__(
        self, app: App, listener: Listener, hub: Hub, log: MemoryLog, watcher: Watcher, errors: list[BaseException]
    ) -> None:
        self.app = app
        self.listener = listener
        self.port = listener.addresses[0][1]
        self.hub = hub
        self.log = log
        self.watcher = watcher
        self.errors = errors
        self._streams: list[Stream] = []

    async def get(self, target: str, **headers: str) -> Answer:
        return await fetch(self.port, "GET", target, _names(headers))

    async def post(self, session: str, body: Any, headers: dict[str, str] | None = None, query: str = "") -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await fetch(self.port, "POST", f"/session/{session}/events{query}", {**JSON, **(headers or {})}, raw)

    async def publish(self, session: str, *data: Any) -> list[int]:
        """Publish one event a value and return the ids."""
        answers = [await self.post(session, {"type": "t", "data": value}) for value in data]
        assert all(answer.status == 201 for answer in answers), [answer.body for answer in answers]
        return [answer.json["id"] for answer in answers]

    async def numbers(self, session: str, count: int) -> list[int]:
        """Publish ``{"n": 1}`` … ``{"n": count}``."""
        return await self.publish(session, *({"n": n} for n in range(1, count + 1)))

    async def stream(
        self, session: str, query: str = "", headers: Any = None, version: str = "1.1", status: int = 200
    ) -> Stream:
        """Open a stream and read its headers."""
        connection = await connect(self.port)
        await connection.send(request_bytes("GET", f"/session/{session}/events{query}", headers, version=version))
        stream = Stream(connection, await connection.head())
        self._streams.append(stream)
        assert stream.answer.status == status, (stream.answer, self.errors)
        return stream

    async def until(self, condition: Callable[[], Any], what: str = "the condition") -> None:
        """Wait for a condition of the instance."""
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, f"never: {what}"
            await asyncio.sleep(0.005)

    @property
    def server(self) -> Server:
        """The aiohttp server under the listener."""
        server = self.listener.runner.server
        assert server is not None
        return server

    def readers(self) -> int:
        return sum(self.hub.stats().subscribers.values())

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


def _names(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@asynccontextmanager
async def running(
    *,
    limits: Limits | None = None,
    ring_size: int = 8000,
    require_session: bool = False,
    log: MemoryLog | None = None,
    port: int = 0,
    coalesce: Rules | None = None,
    **options: Any,
) -> AsyncIterator[Gateway]:
    """Run an instance, on a log of its own or on ``log``. An unexpected error fails the test.

    ``options`` go to :class:`HttpOptions`.
    """
    watcher = Watcher()
    errors: list[BaseException] = []
    log = log or MemoryLog(MemoryStore(ring_size=ring_size))
    hub = Hub(log, limits or Limits(), watcher, require_session=require_session, coalesce=coalesce)
    await hub.start()
    choice = replace(HttpOptions(report=errors.append), **options)
    app = build_app(hub, choice)
    listener = await listen(app, "127.0.0.1", port)
    gateway = Gateway(app, listener, hub, log, watcher, errors)
    try:
        yield gateway
    finally:
        gateway.close()
        await hub.close()
        await listener.close()
    assert errors == []


Start = Callable[..., Awaitable[Gateway]]
