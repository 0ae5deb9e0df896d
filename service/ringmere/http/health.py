"""What orchestrators, monitors and clients ask about the instance itself (contract 10.5)."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from ringmere.http.options import Door
from ringmere.http.problems import HttpProblem, json_response

FEATURES = (
    "session_create",
    "session_list",
    "session_close",
    "session_events",
    "task_cancel",
    "slow_client_warning",
    "typed_event_schema",
    "event_epoch",
    "replay_complete",
    "idempotency_key",
    "expected_last_event_id",
    "atomic_batch",
    "degraded_publish",
    "overflow_catchup",
    "coalesce",
    "session_snapshot",
    "resync_modes",
    "cloudevents",
    "many_sessions",
    "websocket",
)
"""Capabilities by name; a client asks for the name, never for a version."""


async def livez(door: Door, request: web.BaseRequest) -> web.Response:
    """Say that the process answers; restarting it would not help whatever else is wrong."""
    return json_response({"status": "ok"})


async def readyz(door: Door, request: web.BaseRequest) -> web.Response:
    """Say whether new work should be sent here: 200, or 503 while the log is away or the instance drains.

    A log that is there and does not store is no reason: readers are served, and no other instance could store either.
    """
    return json_response(_state(door), 200 if door.hub.ready else 503)


async def healthz(door: Door, request: web.BaseRequest) -> web.Response:
    """Describe the instance, always with 200; ``logDegraded`` names the shards that do not store (contract 8.2).

    ``tasks`` is the number of tasks on the event loop: it follows the readers that catch up and the requests that wait
    for a cancel, and nothing else.
    """
    state = _state(door)
    degraded = [shard for shard, refused in door.hub.breakers.open.items() if refused]
    if degraded and state["status"] == "ok":
        state["status"] = "degraded"
    tasks = len(asyncio.all_tasks())
    return json_response(
        {
            **state,
            "logDegraded": degraded,
            "sessionsLive": len(door.hub.channels),
            "cancelWaiters": door.hub.cancels.waiters,
            "tasks": tasks,
            "version": door.options.version,
        }
    )


async def capabilities(door: Door, request: web.BaseRequest) -> web.Response:
    """List what this service can do."""
    return json_response({"v": 1, "features": FEATURES})


async def metrics(door: Door, request: web.BaseRequest) -> web.Response:
    """Give the metrics as rendered by telemetry, in the format that ``Accept`` asks for."""
    if door.options.metrics is None:
        raise HttpProblem("not_found", "this instance has no metrics")
    body, content_type = await door.options.metrics(",".join(request.headers.getall("Accept", [])))
    return web.Response(body=body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


def _state(door: Door) -> dict[str, Any]:
    """Describe this process; one of several workers speaks for itself and gives its number."""
    hub = door.hub
    status = "draining" if hub.draining else "ok" if hub.ready else "unavailable"
    worker = {} if door.options.worker is None else {"worker": door.options.worker}
    return {"status": status, "logConnected": hub.log.connected, "draining": hub.draining, **worker}
