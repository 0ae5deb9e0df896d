"""The page: static files served at ``/``, shown by the browser under a policy that lets no inline code run."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from aiohttp import web

from ringmere.http.options import Door

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/page/feed.js": ("feed.js", "text/javascript; charset=utf-8"),
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""Path to file and content type."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def page(door: Door, request: web.BaseRequest) -> web.Response:
    """Serve one file of the page."""
    name, content_type = FILES[request.rel_url.raw_path]
    return web.Response(
        body=_content(name),
        headers={
            "Content-Type": content_type,
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-cache",
            "Referrer-Policy": "no-referrer",
        },
    )


@cache
def _content(name: str) -> bytes:
    return files(__name__).joinpath(name).read_bytes()
