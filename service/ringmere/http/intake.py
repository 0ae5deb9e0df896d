"""What the body of a publish is: events as they are written here, or CloudEvents in one of their three forms."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from ringmere.core.cloudevents import BATCH, STRUCTURED, parse_binary, parse_structured, parse_structured_batch
from ringmere.core.errors import InvalidCloudEvent
from ringmere.core.event import Check, Draft, is_batch, parse_batch, parse_draft
from ringmere.http.body import check_charset, check_encoding, check_media_type

Parse = Callable[[bytes, Check | None, bool], Draft | list[Draft]]
"""Takes the body, the check of types, and whether a CloudEvent's id is its key; one event, or a batch."""

_PREFIX = "ce-"
_MARK = "ce-specversion"


def parser_of(request: web.BaseRequest) -> Parse:
    """Return what makes drafts of the request's body, by its headers alone; raises a 415 problem.

    No form can be sent across origins by a browser that has not asked first: each needs a header or a content type
    that is not among the simple ones.
    """
    if request.content_type in (STRUCTURED, BATCH):
        check_encoding(request)
        check_charset(request)
        return _structured if request.content_type == STRUCTURED else _structured_batch
    if _MARK in request.headers:
        check_encoding(request)
        return _binary(request)
    check_media_type(request)
    return _native


def _native(body: bytes, check: Check | None, keyed: bool) -> Draft | list[Draft]:
    return parse_batch(body, check) if is_batch(body) else parse_draft(body, check)


def _structured(body: bytes, check: Check | None, keyed: bool) -> Draft:
    return parse_structured(body, check, keyed=keyed)


def _structured_batch(body: bytes, check: Check | None, keyed: bool) -> list[Draft]:
    return parse_structured_batch(body, check, keyed=keyed)


def _binary(request: web.BaseRequest) -> Parse:
    headers: dict[str, str] = {}
    for field, value in request.headers.items():
        name = field.lower()
        if name.startswith(_PREFIX):
            if name in headers:
                raise InvalidCloudEvent(f"{name} is given more than once")
            headers[name] = value
    attributes = {name.removeprefix(_PREFIX): value for name, value in headers.items()}
    content_type = request.headers.get("Content-Type")
    return lambda body, check, keyed: parse_binary(attributes, content_type, body, check, keyed=keyed)
