"""``/asyncapi.json``: streams and NATS subjects as a machine reads them, AsyncAPI 3.0.

Made of the names that the code itself uses, so a subject, header or frame that changes there changes here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from aiohttp import web

from ringmere.core.event import CONTROL_TYPES
from ringmere.core.trace import TRACEPARENT, TRACESTATE
from ringmere.http.options import Door
from ringmere.http.problems import json_response
from ringmere.http.shapes import ID, SCHEMAS, SESSION, TEXT, an_object
from ringmere.log.outbox import EXPECTED, MSG_ID
from ringmere.log.shards import control_subject, degraded_subject, event_subject, live_subject, publish_subject
from ringmere.log.stamps import LAST_SEQUENCE, SEQUENCE, TIME_STAMP

CURSOR = {"type": ["integer", "string"], "description": "an id; with several sessions and shards a composite cursor"}
_COUNT = {"type": "integer", "minimum": 0}
_FILL = {"queueSize": _COUNT, "maxQueued": _COUNT, "queuedBytes": _COUNT, "maxQueuedBytes": _COUNT}
_STORING = {"since": {**_COUNT, "description": "milliseconds since 1970"}, "lastEventId": CURSOR}


def _words(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


CONTROL_DATA: dict[str, dict[str, Any]] = {
    "state_resync_required": an_object(
        {"reason": _words("ring_evicted", "epoch_reset"), "lastDeliveredId": CURSOR, "earliestAvailableId": ID},
        {"detail": TEXT, "snapshot": TEXT, "sessionId": SESSION},
    ),
    "replay_complete": an_object({"replayedCount": _COUNT}, {"lastReplayedEventId": CURSOR, "sessionId": SESSION}),
    "slow_client_warning": an_object(
        {**_FILL, "lastEventId": CURSOR, "threshold": _words("frames", "bytes", "frames_and_bytes")}
    ),
    "client_evicted": an_object(
        {
            "reason": _words("queue_overflow", "queue_bytes_overflow", "write_timeout", "too_slow"),
            "droppedAfter": CURSOR,
            **_FILL,
        },
        {"eventBytes": _COUNT},
    ),
    "stream_error": an_object({"error": TEXT, "errorKind": TEXT}, {"retryAfterMs": _COUNT}),
    "server_draining": an_object({"retryMs": _COUNT}),
    "log_degraded": an_object(_STORING),
    "log_restored": an_object(_STORING),
    "session_snapshot": an_object({"lastEventId": ID, "state": {}}, {"final": {"const": True}}),
    "stream_opened": an_object(
        {"streamId": TEXT, "eventEpoch": TEXT, "retryMs": _COUNT}, {"startEventId": CURSOR, "cursorIgnored": TEXT}
    ),
}
"""The ``data`` of each control frame (contract 5.2)."""

_META = an_object({"serverTimestamp": {"type": "number", "description": "milliseconds since 1970"}})
_STORED = {name: schema for name, schema in SCHEMAS["Event"]["properties"].items() if name != "key"}
_PAYLOAD = an_object({name: _STORED[name] for name in ("type", "data")}, _STORED)
_ENVELOPE = an_object(
    {"v": {"const": 1}, "type": _STORED["type"], "data": {}, "_meta": _META},
    {**_STORED, "id": ID, "sessionId": SESSION, "cursor": CURSOR, "_meta": _META},
)


def _name(header: bytes) -> str:
    return header.decode().rstrip(": ")


PUBLISHER_HEADERS = (MSG_ID, EXPECTED, TRACEPARENT, TRACESTATE)
"""What a publisher on NATS may set; none is needed (contract 1.9)."""
SERVER_HEADERS = tuple(_name(header) for header in (SEQUENCE, TIME_STAMP, LAST_SEQUENCE))
"""What the server adds to what it republishes."""


def _message(title: str, payload: dict[str, Any], headers: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"name": title, "contentType": "application/json", "payload": payload, **more}
    if headers:
        message["headers"] = {"type": "object", "properties": dict.fromkeys(headers, TEXT)}
    return message


def _control(type: str) -> dict[str, Any]:
    body = an_object({"v": {"const": 1}, "type": {"const": type}, "data": CONTROL_DATA.get(type, {}), "_meta": _META})
    return _message(type, body, summary="a control frame: it has no id and moves no cursor")


MESSAGES: dict[str, dict[str, Any]] = {
    "event": _message("event", _ENVELOPE, summary="an event of a session; the SSE fields id and event repeat its own"),
    **{type: _control(type) for type in sorted(CONTROL_TYPES)},
    "stored": _message("stored", _PAYLOAD, PUBLISHER_HEADERS),
    "republished": _message("republished", _PAYLOAD, (*PUBLISHER_HEADERS, *SERVER_HEADERS)),
    "unstored": _message("unstored", _PAYLOAD),
    "question": _message("question", {}, summary="what instances ask each other; its form may change"),
}
_SOCKET_FRAMES = ("event", *sorted(CONTROL_TYPES))
_FRAMES = tuple(name for name in _SOCKET_FRAMES if name != "stream_opened")


def _of_any_shard(subject: Callable[[int, str], str]) -> str:
    return subject(0, "{session}").replace(".0.", ".{shard}.")


CHANNELS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # name: server, address, messages
    "session": ("gateway", "/session/{session}/events", _FRAMES),
    "sessions": ("gateway", "/events", _FRAMES),
    "socket": ("gateway", "/session/{session}/ws", _SOCKET_FRAMES),
    "sockets": ("gateway", "/ws", _SOCKET_FRAMES),
    "publish": ("nats", publish_subject("{session}"), ("stored",)),
    "log": ("nats", _of_any_shard(event_subject), ("stored",)),
    "live": ("nats", _of_any_shard(live_subject), ("republished",)),
    "degraded": ("nats", _of_any_shard(degraded_subject), ("unstored",)),
    "stream": ("nats", control_subject("{stream}"), ("question",)),
}
OPERATIONS: dict[str, tuple[str, str, str]] = {
    # name: what the gateway does there, the channel, in words
    "streamSession": ("send", "session", "Give a reader a session's events as server-sent events, and control frames"),
    "streamSessions": ("send", "sessions", "The same for many sessions on one connection"),
    "openSocket": ("send", "socket", "Give a reader a session's events as WebSocket text frames"),
    "openSockets": ("send", "sockets", "The same for many sessions"),
    "storeEvent": ("send", "log", "Append an event; JetStream stores it and republishes it"),
    "takeStored": ("receive", "live", "Hear of stored events, at most once; holes are read from the log"),
    "sendUnstored": ("send", "degraded", "Send an event to live readers while nothing can be stored"),
    "takeUnstored": ("receive", "degraded", "Hear of such events from any instance"),
    "askInstance": ("send", "stream", "Ask the instance that has a stream of many sessions to change it"),
    "answerInstance": ("receive", "stream", "Answer for the streams of this instance"),
    "takePublished": ("receive", "publish", "What any NATS client publishes; the server maps it to the log's subject"),
}
_PARAMETERS = {
    "session": "session id: " + SESSION["pattern"],
    "shard": "number of the stream that the session lives in",
    "stream": "id of a stream of many sessions, its X-Stream-Id",
}


async def asyncapi(door: Door, request: web.BaseRequest) -> web.Response:
    """Serve the description."""
    return json_response(document(door.options.version))


@cache
def document(version: str) -> dict[str, Any]:
    """Return the whole AsyncAPI document."""
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Ringmere", "version": version},
        "defaultContentType": "application/json",
        "servers": {
            "gateway": {"host": "127.0.0.1:8080", "protocol": "http"},
            "nats": {"host": "127.0.0.1:4222", "protocol": "nats"},
        },
        "channels": {name: _channel(*row) for name, row in CHANNELS.items()},
        "operations": {name: _operation(*row) for name, row in OPERATIONS.items()},
        "components": {"messages": MESSAGES},
    }


def _channel(server: str, address: str, messages: tuple[str, ...]) -> dict[str, Any]:
    channel: dict[str, Any] = {
        "address": address,
        "servers": [{"$ref": f"#/servers/{server}"}],
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
    }
    used = {name: {"description": text} for name, text in _PARAMETERS.items() if f"{{{name}}}" in address}
    if used:
        channel["parameters"] = used
    return channel


def _operation(action: str, channel: str, summary: str) -> dict[str, Any]:
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "summary": summary}
