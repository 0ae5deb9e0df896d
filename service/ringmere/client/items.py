"""What a followed stream gives its user: events, control frames, and news about the connection."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ringmere.client.errors import BrokenStream
from ringmere.core.cursor import MAX_ID
from ringmere.core.decoder import Message
from ringmere.core.event import TERMINAL_TYPES

RESYNC = "state_resync_required"
SNAPSHOT = "session_snapshot"
ENDING = frozenset({"client_evicted", "stream_error", "server_draining"})
"""Frames after which the gateway ends the stream, though the session goes on."""


class Event(NamedTuple):
    """An event of the session. ``envelope`` is the whole JSON object as it came (contract 5.1).

    ``in_sync`` is False between a ``state_resync_required`` and the user's reload: show such an event if
    you like, but do not apply it to state that has a hole.
    """

    id: int
    type: str
    data: Any
    envelope: dict[str, Any]
    in_sync: bool = True

    @property
    def session(self) -> str | None:
        """The session it is of, on a stream of many (contract 7.1)."""
        return self.envelope.get("sessionId")

    @property
    def terminal(self) -> bool:
        """Whether the session is closed by this event, unless a later one reopens it (contract 2.9)."""
        return self.envelope.get("terminal") is True or self.type in TERMINAL_TYPES


class Snapshot(NamedTuple):
    """A stored state that the gateway has sent: take it for what there was; what follows comes behind its id (10.2)."""

    last_event_id: int
    state: Any


class Control(NamedTuple):
    """A frame of the gateway itself: no id, never part of the log (contract 5.2).

    So comes an event that could not be stored, too: show it, but do not count on others having seen it.
    """

    type: str
    data: dict[str, Any]
    envelope: dict[str, Any]

    @property
    def session(self) -> str | None:
        """The session it is about, on a stream of many; None when it is about the stream."""
        return self.envelope.get("sessionId", self.data.get("sessionId"))

    @property
    def degraded(self) -> bool:
        """Whether it is a publisher's event that is in no log (contract 8.2); its data is ``envelope["data"]``."""
        meta = self.envelope.get("_meta")
        return isinstance(meta, dict) and meta.get("degraded") is True

    @property
    def snapshot(self) -> Snapshot | None:
        """The stored state that it brings, None for any other frame."""
        public_id = self.data.get("lastEventId")
        if self.type != SNAPSHOT or type(public_id) is not int or not 0 <= public_id <= MAX_ID:
            return None
        return Snapshot(public_id, self.data.get("state"))


class Resync(NamedTuple):
    """Why state has to be loaded anew: the verdict on the cursor (contract 4)."""

    reason: str
    detail: str | None
    last_delivered_id: int | None
    earliest_available_id: int | None

    @property
    def stale(self) -> bool:
        """Whether the stored state does not mend it: what came right behind that state is lost as well (10.2)."""
        return self.detail == "snapshot_stale"


class Connected(NamedTuple):
    """A stream is open. ``cursor`` is what was asked for; ``attempt`` counts connections from 1."""

    attempt: int
    cursor: int | str | None
    stream_id: str | None


class Waiting(NamedTuple):
    """The stream is down and comes back after ``delay`` seconds; ``cause`` is for people."""

    delay: float
    cause: str
    failures: int


def item_of(message: Message) -> Event | Control:
    """Return the item that a message holds; raise :class:`BrokenStream` when it is none of the protocol's."""
    try:
        envelope = msgspec.json.decode(message.data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BrokenStream(f"data of a {message.type!r} frame is not JSON: {error}") from error
    if not isinstance(envelope, dict):
        raise BrokenStream(f"data of a {message.type!r} frame is no JSON object")
    if "id" in envelope:
        public_id = envelope["id"]
        if type(public_id) is not int or not 0 < public_id <= MAX_ID:
            raise BrokenStream(f"{public_id!r:.40} is no event id")
        return Event(public_id, message.type, envelope.get("data"), envelope)
    data = envelope.get("data")
    return Control(message.type, data if isinstance(data, dict) else {}, envelope)


def resync_of(control: Control) -> Resync:
    """Return the verdict that a ``state_resync_required`` frame tells."""
    data = control.data

    def number(name: str) -> int | None:
        value = data.get(name)
        return value if type(value) is int else None

    detail = data.get("detail")
    return Resync(
        str(data.get("reason")),
        detail if isinstance(detail, str) else None,
        number("lastDeliveredId"),
        number("earliestAvailableId"),
    )


def retry_hint(control: Control) -> float:
    """Return the seconds that an ending frame asks to wait, 0 when it says nothing."""
    for name in ("retryAfterMs", "retryMs"):
        value = control.data.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return max(0.0, value / 1000)
    return 0.0
