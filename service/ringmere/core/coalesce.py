"""Coalescing: adjacent events that differ in one text only become one (contract 6.8).

A *rule* is an event type and a JSON pointer (RFC 6901) that leads into the event's ``data``. Two events of
that type become one when everything but the text there, the id and ``_meta.serverTimestamp`` is equal as it
is written: the texts are joined, the rest is the later one's. A terminal event is never part of it.

Texts are joined as the bytes between their quotes, so nothing is decoded and escapes stay what they were.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import Raw

from ringmere.core.event import RESERVED_TYPES, TERMINAL_TYPES
from ringmere.core.limits import MAX_TYPE_CHARS

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode

_STRAY_TILDE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_BEFORE_TYPE, _BEFORE_JSON, _END = b"\nevent: ", b"\ndata: ", b"\n\n"
_OUTER = len(b'{"id":') + len(b"}")


class Parts(NamedTuple):
    """One event taken apart; all bytes are JSON but ``type``. Put in order, with braces around, they are its envelope.

    ``text`` is what stands between the quotes at the pointer, ``meta`` all of ``_meta``, ``cursor`` the frame's own
    id line, which is not the event's id in a stream of many sessions. Two events with the same ``kind`` are one but
    for their texts: it holds all that must be equal.
    """

    type: bytes
    cursor: bytes
    id: bytes
    head: bytes
    text: bytes
    tail: bytes
    meta: bytes
    kind: tuple[bytes, bytes, bytes]

    @property
    def size(self) -> int:
        """Bytes of the envelope."""
        return _OUTER + len(self.id) + len(self.head) + len(self.text) + len(self.tail) + len(self.meta)


class Run:
    """Adjacent events of one kind on their way to become one. ``size`` is that one's envelope in bytes."""

    __slots__ = ("_newest", "_text", "events", "size")

    def __init__(self, first: Parts, size: int) -> None:
        self._newest = first
        self._text = bytearray(first.text)
        self.events = 1
        self.size = size

    def takes(self, later: Parts) -> bool:
        """Say whether ``later`` may become part of it."""
        return self._newest.kind == later.kind

    def size_with(self, later: Parts) -> int:
        """Return what :attr:`size` would be with ``later``."""
        return later.size + len(self._text)

    def add(self, later: Parts) -> None:
        """Make ``later`` part of it: the newest one's id and time, the texts of all."""
        self.size = self.size_with(later)
        self._newest = later
        self._text += later.text
        self.events += 1

    def sse(self) -> bytes:
        """Return the frame of the one event."""
        newest = self._newest
        text = b'{"id":%b%b%b%b%b}' % (newest.id, newest.head, bytes(self._text), newest.tail, newest.meta)
        return b"id: %b%b%b%b%b%b" % (newest.cursor, _BEFORE_TYPE, newest.type, _BEFORE_JSON, text, _END)


class Rules:
    """What may be merged: the path to the text, by event type."""

    __slots__ = ("_paths",)

    def __init__(self, pointers: Mapping[str, str]) -> None:
        """Take pointers by type; raise ``ValueError`` for what cannot be a rule."""
        self._paths = {_checked(type).encode(): parse_pointer(pointer) for type, pointer in pointers.items()}

    def __bool__(self) -> bool:
        return bool(self._paths)

    def take_apart(self, sse: bytes, size: int) -> Parts | None:
        """Return the parts of an event's frame whose envelope has ``size`` bytes; None when it may not be merged."""
        before_json = len(sse) - size - len(_END)
        cursor, _, type = sse[len(b"id: ") : before_json - len(_BEFORE_JSON)].partition(_BEFORE_TYPE)
        path = self._paths.get(type)
        if path is None:
            return None
        return _parts(cursor, type, sse[before_json : -len(_END)], path)


def parse_rule(text: str) -> tuple[str, str]:
    """Return type and pointer of ``TYPE=/data/…``; raise ``ValueError`` with what is wrong with it."""
    type, sign, rest = text.partition("=/")
    if not sign:
        raise ValueError("a rule is TYPE=/data/… with a JSON pointer behind the first =")
    parse_pointer("/" + rest)
    return _checked(type), "/" + rest


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """Return the path behind ``/data`` that a JSON pointer names; raise ``ValueError`` for any other pointer."""
    start, *steps = pointer.split("/")
    if start or steps[:1] != ["data"] or _STRAY_TILDE.search(pointer):
        raise ValueError("the pointer is a JSON pointer that leads into /data")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps[1:])


def _checked(type: str) -> str:
    if not 1 <= len(type) <= MAX_TYPE_CHARS or not type.isprintable():
        raise ValueError(f"a type is 1 to {MAX_TYPE_CHARS} printable characters")
    if type in RESERVED_TYPES or type in TERMINAL_TYPES:
        raise ValueError(f"events of type {type} are never merged")
    return type


def _parts(cursor: bytes, type: bytes, json: bytes, path: tuple[str, ...]) -> Parts | None:
    fields = _object(json)
    around = _around(bytes(fields.pop("data")), path)
    if around is None or "terminal" in fields:
        return None
    before, text, after = around
    id = bytes(fields.pop("id"))
    meta = bytes(fields.pop("_meta"))
    others = _object(meta)
    others.pop("serverTimestamp", None)
    type_json = fields.pop("type")
    del fields["v"]
    head = b',"v":1,"type":%b,"data":%b' % (bytes(type_json), before)
    tail = after + b"".join([b"," + _member(name, value) for name, value in fields.items()]) + b',"_meta":'
    return Parts(type, cursor, id, head, text, tail, meta, (head, tail, _encode(others)))


def _around(value: bytes, path: tuple[str, ...]) -> tuple[bytes, bytes, bytes] | None:
    """Return JSON cut at the text that ``path`` leads to: before, between the quotes, behind; None without a text."""
    if not path:
        return (b'"', value[1:-1], b'"') if value[:1] == b'"' else None
    if value[:1] == b"{":
        fields = _object(value)
        names = list(fields)
        members = [_member(name, field) for name, field in fields.items()]
        at = names.index(path[0]) if path[0] in fields else -1
        key, found, edges = _encode(path[0]) + b":", fields.get(path[0]), (b"{", b"}")
    elif value[:1] == b"[":
        items = _array(value)
        members = [bytes(item) for item in items]
        at = int(path[0]) if _INDEX.fullmatch(path[0]) and int(path[0]) < len(items) else -1
        key, found, edges = b"", items[at] if at >= 0 else None, (b"[", b"]")
    else:
        return None
    inner = _around(bytes(found), path[1:]) if found is not None else None
    if inner is None:
        return None
    before = edges[0] + b"".join([member + b"," for member in members[:at]]) + key + inner[0]
    after = inner[2] + b"".join([b"," + member for member in members[at + 1 :]]) + edges[1]
    return before, inner[1], after


def _member(name: str, value: Raw) -> bytes:
    return _encode(name) + b":" + bytes(value)
