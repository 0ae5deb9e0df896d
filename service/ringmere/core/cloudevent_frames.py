"""CloudEvents 1.0 out: frames whose events are CloudEvents in JSON (contract 5.3).

They are made of the frames that other readers get, so nothing has to be kept in a second form. All readers are handed
the same bytes at about the same time, live or in a replay: the newest few results serve the others, but for very long
ones.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ringmere.core.cloudevents import GIVEN_OUT, HAS_NO_DATA, IS_BASE64, META, OWN, TERMINAL, attributes_fault
from ringmere.core.event import CONTROL_TYPES
from ringmere.core.limits import KEPT_BLOB_BYTES, RESHAPED_BLOBS

_END = b"\n\n"
_DATA_LINE = b"\ndata: "
_EVENT_LINE = b"event: "
_SAID_BY_EVENT = frozenset({TERMINAL, *OWN, *GIVEN_OUT})
_CONTROLS = frozenset(type.encode() for type in CONTROL_TYPES)


class _Envelope(msgspec.Struct):
    type: str
    data: Raw
    meta: dict[str, Raw] = msgspec.field(name="_meta")
    id: int | UnsetType = UNSET
    sessionId: str | UnsetType = UNSET  # noqa: N815
    originatorClientId: str | UnsetType = UNSET  # noqa: N815
    promptId: str | UnsetType = UNSET  # noqa: N815
    terminal: bool = False


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def cloudevent_frames(raw: bytes, session: str) -> tuple[bytes, ...]:
    """Return the frames that are joined in ``raw``, each event as a CloudEvent; control frames stay as they are.

    What was published as a CloudEvent keeps its id, source and other attributes. An event that was not has its id
    for id, and its session's path for source. ``session`` is that of events that do not name theirs.
    """
    return newest_reshaped(raw, session) if len(raw) <= KEPT_BLOB_BYTES else _reshaped(raw, session)


def _reshaped(raw: bytes, session: str) -> tuple[bytes, ...]:
    return tuple([_frame(block, session) for block in raw.split(_END)[:-1]])


newest_reshaped = lru_cache(maxsize=RESHAPED_BLOBS)(_reshaped)
"""The same, with the newest results kept whatever their length."""


def _frame(block: bytes, session: str) -> bytes:
    head, line, envelope = block.partition(_DATA_LINE)
    if not line or head.rpartition(_EVENT_LINE)[2] in _CONTROLS:
        return block + _END
    return b"%b%b%b%b" % (head, line, _cloudevent(envelope, session), _END)


def _cloudevent(envelope: bytes, session: str) -> bytes:
    event = _decode_envelope(envelope)
    if event.sessionId is not UNSET:
        session = event.sessionId
    data = bytes(event.data)
    attributes = _kept(event.meta.get(META), data) or _made(event, envelope, session)
    is_base64 = attributes.pop(IS_BASE64, False)
    has_no_data = attributes.pop(HAS_NO_DATA, False)
    attributes["type"] = event.type
    for name, field in OWN.items():
        if (value := getattr(event, field)) is not UNSET:
            attributes[name] = value
    if event.terminal:
        attributes[TERMINAL] = True
    attributes["ringmeresession"] = session
    if event.id is not UNSET:
        attributes["ringmereid"] = str(event.id)
    text = _encode(attributes)
    if has_no_data:
        return text
    return b'%b,"%b":%b}' % (text[:-1], b"data_base64" if is_base64 else b"data", data)


def _kept(raw: Raw | None, data: bytes) -> dict[str, Any] | None:
    """Return the attributes that the event was published with; anybody may have written something else there."""
    value = None if raw is None else _decode(raw)
    if not isinstance(value, dict) or attributes_fault(value) is not None:
        return None
    if (IS_BASE64 in value and data[:1] != b'"') or (HAS_NO_DATA in value and data != b"null"):
        return None
    # Fields of the event itself: what it does not say, its attributes do not say for it.
    return {name: item for name, item in value.items() if name not in _SAID_BY_EVENT}


def _made(event: _Envelope, envelope: bytes, session: str) -> dict[str, Any]:
    """Return the attributes of an event that was published as something else."""
    # An event that was not stored has no id, and a CloudEvent must have one.
    id = f"unstored-{hashlib.sha256(envelope).hexdigest()[:16]}" if event.id is UNSET else str(event.id)
    attributes = {"specversion": "1.0", "id": id, "source": f"/session/{session}"}
    time = _rfc3339(_decode(event.meta["serverTimestamp"]))
    return {**attributes, "time": time} if time is not None else attributes


def _rfc3339(milliseconds: float) -> str | None:
    """Return a time as text, None when it is a publisher's number that is no time."""
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
