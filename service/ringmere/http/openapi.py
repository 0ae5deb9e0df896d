"""``/openapi.json``: the routes as a machine reads them, OpenAPI 3.1.

Written as small tables; a test holds them to the table of routes, and the codes to the table of problems.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from aiohttp import web

from ringmere.core.backlog import Overflow
from ringmere.core.cloudevents import BATCH, STRUCTURED
from ringmere.core.limits import (
    MAX_BATCH,
    MAX_CANCEL_WAIT,
    MAX_MAX_QUEUED,
    MIN_MAX_QUEUED,
)
from ringmere.http.options import Door
from ringmere.http.parameters import DEFAULT_LAGGARDS, DEFAULT_LIST, MAX_LIST
from ringmere.http.problems import json_response
from ringmere.http.refusals import refusals
from ringmere.http.shapes import FLAG, ID, SCHEMAS, SESSION, TEXT, an_array, ref
from ringmere.hub.options import Resync


def _parameter(place: str, name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"in": place, "name": name, "schema": schema, "description": description, "required": place == "path"}


def _limit(default: int, description: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 1, "maximum": MAX_LIST, "default": default}
    return _parameter("query", "limit", schema, description)


_WAIT = {"type": "integer", "minimum": 0, "maximum": MAX_CANCEL_WAIT, "default": 0}
_QUEUE = {"type": "integer", "minimum": MIN_MAX_QUEUED, "maximum": MAX_MAX_QUEUED}
_OVERFLOW = {"type": "string", "enum": [choice.value for choice in Overflow], "default": Overflow.EVICT.value}
_RESYNC = {"type": "string", "enum": [choice.value for choice in Resync], "default": Resync.REPLAY.value}
_EPOCH_PARAMETER = _parameter(
    "header", "X-Event-Epoch", TEXT, "the token that came with the cursor; alias X-Qwen-Event-Epoch"
)
_STREAM_PARAMETERS = [
    _parameter("header", "Last-Event-ID", TEXT, "the last event id the client has processed"),
    _parameter("query", "last_event_id", TEXT, "the same where no header can be set; alias lastEventId"),
    _parameter("query", "from", TEXT, "start replays the ring, live does not; or a cursor"),
    _parameter("query", "anchor", FLAG, "begin with a block that holds only the id of the starting point"),
    _parameter("query", "maxQueued", _QUEUE, "backlog in events before a slow reader is evicted"),
    _parameter("query", "overflow", _OVERFLOW, "what a full backlog leads to: an eviction, or reading on from the log"),
    _parameter("query", "coalesce", FLAG, "make one of adjacent events in the backlog, where the operator allows it"),
    _parameter("query", "format", {"type": "string", "enum": ["cloudevents"]}, "give each event out as a CloudEvent"),
    _EPOCH_PARAMETER,
]
_SNAPSHOT_PARAMETERS = [
    _parameter("query", "resync", _RESYNC, "what follows a verdict: the rest of the ring, a stored state, or live"),
    _parameter("query", "snapshot", FLAG, "begin with the stored state when there is no cursor"),
]
_MANY_PARAMETERS = [
    _parameter("query", "session", TEXT, "a session to follow; repeated, or several joined by commas"),
    _parameter("query", "match", TEXT, "instead: the beginning of the ids of all sessions to follow, with a * behind"),
    *_STREAM_PARAMETERS,
]
_HELLO = _parameter("query", "hello", FLAG, 'wait for a first message: {"lastEventId", "eventEpoch"}')
_PUBLISH_PARAMETERS = [
    _parameter("header", "Idempotency-Key", TEXT, "makes a retry safe within the duplicate window"),
    _parameter("header", "Expected-Last-Event-Id", ID, "store only if this is the session's last id"),
    _parameter("query", "atomic", FLAG, "store the whole batch or nothing"),
    _parameter(
        "header", "Degraded", {"type": "string", "enum": ["allow"]}, "while nothing can be stored, live readers will do"
    ),
]
_LIST_PARAMETERS = [
    _parameter("query", "prefix", TEXT, "only ids that begin with this"),
    _parameter("query", "after", TEXT, "only ids greater than this: the next of the page before"),
    _limit(DEFAULT_LIST, "page size"),
]

_PATH_PARAMETERS = {
    "id": _parameter("path", "id", SESSION, "session id"),
    "task": _parameter("path", "task", SESSION, "task id"),
    "type": _parameter("path", "type", {"type": "string", "minLength": 1}, "event type"),
}

OPERATIONS: dict[tuple[str, str], dict[str, Any]] = {
    # (method, path): summary, parameters, body, {status: (schema or media type, or None)}
    ("GET", "/session/{id}/events"): {
        "summary": "Follow a session as server-sent events, resuming behind a cursor",
        "parameters": [*_STREAM_PARAMETERS, *_SNAPSHOT_PARAMETERS],
        "answers": {200: "text/event-stream", 204: None},
    },
    ("HEAD", "/session/{id}/events"): {
        "summary": "The headers of a stream, without taking a reader's slot",
        "parameters": [*_STREAM_PARAMETERS, *_SNAPSHOT_PARAMETERS],
        "answers": {200: None},
    },
    ("POST", "/session/{id}/events"): {
        "summary": "Append an event or a batch",
        "parameters": _PUBLISH_PARAMETERS,
        "body": {"anyOf": [ref("Event"), an_array(ref("Event"), minItems=1, maxItems=MAX_BATCH)]},
        "other_bodies": {
            STRUCTURED: ref("CloudEvent"),
            BATCH: an_array(ref("CloudEvent"), minItems=1, maxItems=MAX_BATCH),
        },
        "answers": {200: "Published", 201: "Published", 202: "Degraded", 207: "PublishedBatch"},
    },
    ("GET", "/events"): {
        "summary": "Follow many sessions on one connection, resuming behind one cursor",
        "parameters": _MANY_PARAMETERS,
        "answers": {200: "text/event-stream", 204: None},
    },
    ("HEAD", "/events"): {
        "summary": "The headers of such a stream, without taking a reader's slot",
        "parameters": _MANY_PARAMETERS,
        "answers": {200: None},
    },
    ("GET", "/session/{id}/ws"): {
        "summary": "Follow a session over WebSocket, one JSON envelope a text frame",
        "parameters": [*_STREAM_PARAMETERS, *_SNAPSHOT_PARAMETERS, _HELLO],
        "answers": {101: None},
    },
    ("GET", "/ws"): {
        "summary": "Follow many sessions over WebSocket",
        "parameters": [*_MANY_PARAMETERS, _HELLO],
        "answers": {101: None},
    },
    ("POST", "/streams/{id}/sessions"): {
        "summary": "Add sessions to an open stream of many, whichever instance has it, and drop others",
        "body": ref("Change"),
        "answers": {200: "Changed"},
    },
    ("POST", "/session/{id}/tasks/{task}/cancel"): {
        "summary": "Ask for the end of a task",
        "body": ref("Cancel"),
        "optional_body": True,
        "answers": {202: "Cancelled"},
    },
    ("GET", "/session/{id}/tasks/{task}/cancel"): {
        "summary": "Whether a task is to end, at once or as soon as it is",
        "parameters": [_parameter("query", "wait", _WAIT, "seconds to wait for it; 0 answers at once")],
        "answers": {200: "Cancelled"},
    },
    ("PUT", "/session/{id}/snapshot"): {
        "summary": "Store a session's state up to an event",
        "parameters": [_EPOCH_PARAMETER],
        "body": ref("Snapshot"),
        "answers": {200: "StoredSnapshot", 201: "StoredSnapshot"},
    },
    ("GET", "/session/{id}/snapshot"): {
        "summary": "The stored state; resume behind its lastEventId",
        "parameters": [_parameter("header", "If-None-Match", TEXT, "the ETag of the state that is known already")],
        "answers": {200: "ReadSnapshot", 304: None},
    },
    ("DELETE", "/session/{id}/snapshot"): {"summary": "Remove the stored state", "answers": {204: None}},
    ("POST", "/session"): {"summary": "Take a fresh session id", "answers": {201: "Fresh"}},
    ("GET", "/session/{id}"): {
        "summary": "One session and its readers on this instance",
        "answers": {200: "ShownSession"},
    },
    ("DELETE", "/session/{id}"): {
        "summary": "Close a session with a terminal event, or purge it",
        "parameters": [_parameter("query", "purge", FLAG, "remove the session from the log instead")],
        "answers": {204: None},
    },
    ("GET", "/sessions"): {
        "summary": "Sessions that have events stored",
        "parameters": _LIST_PARAMETERS,
        "answers": {200: "SessionList"},
    },
    ("GET", "/readers"): {
        "summary": "The readers that are furthest behind, of all sessions",
        "parameters": [_limit(DEFAULT_LAGGARDS, "at most so many")],
        "answers": {200: "ReaderList"},
    },
    ("GET", "/schemas"): {"summary": "Event types whose data is checked", "answers": {200: "SchemaList"}},
    ("GET", "/schemas/{type}"): {"summary": "The schema of one type", "answers": {200: "application/schema+json"}},
    ("GET", "/livez"): {"summary": "The process answers", "answers": {200: "State"}},
    ("GET", "/readyz"): {"summary": "New work may be sent here", "answers": {200: "State", 503: "State"}},
    ("GET", "/healthz"): {"summary": "The instance's state, always 200", "answers": {200: "State"}},
    ("GET", "/metrics"): {"summary": "Prometheus metrics", "answers": {200: "text/plain"}},
    ("GET", "/capabilities"): {"summary": "What this service can do, by name", "answers": {200: "Capabilities"}},
    ("GET", "/openapi.json"): {"summary": "This description", "answers": {200: "application/json"}},
    ("GET", "/asyncapi.json"): {"summary": "Streams and subjects as AsyncAPI", "answers": {200: "application/json"}},
}  # fmt: skip


async def openapi(door: Door, request: web.BaseRequest) -> web.Response:
    """Serve the description."""
    return json_response(document(door.options.version))


@cache
def document(version: str) -> dict[str, Any]:
    """Return the whole OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), row in OPERATIONS.items():
        operation = _operation(path, **row)
        operation["responses"] = {**refusals(method, path), **operation["responses"]}
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ringmere", "version": version},
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }


