"""Events: what a publisher may send, what the log stores, what a reader gets (contract 2.1, 2.5, 5.1).

Three forms of the same thing:

- a *draft*: one event of a request, checked strictly (:func:`parse_draft`, :func:`parse_batch`);
- the *payload*: its JSON bytes on one line, as stored in the log;
- the *envelope*: the payload with ``id``, ``v`` and ``_meta.serverTimestamp``, as readers get it.

``data`` is never parsed and written again on the way: the publisher's bytes are spliced through.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ringmere.core.errors import InvalidBatch, InvalidEvent, InvalidKey, MalformedBody
from ringmere.core.limits import MAX_BATCH, MAX_DEPTH, MAX_KEY_CHARS, MAX_TYPE_CHARS
from ringmere.core.strict_json import ints_are_finite, load, one_line, outside_strings, too_deep

CONTROL_TYPES = frozenset(
    {
        "stream_opened",
        "state_resync_required",
        "replay_complete",
        "slow_client_warning",
        "client_evicted",
        "stream_error",
        "log_degraded",
        "log_restored",
        "server_draining",
        "session_snapshot",
    }
)
"""Frames that only the gateway makes (contract 5.2)."""
RESERVED_TYPES = CONTROL_TYPES | {"error", "open"}
"""Types no publisher may use: the above, and what an EventSource uses for itself."""
TERMINAL_TYPES = frozenset({"session_closed", "session_died"})
"""Types that close a session without ``terminal: true`` (contract 2.9)."""

SKIP_REASONS = (
    "not_utf8",
    "not_json",
    "not_an_event",
    "too_deep",
    "bad_type",
    "bad_number",
    "repeated_key",
)
"""Why a stored message is passed over; all values of :attr:`NotAnEvent.reason`."""

_KEY = re.compile(r"[\x21-\x7e]+")
_ALLOWED = ("type", "data", "originatorClientId", "promptId", "_meta", "terminal", "key")


class _Stored(msgspec.Struct, omit_defaults=True):
    """The fields of an event in the log; the names are the wire's."""

    type: str
    data: Raw
    originatorClientId: str | UnsetType = UNSET  # noqa: N815
    promptId: str | UnsetType = UNSET  # noqa: N815
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")
    terminal: bool = False


class Draft(NamedTuple):
    """A checked event that is not in the log yet. ``payload`` is what will be stored."""

    type: str
    payload: bytes
    terminal: bool
    key: str | None = None


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """An event of the log as readers get it; ``json`` is one line of UTF-8."""

    type: str
    terminal: bool
    json: bytes


Check = Callable[[str, Any, int | None], None]
"""Raises ``InvalidEvent`` for data that its type may not have; takes the type, the decoded data, and the row."""


