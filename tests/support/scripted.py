"""A server that answers each request by the next step of a script, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web

DEADLINE = 10.0
"""Seconds after which a condition that does not come true fails its test."""

Step = Callable[[web.Request], Awaitable[web.StreamResponse]]
Part = bytes | float | Callable[[], Awaitable[Any]]


@dataclass
class Asked:
    """One request as it came."""

    headers: dict[str, str]
    query: dict[str, str]
    body: bytes

    @property
    def cursor(self) -> str | None:
        return self.headers.get("last-event-id")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Scripted:
    """The running server. What comes after the last step is a failure of the test and answers 418."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = list(steps)
        self.asked: list[Asked] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append(Asked(headers, dict(request.query), await request.read()))
        if len(self.asked) > len(self.steps):
            return web.Response(status=418, text="the script has no such step")
        return await self.steps[len(self.asked) - 1](request)

    @property
    def cursors(self) -> list[str | None]:
        return [asked.cursor for asked in self.asked]


@asynccontextmanager
async def scripted(*steps: Step) -> AsyncIterator[Scripted]:
    """Serve ``steps``, one a request, on a free port of the loopback interface."""
    server = Scripted(steps)
    app = web.Application(client_max_size=1 << 26)
    for path in ("/session/{session}/events", "/session/{session}/snapshot", "/session/{session}/tasks/{task}/cancel"):
        app.router.add_route("*", path, server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        yield server
    finally:
        await runner.cleanup()


def stream(*parts: Part, end: Literal["clean", "cut", "hold"] = "clean", headers: dict[str, str] | None = None) -> Step:
    """A step that answers 200 with an event stream: bytes are sent, numbers are pauses, callables are awaited.

    At its end the body is finished, the connection is aborted in the middle of it, or kept open in silence.
    """

    async def step(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **(headers or {})})
        await response.prepare(request)
        for part in parts:
            if isinstance(part, bytes):
                await response.write(part)
            elif isinstance(part, int | float):
                await asyncio.sleep(part)
            else:
                await part()
        if end == "hold":
            await asyncio.Event().wait()
        if end == "cut":
            assert request.transport is not None
            request.transport.close()
        return response

    return step


def answer(
    status: int, body: Any = None, headers: dict[str, str] | None = None, content_type: str = "application/json"
) -> Step:
    """A step that answers with a status and, unless it is None, a JSON body."""

    async def step(request: web.Request) -> web.StreamResponse:
        data = None if body is None else json.dumps(body).encode()
        return web.Response(status=status, body=data, headers={"Content-Type": content_type, **(headers or {})})

    return step


async def drop(request: web.Request) -> web.StreamResponse:
    """A step that closes the connection instead of answering."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def event(public_id: int, type: str = "t", data: Any = None, **more: Any) -> bytes:
    """An event's frame as the service writes it."""
    envelope = {"id": public_id, "v": 1, "type": type, "data": data, **more, "_meta": {"serverTimestamp": 1}}
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (public_id, type.encode(), json.dumps(envelope).encode())


def control(type: str, **data: Any) -> bytes:
    """A control frame as the service writes it."""
    envelope = {"v": 1, "type": type, "data": data, "_meta": {"serverTimestamp": 1}}
    return b"event: %b\ndata: %b\n\n" % (type.encode(), json.dumps(envelope).encode())
