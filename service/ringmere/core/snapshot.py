"""Snapshots: a session's state up to an event, stored by somebody who knows it (contract 10.1).

A client that loads one and resumes behind its last event has everything. What a state looks like is its
publisher's business; it is JSON as strict as an event's data, and its bytes are passed through.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Raw

from ringmere.core.cursor import MAX_ID, EpochTable, SubjectBounds, split_id
from ringmere.core.errors import InvalidSnapshot
from ringmere.core.strict_json import load, one_line

_FIELDS = ("lastEventId", "state", "final")


class SnapshotDraft(NamedTuple):
    """A checked snapshot to store: ``state`` is JSON on one line, and covers everything up to ``last_event_id``.

    ``final`` says that nothing is to come behind it.
    """

    last_event_id: int
    state: bytes
    final: bool = False


class _Body(msgspec.Struct):
    """The part of a body that is taken as its bytes."""

    state: Raw


_decode_body = msgspec.json.Decoder(_Body).decode


def parse_snapshot(body: bytes) -> SnapshotDraft:
    """Return the snapshot that a request's body holds.

    Raises :class:`~ringmere.core.errors.MalformedBody` when it is not strict JSON (contract 2.1),
    :class:`InvalidSnapshot` when it is no snapshot.
    """
    value = load(body)
    if not isinstance(value, dict):
        raise InvalidSnapshot("a snapshot is a JSON object")
    unknown = next((name for name in value if name not in _FIELDS), None)
    if unknown is not None:
        raise InvalidSnapshot(f"{unknown[:64]!r} is no field of a snapshot")
    public_id = value.get("lastEventId")
    if type(public_id) is not int or not 0 <= public_id <= MAX_ID:
        raise InvalidSnapshot("'lastEventId' must be an event id, or 0 for the state before the first event")
    if "state" not in value:
        raise InvalidSnapshot("'state' is required")
    final = value.get("final", False)
    if not isinstance(final, bool):
        raise InvalidSnapshot("'final' must be true or false")
    return SnapshotDraft(public_id, one_line(bytes(_decode_body(body).state)), final)


def covers(public_id: int, table: EpochTable, bounds: SubjectBounds, head: int, *, present: bool) -> bool:
    """Say whether a session's state can be that behind ``public_id``, by leader reads.

    ``head`` is the last sequence that the head stream knows, 0 without one; ``present`` says whether the event was
    stored before ``bounds`` were read. What was purged, is still to come, or was another session's is no place for a
    state; of what has left the ring nobody can tell whose it was.
    """
    if public_id == 0:
        return True
    sequence = split_id(public_id)[1]
    newest = bounds.last if bounds.stored else head
    if not table.known(public_id) or not bounds.purged_to < sequence <= (newest or bounds.tail):
        return False
    return present or bounds.stored == 0 or sequence < bounds.first
