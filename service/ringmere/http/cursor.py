"""Where a stream begins, as a request says it (contract 1.3, 3.2, 3.3).

A malformed cursor is never an error and never "from the start": it degrades to live-only, and the reason
travels in ``X-Cursor-Ignored``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from aiohttp import web

from ringmere.core.composite import parse_composite
from ringmere.core.cursor import parse_cursor, parse_epoch_token

T = TypeVar("T")

_QUERY_NAMES = ("last_event_id", "lastEventId")
_EPOCH_HEADERS = ("X-Event-Epoch", "X-Qwen-Event-Epoch")
_EPOCH_QUERY = "event_epoch"


class Beginning(NamedTuple, Generic[T]):
    """The beginning a request asks for; ``ignored`` says why a cursor it gave was not taken."""

    cursor: T | None = None
    from_start: bool = False
    ignored: str | None = None


def parse_beginning(request: web.BaseRequest) -> Beginning[int]:
    """Return where the stream begins. Header, then query, then ``from``: the first that is present decides."""
    return _parse(request, parse_cursor)


def parse_points(request: web.BaseRequest, shards: int) -> Beginning[tuple[int, ...]]:
    """Return where a stream of many sessions begins: the same, with a cursor of all shards (contract 7.2)."""
    return _parse(request, lambda text: parse_composite(text, shards))


def _parse(request: web.BaseRequest, parse: Callable[[str], T | None]) -> Beginning[T]:
    values = request.headers.getall("Last-Event-ID", [])
    query = request.query
    values = values or [value for name in _QUERY_NAMES for value in query.getall(name, [])]
    if not values:
        values = query.getall("from", [])
        if values == ["start"]:
            return Beginning(from_start=True)
        if not values or values == ["live"]:
            return Beginning()
    if len(values) > 1:
        return Beginning(ignored="repeated")
    return beginning_at(values[0], parse)


def beginning_at(text: str, parse: Callable[[str], T | None]) -> Beginning[T]:
    """Return the beginning at a cursor that was given as ``text``."""
    cursor = parse(text)
    if cursor is not None:
        return Beginning(cursor)
    if not text:
        return Beginning(ignored="empty")
    digits = text.isascii() and text.isdigit()
    return Beginning(ignored="too_large" if digits and parse_cursor(text) is None else "malformed")


def parse_birth(request: web.BaseRequest) -> str | None:
    """Return the birth part of the epoch token that came back with the cursor, None when there is none."""
    return parse_epoch_token(_epoch_text(request))


def parse_births(request: web.BaseRequest, shards: int) -> tuple[str | None, ...]:
    """Return the birth parts of the tokens of all shards; none when they are not as many."""
    return births_of(_epoch_text(request), shards)


def births_of(text: str | None, shards: int) -> tuple[str | None, ...]:
    """Return the birth parts of tokens joined by commas; none when they are not as many as shards."""
    tokens = (text or "").split(",", shards)
    return tuple(parse_epoch_token(token) for token in tokens) if len(tokens) == shards else ()


def _epoch_text(request: web.BaseRequest) -> str | None:
    for name in _EPOCH_HEADERS:
        values = request.headers.getall(name, [])
        if values:
            return values[0] if len(values) == 1 else None
    values = request.query.getall(_EPOCH_QUERY, [])
    return values[0] if len(values) == 1 else None