def _operation(
    path: str,
    *,
    summary: str,
    answers: dict[int, str | None],
    parameters: list[dict[str, Any]] | None = None,
    body: dict[str, Any] | None = None,
    optional_body: bool = False,
    other_bodies: dict[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    own = [_PATH_PARAMETERS[name] for name in re.findall(r"\{(\w+)\}", path)]
    operation: dict[str, Any] = {
        "summary": summary,
        "parameters": own + (parameters or []),
        "responses": {str(status): _answer(status, content) for status, content in answers.items()},
    }
    if body is not None:
        bodies = {"application/json": body, **(other_bodies or {})}
        content = {media_type: {"schema": schema} for media_type, schema in bodies.items()}
        operation["requestBody"] = {"required": not optional_body, "content": content}
    return operation


def _answer(status: int, content: str | None) -> dict[str, Any]:
    described = {
        "description": {
            101: "The stream, as WebSocket frames",
            201: "Created",
            202: "Accepted",
            204: "Nothing more",
            207: "Some rows failed",
        }.get(status, "OK")
    }
    if content is None:
        return described
    if "/" in content:
        return {**described, "content": {content: {"schema": {}}}}
    if status == 503:
        described["description"] = "Not now"
    both = content in ("Published", "Degraded")
    schema = {"anyOf": [ref(content), ref("PublishedBatch")]} if both else ref(content)
    return {**described, "content": {"application/json": {"schema": schema}}}
