"""Cross-origin access: off unless origins are named, and then for these only.

There are no cookies here, so credentials are never allowed; a token travels in ``Authorization``.
"""

from __future__ import annotations

from aiohttp import web

ANY = "*"
MAX_AGE = 600
"""Seconds a browser may remember a preflight."""
REQUEST_HEADERS = (
    "Authorization, Content-Type, Last-Event-ID, X-Event-Epoch, X-Qwen-Event-Epoch, "
    "If-None-Match, Idempotency-Key, Expected-Last-Event-Id, Degraded"
)
RESPONSE_HEADERS = (
    "X-Stream-Id, X-Start-Event-Id, X-Event-Epoch, X-Qwen-Event-Epoch, X-Cursor-Ignored, Retry-After, Location, ETag"
)


def allowed_origin(request: web.BaseRequest, origins: tuple[str, ...]) -> str | None:
    """Return the request's origin when it is on the list (or the list is ``*``), else None."""
    origin = request.headers.get("Origin")
    if origin is None:
        return None
    return origin if origin in origins or ANY in origins else None


def decorate(request: web.BaseRequest, response: web.StreamResponse, origins: tuple[str, ...]) -> None:
    """Let an allowed origin's script read the response. Caches must tell origins apart in any case."""
    if not origins:
        return
    response.headers.add("Vary", "Origin")
    origin = allowed_origin(request, origins)
    if origin is not None:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = RESPONSE_HEADERS


def options(request: web.BaseRequest, methods: str, origins: tuple[str, ...]) -> web.Response:
    """Answer ``OPTIONS``; to the preflight of an allowed origin with what it may send."""
    response = web.Response(status=204, headers={"Allow": methods})
    preflight = "Access-Control-Request-Method" in request.headers
    if preflight and allowed_origin(request, origins) is not None:
        response.headers["Access-Control-Allow-Methods"] = methods
        response.headers["Access-Control-Allow-Headers"] = REQUEST_HEADERS
        response.headers["Access-Control-Max-Age"] = str(MAX_AGE)
    return response
