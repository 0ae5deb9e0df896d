"""Which problems each route may answer with, by their codes: the part of ``/openapi.json`` that is no success.

``internal_error`` is not among them: it is never meant. What concerns no route (404, 405) stands at none.
"""

from __future__ import annotations

from typing import Any

from ringmere.http.problems import PROBLEMS
from ringmere.http.shapes import ref

_HTTP = ("bad_request", "request_header_too_large")
_BODY = (
    "broken_body",
    "malformed_body",
    "request_timeout",
    "event_too_large",
    "unsupported_media_type",
    "expectation_failed",
    "publish_overloaded",
)
_LOG = ("log_unavailable", "unavailable")
_ID = ("invalid_session_id",)
_WISHES = ("invalid_max_queued", "invalid_anchor", "invalid_overflow", "invalid_coalesce", "invalid_format")
_ON_LOSS = ("invalid_resync", "invalid_snapshot_parameter")
_OPEN = ("session_not_found", "subscriber_limit_exceeded", "draining", *_LOG)
_STORE = ("publish_overloaded", "publish_unconfirmed", *_LOG)
_CHOICE = ("invalid_sessions", "invalid_match", "too_many_sessions")
_HANDSHAKE = ("invalid_hello", "invalid_upgrade", "origin_not_allowed", "upgrade_required")
_LIST = ("invalid_limit", "invalid_prefix", "invalid_after")

REFUSALS: dict[tuple[str, str], tuple[str, ...]] = {
    ("GET", "/session/{id}/events"): (*_ID, *_WISHES, *_ON_LOSS, *_OPEN),
    ("HEAD", "/session/{id}/events"): (*_ID, *_WISHES, *_ON_LOSS),
    ("POST", "/session/{id}/events"): (
        *_ID, *_BODY, *_STORE, "invalid_batch", "invalid_key", "invalid_expected_last_event_id", "invalid_atomic",
        "invalid_degraded", "invalid_event", "invalid_cloudevent", "schema_violation", "unknown_type", "key_reused",
        "wrong_last_event_id",
    ),
    ("GET", "/events"): (*_ID, *_WISHES, *_CHOICE, "match_too_broad", *_OPEN),
    ("HEAD", "/events"): (*_ID, *_WISHES, *_CHOICE, *_LOG),
    ("GET", "/session/{id}/ws"): (*_ID, *_WISHES, *_ON_LOSS, *_OPEN, *_HANDSHAKE),
    ("GET", "/ws"): (*_ID, *_WISHES, *_CHOICE, "match_too_broad", *_OPEN, *_HANDSHAKE),
    ("POST", "/streams/{id}/sessions"): (
        *_ID, *_BODY, *_OPEN, "too_many_sessions", "stream_not_found", "stream_matches",
    ),
    ("POST", "/session/{id}/tasks/{task}/cancel"): (*_ID, *_BODY, *_STORE, "invalid_cancel"),
    ("GET", "/session/{id}/tasks/{task}/cancel"): (
        *_ID, *_LOG, "invalid_wait", "subscriber_limit_exceeded", "draining",
    ),
    ("PUT", "/session/{id}/snapshot"): (
        *_ID, *_BODY, *_STORE, "invalid_snapshot", "snapshot_too_large", "unknown_event_id", "newer_snapshot",
    ),
    ("GET", "/session/{id}/snapshot"): (*_ID, *_LOG, "snapshot_not_found"),
    ("DELETE", "/session/{id}/snapshot"): (*_ID, *_STORE),
    ("POST", "/session"): (),
    ("GET", "/session/{id}"): (*_ID, *_LOG, "session_not_found"),
    ("DELETE", "/session/{id}"): (*_ID, *_STORE, "invalid_purge"),
    ("GET", "/sessions"): (*_LIST, *_LOG),
    ("GET", "/readers"): ("invalid_limit", "unavailable"),
    ("GET", "/schemas"): (),
    ("GET", "/schemas/{type}"): ("schema_not_found",),
    ("GET", "/livez"): (),
    ("GET", "/readyz"): (),
    ("GET", "/healthz"): (),
    ("GET", "/metrics"): ("not_found", "unavailable"),
    ("GET", "/capabilities"): (),
    ("GET", "/openapi.json"): (),
    ("GET", "/asyncapi.json"): (),
}  # fmt: skip


def refusals(method: str, path: str) -> dict[str, Any]:
    """Return the responses of a route that are problems, by status; each says which codes it may have."""
    codes: dict[int, list[str]] = {}
    for code in dict.fromkeys((*REFUSALS[method, path], *_HTTP)):
        codes.setdefault(PROBLEMS[code][0], []).append(code)
    return {str(status): _response(method, codes[status]) for status in sorted(codes)}


def _response(method: str, codes: list[str]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": "; ".join(PROBLEMS[code][1] for code in codes)}
    if method == "HEAD":
        return described
    narrowed = {"properties": {"code": {"enum": sorted(codes)}}}
    return {**described, "content": {"application/problem+json": {"schema": {"allOf": [ref("Problem"), narrowed]}}}}
