"""Where a stream begins, as a request says it (contract 1.3, 3.2, 3.3).

A malformed cursor is never an error and never "from the start": it degrades to live-only, and the reason
travels in ``X-Cursor-Ignored``.
"""

from __future__ import annotations

from typing import NamedTuple

from aiohttp import web

from ringmere.core.cursor import parse_cursor, parse_epoch_token

_QUERY_NAMES = ("last_event_id", "lastEventId")
_EPOCH_HEADERS = ("X-Event-Epoch", "X-Qwen-Event-Epoch")
_EPOCH_QUERY = "event_epoch"


class Beginning(NamedTuple):
    """The beginning a request asks for; ``ignored`` says why a cursor it gave was not taken."""

    cursor: int | None = None
    from_start: bool = False
    ignored: str | None = None


def parse_beginning(request: web.BaseRequest) -> Beginning:
    """Return where the stream begins. Header, then query, then ``from``: the first that is present decides."""
    headers = request.headers.getall("Last-Event-ID", [])
    if headers:
        return _one(headers)
    query = request.query
    values = [value for name in _QUERY_NAMES for value in query.getall(name, [])]
    if values:
        return _one(values)
    values = query.getall("from", [])
    if values == ["start"]:
        return Beginning(from_start=True)
    if not values or values == ["live"]:
        return Beginning()
    return _one(values)


def _one(values: list[str]) -> Beginning:
    if len(values) > 1:
        return Beginning(ignored="repeated")
    text = values[0]
    cursor = parse_cursor(text)
    if cursor is not None:
        return Beginning(cursor)
    if not text:
        return Beginning(ignored="empty")
    return Beginning(ignored="too_large" if text.isascii() and text.isdigit() else "malformed")


def parse_birth(request: web.BaseRequest) -> str | None:
    """Return the birth part of the epoch token that came back with the cursor, None when there is none."""
    for name in _EPOCH_HEADERS:
        values = request.headers.getall(name, [])
        if values:
            return parse_epoch_token(values[0]) if len(values) == 1 else None
    values = request.query.getall(_EPOCH_QUERY, [])
    return parse_epoch_token(values[0]) if len(values) == 1 else None