class NotAnEvent(ValueError):
    """A stored message that is no event (contract 1.9); ``reason`` is a metric label."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_decode_stored = msgspec.json.Decoder(_Stored).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_decode_meta = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_rows = msgspec.json.Decoder(list[Raw]).decode


def check_key(key: str) -> str:
    """Return ``key`` when it is an idempotency key of 1..255 visible ASCII characters (contract 2.3)."""
    if len(key) > MAX_KEY_CHARS or _KEY.fullmatch(key) is None:
        raise InvalidKey("an idempotency key is 1 to 255 visible ASCII characters")
    return key


def parse_draft(body: bytes, check: Check | None = None) -> Draft:
    """Return the one event that ``body`` holds.

    Raises :class:`MalformedBody` when the text is not strict JSON, :class:`InvalidEvent` when it is not an
    event of contract 2.1, or none that ``check`` lets pass.
    """
    value = load(body)
    if not isinstance(value, dict):
        raise MalformedBody("the body must be a JSON object, or an array of them")
    return make_draft(value, body, None, check)


def parse_batch(body: bytes, check: Check | None = None) -> list[Draft]:
    """Return the events of a JSON array, checked as a whole: one bad row refuses all of them (contract 2.2)."""
    value = load(body, MAX_DEPTH + 1)
    if not isinstance(value, list):
        raise MalformedBody("the body must be a JSON array of events")
    if not 1 <= len(value) <= MAX_BATCH:
        raise InvalidBatch(f"a batch has 1 to {MAX_BATCH} events, this one has {len(value)}")
    rows = _decode_rows(body)
    return [
        make_draft(item, bytes(raw), index, check) for index, (item, raw) in enumerate(zip(value, rows, strict=True))
    ]


def is_batch(body: bytes) -> bool:
    """Say whether a body is an array, without parsing it."""
    return body.lstrip(b" \t\r\n")[:1] == b"["


def make_payload(type: str, data: Any, *, terminal: bool = False, meta: dict[str, Any] | None = None) -> Draft:
    """Return a draft made by the service or by Python callers, by the same rules as over HTTP."""
    event: dict[str, Any] = {"type": type, "data": data}
    if meta is not None:
        event["_meta"] = meta
    if terminal:
        event["terminal"] = True
    try:
        text = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return parse_draft(text.encode())
    except RecursionError as error:
        raise MalformedBody(f"nesting is deeper than {MAX_DEPTH}") from error
    except (TypeError, ValueError) as error:
        raise MalformedBody(str(error)) from error


def make_draft(value: Any, raw: bytes, index: int | None, check: Check | None) -> Draft:
    """Return the draft of one decoded row, with a payload made of its own bytes; raises as :func:`parse_draft`."""

    def refuse(detail: str) -> NoReturn:
        raise InvalidEvent(detail, index)

    if not isinstance(value, dict):
        refuse("an event is a JSON object")
    unknown = [key for key in value if key not in _ALLOWED]
    if unknown:
        owned = unknown[0] in ("id", "v")
        name = json.dumps(unknown[0][:64])
        refuse(f"{name} is {'given by the service' if owned else 'no field of an event'}")
    if "data" not in value:
        refuse("'data' is required")
    fault = type_fault(value.get("type"))
    if fault:
        refuse(fault)
    for name in ("originatorClientId", "promptId", "key"):
        if name in value and not isinstance(value[name], str):
            refuse(f"'{name}' must be a string")
    if "_meta" in value and not isinstance(value["_meta"], dict):
        refuse("'_meta' must be an object")
    if not isinstance(value.get("terminal", False), bool):
        refuse("'terminal' must be true or false")
    key = check_key(value["key"]) if "key" in value else None
    if check is not None:
        check(value["type"], value["data"], index)
    stored = _decode_stored(one_line(raw))
    terminal = stored.terminal or stored.type in TERMINAL_TYPES
    return Draft(stored.type, _encode(stored), terminal, key)


def type_fault(value: Any) -> str | None:
    """Say what is wrong with an event type, or None. It becomes an SSE field, so no line may end in it."""
    if not isinstance(value, str):
        return "'type' must be a string"
    if not 1 <= len(value) <= MAX_TYPE_CHARS or not value.isprintable():
        return f"'type' must be 1 to {MAX_TYPE_CHARS} printable characters"
    return f"'type' {value!r} is reserved" if value in RESERVED_TYPES else None


_type_json: dict[str, bytes] = {}
_TYPE_CACHE = 1024


def _json_of_type(type: str) -> bytes:
    """Return a type that may be one as JSON, from a bounded cache: a deployment has few types."""
    if type_fault(type):
        raise NotAnEvent("bad_type")
    found = _encode(type)
    if len(_type_json) < _TYPE_CACHE:
        _type_json[type] = found
    return found


def envelope(payload: bytes, public_id: int | None, timestamp_ms: int) -> Envelope:
    """Return the envelope of a stored message; raise :class:`NotAnEvent` for what is none (contract 1.9).

    ``public_id`` None makes the envelope of an event that no log has: it has no id and says so (contract 8.2).

    ``data`` is spliced through as bytes, after a check that the payload keeps the rules of contract 2.1.
    Keys that are not an event's are left out, so a direct publisher cannot set ``id`` or ``v``.
    """
    try:
        stored = _decode_stored(payload)
        canonical = _check(payload)
    except UnicodeDecodeError as error:
        raise NotAnEvent("not_utf8") from error
    except RecursionError as error:
        raise NotAnEvent("too_deep") from error
    except msgspec.ValidationError as error:
        raise NotAnEvent("not_an_event") from error
    except msgspec.DecodeError as error:
        raise NotAnEvent("not_json") from error
    type = stored.type
    type_json = _type_json.get(type) or _json_of_type(type)
    data = bytes(stored.data)
    if not canonical:
        data = one_line(data)
    more = b""
    if stored.originatorClientId is not UNSET:
        more = b',"originatorClientId":' + _encode(stored.originatorClientId)
    if stored.promptId is not UNSET:
        more += b',"promptId":' + _encode(stored.promptId)
    if stored.terminal:
        more += b',"terminal":true'
    if public_id is None:
        meta = _meta(stored.meta, timestamp_ms, degraded=True)
        text = b'{"v":1,"type":%b,"data":%b%b,"_meta":%b}' % (type_json, data, more, meta)
    else:
        meta = _meta(stored.meta, timestamp_ms)
        text = b'{"id":%d,"v":1,"type":%b,"data":%b%b,"_meta":%b}' % (public_id, type_json, data, more, meta)
    return Envelope(type, stored.terminal or type in TERMINAL_TYPES, text)


def _check(payload: bytes) -> bool:
    """Raise unless JSON that decodes keeps to contract 2.1: UTF-8, finite numbers, no repeated key, depth.

    Return whether it is written as this module would write it, which leaves no room for control bytes.
    A decode and an encode in C are cheaper than any look at the text, and most payloads come back as they
    were. Of those that do not, the number of colons tells whether a key was dropped as a repeated one.
    """
    if not payload.isascii():
        payload.decode()
    if too_deep(payload):
        raise NotAnEvent("too_deep")
    try:
        again = _encode(_decode_any(payload))
    except msgspec.ValidationError as error:
        raise NotAnEvent("bad_number") from error
    canonical = again == payload
    if not canonical and outside_strings(again).count(b":") != outside_strings(payload).count(b":"):
        raise NotAnEvent("repeated_key")
    if not ints_are_finite(payload):
        raise NotAnEvent("bad_number")
    return canonical


def _meta(raw: Raw | UnsetType, timestamp_ms: int, *, degraded: bool = False) -> bytes:
    """Return ``_meta`` with the log's timestamp, unless the publisher gave a finite number (contract 2.5)."""
    if isinstance(raw, UnsetType) and not degraded:
        return b'{"serverTimestamp":%d}' % timestamp_ms
    try:
        meta = {} if isinstance(raw, UnsetType) else _decode_meta(raw)
    except msgspec.DecodeError as error:
        raise NotAnEvent("not_an_event") from error
    given = meta.get("serverTimestamp")
    if given is None or not _is_finite_number(bytes(given)):
        meta["serverTimestamp"] = Raw(b"%d" % timestamp_ms)
    if degraded:
        meta["degraded"] = Raw(b"true")
    return one_line(_encode(meta))


def _is_finite_number(raw: bytes) -> bool:
    if raw[:1] not in b"-0123456789":
        return False
    return math.isfinite(float(raw))


def is_terminal(payload: bytes) -> bool:
    """Say whether a stored message is a terminal event (contract 2.9); what is no event is not."""
    try:
        return envelope(payload, 0, 0).terminal
    except NotAnEvent:
        return False
