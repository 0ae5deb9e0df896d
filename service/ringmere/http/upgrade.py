"""The opening handshake of a WebSocket: what is checked before anything else, and its answer (contract 7.4)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http import HttpVersion11

from ringmere.http.cors import allowed_origin
from ringmere.http.options import Door
from ringmere.http.problems import HttpProblem

VERSION = "13"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES = 16
_DEFAULT_PORTS = {"http": 80, "https": 443}


def accept(door: Door, request: web.BaseRequest) -> dict[str, str]:
    """Return the headers that accept a handshake; raises for what is none, and for a page of a strange origin."""
    if (
        request.method != "GET"
        or request.version < HttpVersion11
        or "websocket" not in _tokens(request, "Upgrade")
        or "upgrade" not in _tokens(request, "Connection")
    ):
        raise HttpProblem("upgrade_required", "this route speaks WebSocket only", {"Upgrade": "websocket"})
    if request.headers.getall("Sec-WebSocket-Version", []) != [VERSION]:
        needed = {"Upgrade": "websocket", "Sec-WebSocket-Version": VERSION}
        raise HttpProblem("upgrade_required", f"WebSocket is spoken in version {VERSION} only", needed)
    keys = request.headers.getall("Sec-WebSocket-Key", [])
    if len(keys) != 1 or not _is_key(keys[0]):
        raise HttpProblem("invalid_upgrade", f"Sec-WebSocket-Key is no base64 of {_KEY_BYTES} bytes")
    if not _welcome(request, door.options.cors_origins):
        raise HttpProblem("origin_not_allowed", "pages of this origin may not open a WebSocket here")
    digest = hashlib.sha1(keys[0].encode() + _GUID, usedforsecurity=False).digest()
    return {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": base64.b64encode(digest).decode(),
    }


def _tokens(request: web.BaseRequest, name: str) -> list[str]:
    return [token.strip().lower() for value in request.headers.getall(name, []) for token in value.split(",")]


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def _welcome(request: web.BaseRequest, origins: tuple[str, ...]) -> bool:
    """Say whether the origin may read here.

    A browser lets any page open a WebSocket anywhere and asks nobody first; it only says whose page it is. What is no
    browser says nothing, or whatever it likes.
    """
    given = request.headers.getall("Origin", [])
    if not given:
        return True
    if len(given) > 1:
        return False
    return allowed_origin(request, origins) is not None or _same_origin(given[0], request.headers.get("Host", ""))


def _same_origin(origin: str, host: str) -> bool:
    """Compare host and port. The scheme is the page's: a proxy that ends TLS leaves no trace of it in ``Host``."""
    try:
        page = urlsplit(origin)
        port = page.port or _DEFAULT_PORTS.get(page.scheme)
        here = urlsplit(f"//{host}")
        return (
            page.scheme in _DEFAULT_PORTS
            and page.hostname is not None
            and page.hostname == here.hostname
            and port == (here.port or _DEFAULT_PORTS[page.scheme])
        )
    except ValueError:
        return False
