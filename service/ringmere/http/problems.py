"""Errors as RFC 9457 problems: one table from code to status and title.

A problem is ``{"type", "title", "status", "code", "detail", …}``; clients branch on ``code``, which is the
same word in every door, metric and log line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from ringmere.core.errors import (
    EventTooLarge,
    InvalidEvent,
    NewerSnapshot,
    RingmereError,
    SchemaViolation,
    Unavailable,
    WrongLastEventId,
)

PROBLEMS: dict[str, tuple[int, str]] = {
    # the request as HTTP
    "bad_request": (400, "Not an HTTP request this service understands"),
    "broken_body": (400, "The body is incomplete or badly framed"),
    "not_found": (404, "No such route"),
    "method_not_allowed": (405, "The route has no such method"),
    "request_timeout": (408, "The body took too long"),
    "unsupported_media_type": (415, "The body is not JSON in UTF-8"),
    "expectation_failed": (417, "Unknown expectation"),
    "request_header_too_large": (431, "Request line or header too large"),
    # input
    "invalid_input": (400, "Invalid input"),
    "invalid_session_id": (400, "Invalid session id"),
    "malformed_body": (400, "Malformed body"),
    "invalid_batch": (400, "Invalid batch"),
    "invalid_key": (400, "Invalid idempotency key"),
    "invalid_expected_last_event_id": (400, "Invalid Expected-Last-Event-Id"),
    "invalid_max_queued": (400, "Invalid maxQueued"),
    "invalid_upgrade": (400, "Not a WebSocket handshake"),
    "origin_not_allowed": (403, "Not for pages of this origin"),
    "upgrade_required": (426, "WebSocket only"),
    "invalid_hello": (400, "Invalid hello"),
    "invalid_anchor": (400, "Invalid anchor"),
    "invalid_overflow": (400, "Invalid overflow"),
    "invalid_coalesce": (400, "Invalid coalesce"),
    "invalid_format": (400, "Invalid format"),
    "invalid_resync": (400, "Invalid resync"),
    "invalid_snapshot_parameter": (400, "Invalid snapshot parameter"),
    "invalid_atomic": (400, "Invalid atomic"),
    "invalid_degraded": (400, "Invalid Degraded header"),
    "invalid_purge": (400, "Invalid purge"),
    "invalid_wait": (400, "Invalid wait"),
    "invalid_limit": (400, "Invalid limit"),
    "invalid_prefix": (400, "Invalid prefix"),
    "invalid_after": (400, "Invalid after"),
    "invalid_sessions": (400, "Invalid choice of sessions"),
    "invalid_match": (400, "Invalid match"),
    "invalid_snapshot": (422, "Invalid snapshot"),
    "snapshot_too_large": (413, "Too large"),
    "schema_violation": (422, "The data does not fit the type"),
    "invalid_cloudevent": (422, "Invalid CloudEvent"),
    "unknown_type": (422, "The type has no schema"),
    "event_too_large": (413, "Too large"),
    "too_many_sessions": (413, "Too many sessions for one stream"),
    "match_too_broad": (413, "Too many sessions match"),
    "invalid_event": (422, "Invalid event"),
    "invalid_cancel": (422, "Invalid cancel"),
    # state
    "conflict": (409, "Conflict"),
    "wrong_last_event_id": (409, "The session has moved on"),
    "key_reused": (422, "Idempotency key reused for another body"),
    "session_not_found": (404, "No such session"),
    "schema_not_found": (404, "No such schema"),
    "snapshot_not_found": (404, "No such snapshot"),
    "unknown_event_id": (409, "No event that a state can cover"),
    "newer_snapshot": (409, "The stored snapshot covers more"),
    "stream_not_found": (404, "No such stream"),
    "stream_matches": (409, "The stream follows a prefix"),
    # not now
    "unavailable": (503, "Not available"),
    "log_unavailable": (503, "The log is not available"),
    "publish_unconfirmed": (504, "The log did not confirm the event"),
    "publish_overloaded": (503, "Too many publishes in flight"),
    "subscriber_limit_exceeded": (429, "Too many readers"),
    "draining": (503, "The instance is going away"),
    # ours
    "internal_error": (500, "Internal error"),
}


class HttpProblem(Exception):
    """A refusal that only a door can give; ``code`` is a key of :data:`PROBLEMS`."""

    def __init__(self, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.headers = headers or {}


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return ``value`` as JSON that no cache keeps."""
    fields = {"Content-Type": "application/json", "Cache-Control": "no-store", **(headers or {})}
    return web.Response(body=msgspec.json.encode(value), status=status, headers=fields)


def problem(code: str, detail: str = "", *, headers: Mapping[str, str] | None = None, **members: Any) -> web.Response:
    """Return the problem response of ``code``; ``members`` are added to its body."""
    status, title = PROBLEMS[code]
    body = {"type": f"urn:ringmere:problem:{code}", "title": title, "status": status, "code": code}
    if detail:
        body["detail"] = detail
    fields = {"Content-Type": "application/problem+json", **(headers or {})}
    return json_response({**body, **members}, status, fields)


def of_error(error: RingmereError | HttpProblem) -> web.Response:
    """Return the problem response of an expected error."""
    if isinstance(error, HttpProblem):
        return problem(error.code, str(error), headers=error.headers)
    headers = {"Retry-After": retry_after(error)} if isinstance(error, Unavailable) else None
    return problem(error.code, str(error), headers=headers, **_members(error))


def retry_after(error: Unavailable) -> str:
    """Return the value of ``Retry-After``: whole seconds, at least 1."""
    return str(max(1, math.ceil(error.retry_after)))


def _members(error: RingmereError) -> dict[str, Any]:
    """Return what a client needs beyond the code to act on the error."""
    if isinstance(error, WrongLastEventId | NewerSnapshot):
        return {"lastEventId": error.current}
    if isinstance(error, EventTooLarge):
        return {"size": error.size, "limit": error.limit}
    if isinstance(error, InvalidEvent):
        row = {} if error.index is None else {"index": error.index}
        return {**row, "pointer": error.pointer} if isinstance(error, SchemaViolation) else row
    return {}
