"""A gateway in memory that is right in everything but one thing: verify has to find out which."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Vice = Literal[
    "none", "drops", "doubles", "swaps", "stalls", "forgets", "renumbers", "alters", "resyncs", "stores twice",
    "stores what it refuses", "refuses", "forgets cursors", "never speaks",
]  # fmt: skip
EVERY = 15
"""Each so many-th event is treated badly."""
STALL = 2.5


@dataclass
class Log:
    """The events of one session and who waits for more."""

    events: list[dict[str, Any]] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)
    more: asyncio.Event = field(default_factory=asyncio.Event)


class BadGateway:
    """Publish and subscribe as the protocol says, except for ``vice``."""

    def __init__(self, vice: Vice) -> None:
        self.vice = vice
        self.url = ""
        self.logs: dict[str, Log] = {}
        self.ids = itertools.count(1)
        self.stalled = False

    async def publish(self, request: web.Request) -> web.Response:
        log = self.logs.setdefault(request.match_info["session"], Log())
        body = await request.json()
        if isinstance(body, list):
            rows = [self._row(log, row, row.pop("key")) for row in body]
            good = all("id" in row for row in rows)
            return web.json_response({"results": rows}, status=201 if good else 207)
        row = self._row(log, body, request.headers["Idempotency-Key"])
        if "id" in row:
            return web.json_response(row, status=201)
        return web.json_response(row, status={"publish_unconfirmed": 504, "log_unavailable": 503}.get(row["code"], 422))

    def _row(self, log: Log, event: dict[str, Any], key: str) -> dict[str, Any]:
        bad = _counts(event)
        known = log.keys.get(key)
        if bad and self.vice == "refuses":
            return {"code": "invalid_event", "detail": "for no reason"}
        if known is not None and not (bad and self.vice == "stores twice"):
            if bad and self.vice == "stores what it refuses":
                return {"code": "log_unavailable", "detail": "not stored"}
            return {"id": known, "duplicate": True}
        public_id = next(self.ids)
        log.keys[key] = public_id
        if not (bad and self.vice == "forgets"):
            log.events.append({"id": public_id, "v": 1, **event})
            log.more.set()
            log.more = asyncio.Event()
        if bad and self.vice == "stores twice" and known is None:
            return {"code": "publish_unconfirmed", "detail": "perhaps"}
        if bad and self.vice == "stores what it refuses":
            return {"code": "log_unavailable", "detail": "not stored"}
        return {"id": public_id, "duplicate": False}

    async def subscribe(self, request: web.Request) -> web.StreamResponse:
        log = self.logs.setdefault(request.match_info["session"], Log())
        newest = log.events[-1]["id"] if log.events else 0
        cursor = request.headers.get("Last-Event-ID")
        start = newest if cursor is None and request.query.get("from") != "start" else int(cursor or 0)
        if cursor is not None and self.vice == "forgets cursors":
            await asyncio.sleep(0.2)
            start = log.events[-1]["id"] if log.events else 0
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Start-Event-Id": str(start)})
        await response.prepare(request)
        await response.write(b": hello\n")
        held: list[bytes] = []
        if self.vice == "never speaks":
            await asyncio.Event().wait()
        while True:
            more = log.more
            due = [event for event in log.events if event["id"] > start]
            for frame in self._frames(due, held):
                if frame == b"stall":
                    await asyncio.sleep(STALL)
                else:
                    await response.write(frame)
            if due:
                start = due[-1]["id"]
                if due[-1]["type"] == "session_closed":
                    return response
            await more.wait()

    def _frames(self, due: list[dict[str, Any]], held: list[bytes]) -> list[bytes]:
        """Return what is written for the events that are due; ``held`` is what a stream keeps for later."""
        frames: list[bytes] = []
        for event in due:
            if not _counts(event):
                frames += [_frame(event), *held]
                held.clear()
            elif self.vice == "swaps":
                held.append(_frame(event))
            else:
                frames += self._badly(event)
        return frames

    def _badly(self, event: dict[str, Any]) -> list[bytes]:
        frame = _frame(event)
        if self.vice == "stalls":
            stall, self.stalled = not self.stalled, True
            return [b"stall", frame] if stall else [frame]
        return {
            "drops": [],
            "doubles": [frame, frame],
            "renumbers": [_frame({**event, "id": event["id"] + 1_000_000})],
            "alters": [_frame({**event, "data": {**event["data"], "pad": "x"}})],
            "resyncs": [_RESYNC, frame],
        }.get(self.vice, [frame])


_RESYNC = (
    b'event: state_resync_required\ndata: {"v":1,"type":"state_resync_required","data":{"reason":"ring_evicted",'
    b'"lastDeliveredId":1,"earliestAvailableId":1}}\n\n'
)


def _frame(event: dict[str, Any]) -> bytes:
    return f"id: {event['id']}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


@asynccontextmanager
async def bad_gateway(vice: Vice) -> AsyncIterator[BadGateway]:
    """Serve one on a free port of the loopback interface."""
    gateway = BadGateway(vice)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/session/{session}/events", gateway.publish)
    app.router.add_get("/session/{session}/events", gateway.subscribe)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        gateway.url = f"http://{host}:{port}"
        yield gateway
    finally:
        await runner.cleanup()


def _counts(event: dict[str, Any]) -> bool:
    """Say whether it is one of the numbered events, of verify or bench, that something is wrong with."""
    return event["type"] in ("verify", "bench") and event["data"]["n"] % EVERY == 0
