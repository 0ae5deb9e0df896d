"""Reading a request's JSON body: what it may be, how large, how slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http import HttpVersion11

from ringmere.core.errors import EventTooLarge, PublishOverloaded
from ringmere.http.options import BODY_BYTES_TOTAL, BODY_TIMEOUT, Door
from ringmere.http.problems import HttpProblem

_COMMON_TYPES = frozenset({"application/json", "application/json; charset=utf-8"})
_CHARSETS = frozenset({"utf-8", "utf8"})


@asynccontextmanager
async def json_body(door: Door, request: web.BaseRequest) -> AsyncIterator[bytes]:
    """Give the bytes of a JSON body; raises as :func:`whole_body`, and a 415 problem."""
    check_media_type(request)
    async with whole_body(door, request) as body:
        yield body


@asynccontextmanager
async def whole_body(door: Door, request: web.BaseRequest) -> AsyncIterator[bytes]:
    """Give the bytes of a body, whatever it is; while the block runs they count against the instance's bound.

    Raises :class:`~ringmere.core.errors.EventTooLarge`, :class:`~ringmere.core.errors.PublishOverloaded`,
    or a 408 or 417 problem.
    """
    limit = door.hub.limits.request_bytes
    declared = request.content_length
    if declared is not None and declared > limit:
        raise EventTooLarge(declared, limit)
    _continue(request)
    chunks: list[bytes] = []
    held = 0
    try:
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                async for chunk in request.content.iter_any():
                    held += len(chunk)
                    door.body_bytes += len(chunk)
                    if held > limit:
                        raise EventTooLarge(held, limit)
                    if door.body_bytes > BODY_BYTES_TOTAL:
                        raise PublishOverloaded("the instance holds as many request bodies as it may")
                    chunks.append(chunk)
        except TimeoutError as error:
            raise HttpProblem("request_timeout", f"no complete body after {BODY_TIMEOUT:g} s") from error
        yield chunks[0] if len(chunks) == 1 else b"".join(chunks)
    finally:
        door.body_bytes -= held


def check_media_type(request: web.BaseRequest) -> None:
    """Raise a 415 problem unless the body is declared as plain JSON in UTF-8.

    A missing type is refused too: browsers send such bodies across origins without asking first.
    """
    check_encoding(request)
    declared = request.headers.get("Content-Type", "")
    if declared in _COMMON_TYPES:
        return
    if request.content_type != "application/json":
        raise HttpProblem("unsupported_media_type", "the content type must be application/json")
    check_charset(request)


def check_encoding(request: web.BaseRequest) -> None:
    """Raise a 415 problem for a compressed body."""
    if "Content-Encoding" in request.headers:
        raise HttpProblem("unsupported_media_type", "a body must not be compressed")


def check_charset(request: web.BaseRequest) -> None:
    """Raise a 415 problem unless the declared charset, if any, is UTF-8."""
    if (request.charset or "utf-8").lower() not in _CHARSETS:
        raise HttpProblem("unsupported_media_type", "the charset must be utf-8")


def _continue(request: web.BaseRequest) -> None:
    """Answer ``Expect: 100-continue``, which curl sends before it sends a larger body."""
    expect = request.headers.get("Expect")
    if expect is None or request.version < HttpVersion11:
        return
    if expect.lower() != "100-continue":
        raise HttpProblem("expectation_failed", "only 100-continue can be expected")
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
