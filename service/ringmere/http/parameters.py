"""Query parameters: each name once, each value checked as text before anything is done with it."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from aiohttp import web

from ringmere.core.backlog import Overflow
from ringmere.core.errors import InvalidParameter, InvalidSessionId
from ringmere.core.limits import MAX_MAX_QUEUED, MIN_MAX_QUEUED
from ringmere.core.session import check_session_id
from ringmere.hub.options import Resync

MAX_LIST = 1000
DEFAULT_LIST = 100
DEFAULT_LAGGARDS = 20

_Choice = TypeVar("_Choice", bound=Enum)


def single(request: web.BaseRequest, name: str, code: str) -> str | None:
    """Return the value of a parameter, None when absent; refuse it with ``code`` when it is repeated."""
    values = request.query.getall(name, [])
    if len(values) > 1:
        raise InvalidParameter(code, f"{name} is given {len(values)} times")
    return values[0] if values else None


def number(request: web.BaseRequest, name: str, code: str, low: int, high: int) -> int | None:
    """Return a parameter of ASCII digits between ``low`` and ``high``, None when absent."""
    text = single(request, name, code)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= len(str(high)) and low <= int(text) <= high:
        return int(text)
    raise InvalidParameter(code, f"{name} must be a number from {low} to {high}, in digits only")


def switch(request: web.BaseRequest, name: str, code: str) -> bool:
    """Return whether a parameter is ``1``; absent or ``0`` is no."""
    text = single(request, name, code)
    if text not in (None, "0", "1"):
        raise InvalidParameter(code, f"{name} must be 0 or 1")
    return text == "1"


def overflow(request: web.BaseRequest) -> Overflow:
    """Return ``?overflow=`` (contract 6.7): what becomes of this reader when its backlog is full."""
    return _choice(request, "overflow", "invalid_overflow", Overflow.EVICT)


def cloudevents(request: web.BaseRequest) -> bool:
    """Return whether ``?format=`` asks for CloudEvents (contract 5.3); absent is the service's own form."""
    text = single(request, "format", "invalid_format")
    if text not in (None, "cloudevents"):
        raise InvalidParameter("invalid_format", "format can only be cloudevents")
    return text is not None


def resync(request: web.BaseRequest) -> Resync:
    """Return ``?resync=`` (contract 10.2): what follows a verdict."""
    return _choice(request, "resync", "invalid_resync", Resync.REPLAY)


def id_part(request: web.BaseRequest, name: str, code: str) -> str:
    """Return a parameter that holds a session id or its beginning, empty when absent."""
    return id_text(single(request, name, code) or "", name, code)


def id_text(text: str, name: str, code: str) -> str:
    """Return a text that is a session id, its beginning, or empty; ``name`` is what it was given as."""
    if not text:
        return ""
    try:
        return check_session_id(text)
    except InvalidSessionId as error:
        raise InvalidParameter(code, f"{name} must be made of the characters of a session id") from error


def max_queued(request: web.BaseRequest) -> int | None:
    """Return ``?maxQueued=`` (contract 3.5)."""
    return number(request, "maxQueued", "invalid_max_queued", MIN_MAX_QUEUED, MAX_MAX_QUEUED)


def _choice(request: web.BaseRequest, name: str, code: str, default: _Choice) -> _Choice:
    text = single(request, name, code)
    if text is None:
        return default
    try:
        return type(default)(text)
    except ValueError as error:
        known = [choice.value for choice in type(default)]
        allowed = " or ".join(known) if len(known) == 2 else f"one of {', '.join(known)}"
        raise InvalidParameter(code, f"{name} must be {allowed}") from error
