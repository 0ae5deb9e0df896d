"""What the streams must look like, and in words how an existing one differs (contract 1.4, 1.6, 1.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ringmere.core.limits import MAX_RING_SIZE, MAX_SHARDS, MIB
from ringmere.log.shards import event_subject, head_name, live_subject, stream_name

DUPLICATE_WINDOW = 120.0
MAX_CONSUMERS = 10_000
RING_FROM = "ringmere.ring_from"
"""Metadata of an event stream: its last sequence when its rings were enlarged."""
HEADER_ROOM = 64 * 1024
"""Bytes of a message kept free for headers (contract 2.6)."""
HEADS_OFF = "it exists, but heads are switched off (head_ttl 0)"
"""How a head stream differs that should not be there."""
HEAD_SHARE = 8
"""A head stream may hold an eighth of what its event stream may."""
SNAPSHOT_SHARE = 16
"""All snapshots together may hold a sixteenth of what the event streams may."""
MIN_STREAM_BYTES = 64 * MIB
TAILS = ("auto", "republish", "consumer")

_DEFAULTS: dict[str, Any] = {
    "allow_direct": False,
    "allow_atomic": False,
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
    "allow_msg_schedules": False,
    "deny_delete": False,
    "deny_purge": False,
    "mirror_direct": False,
    "sealed": False,
    "no_ack": False,
    "max_age": 0,
    "republish": None,
    "mirror": None,
    "sources": None,
    "subject_transform": None,
    "persist_mode": "default",
    "subject_delete_marker_ttl": 0,
    "allow_msg_counter": False,
    "max_msgs": -1,
}
"""What a field that the server leaves out of its answer means."""
_UNLIMITED = ("max_bytes", "max_msg_size", "max_consumers", "max_msgs", "max_msgs_per_subject")


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What the operator asks of the streams; sizes in bytes, times in seconds.

    ``max_bytes`` is what all event streams together may hold, None is 80 % of the store. ``max_event_bytes``
    None takes what the server takes. Raises ``ValueError`` for numbers outside the contract's ranges.
    """

    ring_size: int = 8000
    log_ttl: float = 3600.0
    shards: int = 1
    replicas: int = 1
    head_ttl: float = 7 * 86400.0
    max_bytes: int | None = None
    max_event_bytes: int | None = None
    snapshot_bytes: int | None = None
    """What all snapshots together may take, None is a sixteenth of what event streams ask for."""
    max_snapshot_bytes: int | None = None
    """Largest state of a snapshot, None takes what the server takes."""
    cancel_ttl: float = 3600.0
    """Seconds that a task's cancel flag is kept (contract 10.3)."""
    duplicate_window: float = DUPLICATE_WINDOW
    max_consumers: int = MAX_CONSUMERS
    reconcile: bool = False
    first_epoch: int = 0
    tail: str = "auto"
    """Where live messages come from: ``republish`` (the streams must), ``consumer``, ``auto`` (as the streams do)."""

    def __post_init__(self) -> None:
        ranges = {
            "ring_size": (self.ring_size, 1, MAX_RING_SIZE),
            "shards": (self.shards, 1, MAX_SHARDS),
            "replicas": (self.replicas, 1, 5),
        }
        for name, (value, lowest, highest) in ranges.items():
            if not lowest <= value <= highest:
                raise ValueError(f"{name} must be {lowest} to {highest}, not {value}")
        if self.tail not in TAILS:
            raise ValueError(f"tail must be one of {', '.join(TAILS)}, not {self.tail}")
        if self.log_ttl < 0 or self.head_ttl < 0:
            raise ValueError("log_ttl and head_ttl must not be negative")
        if self.cancel_ttl <= 0:
            raise ValueError("cancel_ttl must be more than 0")

    @property
    def window(self) -> float:
        """The duplicate window: never longer than a message is kept."""
        return min(self.duplicate_window, self.log_ttl) if self.log_ttl else self.duplicate_window


