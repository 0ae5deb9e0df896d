"""All routes in one table, and the way of a request through it.

The table is matched against the path as it came in, before any decoding: ``%2F`` or ``%2e%2e`` stays inside
its segment, and there the allow-list of ids refuses it, the same on all routes (contract 1.7). Decoding an id
is needed all the same: ``encodeURIComponent`` turns the ``:`` of a good one into ``%3A``. The name of an event type
may hold anything, also a decoded ``/``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from aiohttp import web

from ringmere.core.errors import RingmereError
from ringmere.core.session import check_session_id
from ringmere.http import (
    asyncapi,
    control,
    cors,
    events,
    health,
    openapi,
    page,
    publish,
    schemas,
    sessions,
    snapshot,
    sse,
    websocket,
)
from ringmere.http.options import Door, HttpOptions
from ringmere.http.problems import HttpProblem, of_error, problem
from ringmere.hub.hub import Hub

Handler = Callable[..., Awaitable[web.StreamResponse]]
"""Called with the door, the request, and the ids of the path in their order."""

ID = "{id}"
VARIABLES: dict[str, Callable[[str], str]] = {ID: check_session_id, "{task}": check_session_id, "{type}": str}
"""Segments of a path that stand for a value, and what makes the handler's argument of it."""

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/session/{id}/events", sse.open_stream),
    ("HEAD", "/session/{id}/events", sse.head_stream),
    ("POST", "/session/{id}/events", publish.publish),
    ("GET", "/events", events.open_events),
    ("HEAD", "/events", events.head_events),
    ("GET", "/session/{id}/ws", websocket.open_socket),
    ("GET", "/ws", websocket.open_sockets),
    ("POST", "/streams/{id}/sessions", events.change_stream),
    ("POST", "/session/{id}/tasks/{task}/cancel", control.cancel_task),
    ("GET", "/session/{id}/tasks/{task}/cancel", control.show_cancel),
    ("PUT", "/session/{id}/snapshot", snapshot.put_snapshot),
    ("GET", "/session/{id}/snapshot", snapshot.get_snapshot),
    ("DELETE", "/session/{id}/snapshot", snapshot.drop_snapshot),
    ("POST", "/session", sessions.create_session),
    ("GET", "/session/{id}", sessions.show_session),
    ("DELETE", "/session/{id}", sessions.close_session),
    ("GET", "/sessions", sessions.list_sessions),
    ("GET", "/readers", sessions.list_readers),
    ("GET", "/schemas", schemas.list_schemas),
    ("GET", "/schemas/{type}", schemas.show_schema),
    ("GET", "/livez", health.livez),
    ("GET", "/readyz", health.readyz),
    ("GET", "/healthz", health.healthz),
    ("GET", "/metrics", health.metrics),
    ("GET", "/capabilities", health.capabilities),
    ("GET", "/openapi.json", openapi.openapi),
    ("GET", "/asyncapi.json", asyncapi.asyncapi),
    *(("GET", path, page.page) for path in page.FILES),
)
"""``HEAD`` goes to the handler of ``GET`` where it has none of its own; ``OPTIONS`` is answered for all."""


class App:
    """The handler of every request; errors leave it as problems only."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self._resources = _resources()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        options = self.door.options
        try:
            response = await self._answer(request)
        except (RingmereError, HttpProblem) as error:
            response = of_error(error)
        except web.RequestPayloadError as error:
            response = problem("broken_body", str(error))
            response.force_close()
            # Nothing of it is left to wait for; aiohttp would try, and fail.
            request.content.feed_eof()
        except Exception as error:
            if not _client_left(request, error):
                options.report(error)
            response = problem("internal_error")
        response.headers.setdefault("Server", "ringmere")
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        cors.decorate(request, response, options.cors_origins)
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        methods, values = self._match(request.rel_url.raw_path)
        if request.method == "OPTIONS":
            return cors.options(request, _allow(methods), self.door.options.cors_origins)
        handler = methods.get(request.method)
        if handler is None:
            allow = _allow(methods)
            raise HttpProblem("method_not_allowed", f"this route has {allow}", {"Allow": allow})
        return await handler(self.door, request, *(take(unquote(segment)) for take, segment in values))

    def _match(self, path: str) -> tuple[dict[str, Handler], list[tuple[Callable[[str], str], str]]]:
        """Return the handlers of a path by method, and its raw values with what takes them."""
        root, *segments = path.split("/")
        known = [] if root or not segments else self._resources.get((segments[0], len(segments)), [])
        for template, methods in known:
            pairs = list(zip(template, segments, strict=True))
            if all(part in VARIABLES or part == segment for part, segment in pairs):
                return methods, [(VARIABLES[part], segment) for part, segment in pairs if part in VARIABLES]
        raise HttpProblem("not_found", "there is nothing at this path")


def build_app(hub: Hub, options: HttpOptions | None = None) -> App:
    """Return the handler of an instance's doors."""
    return App(Door(hub, options or HttpOptions()))


_Resources = dict[tuple[str, int], list[tuple[tuple[str, ...], dict[str, Handler]]]]


def _resources() -> _Resources:
    """Index the table by first segment and number of segments."""
    paths: dict[tuple[str, ...], dict[str, Handler]] = {}
    for method, path, handler in ROUTES:
        paths.setdefault(tuple(path.split("/")[1:]), {})[method] = handler
    index: _Resources = {}
    for template, methods in paths.items():
        if "GET" in methods:
            methods.setdefault("HEAD", methods["GET"])
        index.setdefault((template[0], len(template)), []).append((template, methods))
    return index


def _allow(methods: dict[str, Handler]) -> str:
    return ", ".join([*sorted(methods), "OPTIONS"])


def _client_left(request: web.BaseRequest, error: Exception) -> bool:
    """Say whether an error is only a client that went away in the middle of its request."""
    gone = request.transport is None or request.transport.is_closing()
    return gone and isinstance(error, ConnectionError)
