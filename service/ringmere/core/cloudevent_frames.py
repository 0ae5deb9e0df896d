"""CloudEvents 1.0 out: an event's frame with the event as a CloudEvent in JSON (contract 5.3)."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ringmere.core.backlog import Frame
from ringmere.core.cloudevents import HAS_NO_DATA, IS_BASE64, META, OWN, TERMINAL, attributes_fault
from ringmere.core.frames import envelope_size

_END = b"\n\n"


class _Envelope(msgspec.Struct):
    type: str
    data: Raw
    meta: dict[str, Raw] = msgspec.field(name="_meta")
    id: int | UnsetType = UNSET
    originatorClientId: str | UnsetType = UNSET  # noqa: N815
    promptId: str | UnsetType = UNSET  # noqa: N815
    terminal: bool = False


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def cloudevent_frame(frame: Frame, session: str) -> Frame:
    """Return a frame of ``session`` with its event as a CloudEvent; a control frame stays as it is.

    What was published as a CloudEvent keeps its id, source and other attributes. An event that was not has its id
    for id, and the session's path for source.
    """
    if not frame.seq and not frame.size:
        return frame
    begin = len(frame.sse) - len(_END) - (frame.size or envelope_size(frame.sse))
    json = _cloudevent(frame.sse[begin : -len(_END)], session)
    return Frame(frame.seq, frame.sse[:begin] + json + _END, len(json))


def _cloudevent(envelope: bytes, session: str) -> bytes:
    event = _decode_envelope(envelope)
    attributes = _kept(event.meta.get(META)) or _made(event, envelope, session)
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
    return b'%b,"%b":%b}' % (text[:-1], b"data_base64" if is_base64 else b"data", bytes(event.data))


def _kept(raw: Raw | None) -> dict[str, Any] | None:
    """Return the attributes that the event was published with; anybody may have written something else there."""
    value = None if raw is None else _decode(raw)
    return value if isinstance(value, dict) and attributes_fault(value) is None else None


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
