"""CloudEvents 1.0 in: what is accepted as one, and the event that it becomes (contract 2.11).

``type`` and ``data`` are the event's own. All other attributes stay as they are under ``_meta.cloudevent``, so that
:mod:`ringmere.core.cloudevent_frames` can give the same CloudEvent out again. Names there that no attribute can have
say what JSON cannot: :data:`IS_BASE64`, :data:`HAS_NO_DATA`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from ringmere.core.errors import InvalidBatch, InvalidCloudEvent, InvalidKey, MalformedBody
from ringmere.core.event import Check, Draft, check_key, make_draft
from ringmere.core.limits import MAX_BATCH, MAX_DEPTH
from ringmere.core.strict_json import load

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
META = "cloudevent"
"""The key in ``_meta``."""
IS_BASE64 = "data_base64"
"""The event's ``data`` is the base64 text of what is no JSON."""
HAS_NO_DATA = "data_absent"
"""There was no data; the event's is null."""
OWN = {"originatorclientid": "originatorClientId", "promptid": "promptId"}
"""Extensions that are fields of an event."""
TERMINAL = "terminal"
GIVEN_OUT = frozenset({"ringmereid", "ringmeresession"})
"""Extensions that the gateway gives out; they are not taken in, for they speak of another place."""

_NAME = re.compile(r"[a-z0-9]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_MEDIA_TYPE = re.compile(r"[^\s/;]+/[^\s/;]+\s*(;.*)?")
_JSON_MEDIA_TYPE = re.compile(r"[^\s/;]+/([^\s/;]+\+)?json\s*(;.*)?", re.IGNORECASE)
_CHARSET = re.compile(r"charset=\"?([^\s;\"]*)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.IGNORECASE)
_MAX_INT = (1 << 31) - 1

_decode_row = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_rows = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode


def parse_structured(body: bytes, check: Check | None = None, *, keyed: bool = True) -> Draft:
    """Return the draft of a CloudEvent in JSON. ``keyed``: its id and source are its idempotency key.

    Raises ``MalformedBody``, ``InvalidCloudEvent``, and as :func:`ringmere.core.event.parse_draft`.
    """
    value = load(body)
    if not isinstance(value, dict):
        raise MalformedBody("the body must be a CloudEvent, a JSON object")
    return _of_row(value, body, None, check, keyed)


def parse_structured_batch(body: bytes, check: Check | None = None, *, keyed: bool = True) -> list[Draft]:
    """Return the drafts of a JSON array of CloudEvents; one bad row refuses all of them."""
    value = load(body, MAX_DEPTH + 1)
    if not isinstance(value, list):
        raise MalformedBody("the body must be a JSON array of CloudEvents")
    if not 1 <= len(value) <= MAX_BATCH:
        raise InvalidBatch(f"a batch has 1 to {MAX_BATCH} events, this one has {len(value)}")
    rows = zip(value, _decode_rows(body), strict=True)
    return [_of_row(item, bytes(raw), index, check, keyed) for index, (item, raw) in enumerate(rows)]


def parse_binary(
    headers: Mapping[str, str], content_type: str | None, body: bytes, check: Check | None = None, *, keyed: bool = True
) -> Draft:
    """Return the draft of a CloudEvent in HTTP's binary mode: attributes by name, and what they are about."""
    attributes: dict[str, Any] = {name: _header_value(name, value) for name, value in headers.items()}
    if "datacontenttype" in attributes:
        _refuse(None, "datacontenttype is the Content-Type in binary mode")
    if content_type is not None:
        attributes["datacontenttype"] = content_type
    if not body:
        return _draft(attributes, None, None, None, check, keyed)
    if content_type is not None and _JSON_MEDIA_TYPE.fullmatch(content_type):
        return _draft(attributes, body, load(body, MAX_DEPTH - 1), None, check, keyed)
    text = _text(content_type, body)
    if text is None:
        text = base64.b64encode(body).decode()
        attributes = {**attributes, IS_BASE64: True}
    return _draft(attributes, _encode(text), text, None, check, keyed)


def attributes_fault(attributes: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the attributes of a CloudEvent but its type, or None."""
    if attributes.get("specversion") != "1.0":
        return "specversion must be 1.0"
    for name in ("id", "source"):
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            return f"{name} is required: a string that is not empty"
    return next((fault for item in attributes.items() if (fault := _attribute_fault(*item))), None)


def _attribute_fault(name: str, value: Any) -> str | None:
    if name in (IS_BASE64, HAS_NO_DATA):
        return None if value is True else f"{name} is no attribute"
    if name == "data":
        return "data is no attribute"
    if not _NAME.fullmatch(name):
        return f"{json.dumps(name[:64])} is no name of an attribute: lower-case letters and digits"
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -_MAX_INT - 1 <= value <= _MAX_INT else f"{name} is no integer of 32 bits"
    if not isinstance(value, str):
        return f"{name} must be a string, a number without fraction, true or false"
    if _CONTROLS.search(value):
        return f"{name} holds a control character"
    if name == "time" and not _is_time(value):
        return "time must be a date and time of RFC 3339"
    if name == "datacontenttype" and not _MEDIA_TYPE.fullmatch(value):
        return "datacontenttype must be a media type"
    return f"{name} must not be empty" if name in ("subject", "dataschema") and not value else None


def _text(content_type: str | None, body: bytes) -> str | None:
    """Return a body as the text that it is said to be, None when it is none, or no UTF-8."""
    media_type, _, parameters = (content_type or "").lower().partition(";")
    charset = _CHARSET.search(parameters)
    if not media_type.startswith("text/") or (charset is not None and charset[1] not in ("utf-8", "us-ascii")):
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _is_time(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text.upper())
    except ValueError:
        return False
    return True


def _of_row(value: Any, raw: bytes, index: int | None, check: Check | None, keyed: bool) -> Draft:
    if not isinstance(value, dict):
        _refuse(index, "a CloudEvent is a JSON object")
    fields = _decode_row(raw)
    # An attribute that is null is not there.
    attributes = {name: item for name, item in value.items() if name not in ("data", IS_BASE64) and item is not None}
    for name in (IS_BASE64, HAS_NO_DATA):
        if name in attributes:
            _refuse(index, f"{name} is no attribute")
    if value.get(IS_BASE64) is None:
        data = bytes(fields["data"]) if "data" in value else None
        return _draft(attributes, data, value.get("data"), index, check, keyed)
    if "data" in value:
        _refuse(index, "data and data_base64 exclude each other")
    text = value[IS_BASE64]
    try:
        base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        _refuse(index, "data_base64 must be base64")
    return _draft({**attributes, IS_BASE64: True}, bytes(fields[IS_BASE64]), text, index, check, keyed)


def _draft(
    attributes: dict[str, Any], raw: bytes | None, data: Any, index: int | None, check: Check | None, keyed: bool
) -> Draft:
    """Return the draft of attributes and data, both as bytes (None: there is none) and decoded."""
    if fault := attributes_fault(attributes):
        _refuse(index, fault)
    kept = {name: attributes[name] for name in sorted(attributes) if name not in GIVEN_OUT}
    type = kept.pop("type", None)
    if not isinstance(type, str) or not type:
        _refuse(index, "type is required: a string that is not empty")
    event = {"type": type, **_own_fields(kept, index)}
    if raw is None:
        raw = b"null"
        kept[HAS_NO_DATA] = True
    event["_meta"] = {META: kept}
    text = _encode(event)[:-1] + b',"data":' + raw + b"}"
    draft = make_draft({**event, "data": data}, text, index, check)
    return draft._replace(key=_key(attributes["source"], attributes["id"])) if keyed else draft


def _own_fields(kept: dict[str, Any], index: int | None) -> dict[str, Any]:
    """Take out the extensions that are fields of an event, and return them as such."""
    fields: dict[str, Any] = {field: kept.pop(name) for name, field in OWN.items() if name in kept}
    terminal = kept.pop(TERMINAL, False)
    # In binary mode everything is text.
    if terminal not in (True, False, "true", "false"):
        _refuse(index, "terminal must be true or false")
    if terminal in (True, "true"):
        fields[TERMINAL] = True
    return fields


def _key(source: str, id: str) -> str:
    """Return the idempotency key of what has this source and id: both as they are, or a digest where they are none."""
    key = f"<{source}>{id}"
    try:
        if ">" not in source:
            return check_key(key)
    except InvalidKey:
        pass
    digest = hashlib.sha256(f"{len(source)}:{source}{id}".encode()).hexdigest()
    return f"sha256:{digest}"


def _header_value(name: str, value: str) -> str:
    """Return an attribute's value as a header spells it: percent-encoded, perhaps in quotes."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        _refuse(None, f"{name} is not UTF-8")


def _refuse(index: int | None, fault: str) -> NoReturn:
    raise InvalidCloudEvent(fault, index)