def event_stream(settings: StreamSettings, shard: int, max_bytes: int, max_msg_size: int) -> dict[str, Any]:
    """Return the wanted configuration of a shard's event stream (contract 1.4)."""
    return {
        "name": stream_name(shard),
        "subjects": [event_subject(shard, "*")],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "num_replicas": settings.replicas,
        "max_msgs": -1,
        "max_msgs_per_subject": settings.ring_size + 1,
        "max_age": _nanoseconds(settings.log_ttl),
        "max_bytes": max_bytes,
        "max_msg_size": max_msg_size,
        "max_consumers": settings.max_consumers,
        "duplicate_window": _nanoseconds(settings.window),
        "allow_direct": True,
        "allow_atomic": True,
        "deny_delete": True,
        "deny_purge": False,
        "republish": None if settings.tail == "consumer" else _republish(shard),
        # Each of these lets one publisher empty a shard or dig holes into it.
        "allow_rollup_hdrs": False,
        "allow_msg_ttl": False,
        "allow_msg_schedules": False,
    }


class Wanted(NamedTuple):
    """What a stream should look like; what is named in ``ignore`` stays as it was when the stream was made."""

    config: dict[str, Any]
    ignore: frozenset[str] = frozenset()

    def differences(self, found: dict[str, Any]) -> list[str]:
        """Name each property in which the found configuration is another."""
        return differences(self.config, found, self.ignore)


def wanted_events(
    settings: StreamSettings, shard: int, max_bytes: int, max_msg_size: int, found: dict[str, Any] | None
) -> Wanted:
    """Return what a shard's event stream should look like, given the configuration it has (None: there is none)."""
    config = event_stream(settings, shard, max_bytes, max_msg_size)
    if found is not None:
        config["republish"] = accepted_republish(settings, shard, found.get("republish"))
    # A number that was derived, not given, stays what it was when the stream was made.
    derived = {"max_bytes": settings.max_bytes, "max_msg_size": settings.max_event_bytes}
    return Wanted(config, frozenset(field for field, given in derived.items() if given is None))


def wanted_heads(settings: StreamSettings, shard: int, origin_bytes: int) -> Wanted:
    """Return what a shard's head stream should look like beside an event stream of at most ``origin_bytes``."""
    limit = max(origin_bytes // HEAD_SHARE, MIB) if origin_bytes > 0 else -1
    return Wanted(head_stream(settings, shard, limit), frozenset({"max_bytes"}))


def accepted_republish(settings: StreamSettings, shard: int, found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what an existing stream should republish: what it does, wherever the tail can live with that.

    Without republishing only ``republish`` cannot. Republishing somewhere else suits nobody.
    """
    ours = _republish(shard)
    if settings.tail == "republish":
        return ours
    if found is None or _plain("republish", found) == ours:
        return found
    return None if settings.tail == "consumer" else ours


def _republish(shard: int) -> dict[str, Any]:
    return {"src": event_subject(shard, "*"), "dest": live_subject(shard, "{{wildcard(1)}}")}


def head_stream(settings: StreamSettings, shard: int, max_bytes: int) -> dict[str, Any]:
    """Return the wanted configuration of a shard's head stream (contract 1.8).

    It takes the event stream as a source, not as its mirror: a mirror takes part in answering direct reads
    of an origin that has them on, whatever its configuration asks for, and would answer with the one message
    it keeps of a subject. A source has its own sequences; each message names the origin's in a header.
    """
    return {
        "name": head_name(shard),
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "num_replicas": settings.replicas,
        "sources": [{"name": stream_name(shard)}],
        "max_msgs_per_subject": 1,
        "max_age": _nanoseconds(settings.head_ttl),
        "max_bytes": max_bytes,
        "allow_direct": True,
    }


def differences(wanted: dict[str, Any], found: dict[str, Any], ignore: frozenset[str] = frozenset()) -> list[str]:
    """Name each wanted property that the found configuration does not have; extra foreign ones that matter, too."""
    names = [*wanted, *(name for name in _DEFAULTS if name not in wanted)]
    rows = []
    for name in names:
        want = _plain(name, wanted.get(name, _DEFAULTS.get(name)))
        have = _plain(name, found.get(name, _DEFAULTS.get(name)))
        if want != have and name not in ignore:
            rows.append(f"{name} is {_shown(name, have)}, wanted {_shown(name, want)}")
    return rows


def _plain(name: str, value: Any) -> Any:
    if name in _UNLIMITED and (value is None or value <= 0):
        return -1
    if isinstance(value, dict):
        return {key: inner for key, inner in value.items() if inner}
    if isinstance(value, list):
        return [_plain("", inner) for inner in value]
    return value


def _shown(name: str, value: Any) -> str:
    if name in ("max_age", "duplicate_window") and isinstance(value, int):
        return f"{value / 1e9:g} s"
    return "none" if value is None else str(value)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000_000)
