"""JSON as the service accepts it: UTF-8, finite numbers, whole characters, no repeated key, bounded depth.

What other parsers wave through here would break, or mean something else, at the reader's (contract 2.1).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import msgspec

from ringmere.core.errors import MalformedBody
from ringmere.core.limits import MAX_DEPTH

_CONTROL_BYTES = bytes(range(0x20))
_INT_DIGITS = 309
"""An integer with this many digits can be beyond the largest double, so it would read as infinity."""
_ANY_DIGIT_TO_0 = bytes.maketrans(b"123456789", b"000000000")
_LONG_INT = b"0" * _INT_DIGITS
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]")


def load(body: bytes, max_depth: int = MAX_DEPTH) -> Any:
    """Decode JSON as strictly as contract 2.1 asks, raising :class:`MalformedBody` only."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise MalformedBody("the body is not UTF-8") from error
    if too_deep(body, max_depth):
        raise MalformedBody(f"nesting is deeper than {MAX_DEPTH}")
    parse_int = _finite_int if _may_hold_long_int(body) else None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=parse_int,
        )
    except MalformedBody:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedBody(f"not JSON: {error}") from error
    if _SURROGATE_ESCAPE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise MalformedBody("a string holds a lone surrogate") from error
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise MalformedBody("an object repeats a key")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedBody(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise MalformedBody("a number is too large")
    return value


def _finite_int(text: str) -> int:
    if len(text) >= _INT_DIGITS and math.isinf(float(text)):
        raise MalformedBody("a number is too large")
    return int(text)


def _may_hold_long_int(body: bytes) -> bool:
    """Say whether ``body`` has a run of digits that long; it may also stand in a string or be a fraction."""
    return len(body) >= _INT_DIGITS and _LONG_INT in body.translate(_ANY_DIGIT_TO_0)


def one_line(raw: bytes) -> bytes:
    """Return the same JSON with no byte below 0x20, that is without line breaks and tabs between tokens."""
    if len(raw.translate(None, _CONTROL_BYTES)) == len(raw):
        return raw
    return msgspec.json.format(raw, indent=-1)


def outside_strings(body: bytes) -> bytes:
    """Return the JSON without its strings. Escapes go first, so that each quote left begins or ends one."""
    return b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def too_deep(body: bytes, max_depth: int = MAX_DEPTH) -> bool:
    """Say whether brackets nest deeper than ``max_depth``; few brackets answer it without a scan.

    Removing all innermost pairs takes one level off, so ``max_depth`` rounds leave nothing of JSON that is
    no deeper. What is not JSON may leave more; its open brackets count.
    """
    if body.count(b"{") + body.count(b"[") <= max_depth:
        return False
    brackets = outside_strings(body).translate(_BRACKETS).translate(None, _NO_BRACKETS)
    for _ in range(max_depth):
        inner = len(brackets)
        brackets = brackets.replace(b"[]", b"")
        if len(brackets) == inner:
            return brackets.count(b"[") > max_depth
    return b"[" in brackets


def ints_are_finite(body: bytes) -> bool:
    """Say whether every integer of ``body``, which is JSON, fits into a double."""
    if not _may_hold_long_int(body):
        return True
    try:
        json.loads(body, parse_int=_finite_int)
    except (MalformedBody, ValueError):
        return False
    return True
