"""Which stream keeps a session, and every subject and stream name (contract 1.4, 1.8).

The shard is NATS's own ``partition`` function of the session id, so a server's subject mapping and this
code send a session to the same stream.
"""

from __future__ import annotations

from ringmere.core.limits import MAX_SHARDS

PROBE = "!probe"
"""Stands in a subject where a session id would, and can be none: for what belongs to no session."""

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def _partition(session: str, shards: int) -> int:
    value = _FNV_OFFSET
    for byte in session.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value % shards


def shard_of(session: str, shards: int) -> int:
    """Return the shard of a session among ``shards``: FNV-1a of 32 bits, modulo, as nats-server computes it."""
    return 0 if shards == 1 else _partition(session, shards)


def stream_name(shard: int) -> str:
    """Return the name of the stream that keeps a shard's events."""
    return f"RINGMERE_{shard}"


def head_name(shard: int) -> str:
    """Return the name of the stream that keeps the last event of each session of a shard."""
    return f"RINGMERE_HEAD_{shard}"


def event_subject(shard: int, session: str) -> str:
    """Return the subject that a session's events are stored under; ``*`` stands for all sessions."""
    return f"ringmere.events.{shard}.{session}"


def live_subject(shard: int, session: str) -> str:
    """Return the subject that stored events are republished on."""
    return f"ringmere.live.{shard}.{session}"


def degraded_subject(shard: int, session: str) -> str:
    """Return the subject of events that go out while nothing can be stored (contract 8.2)."""
    return f"ringmere.degraded.{shard}.{session}"


def control_subject(name: str) -> str:
    """Return the subject on which the instance that has something of that name is asked."""
    return f"ringmere.stream.{name}"


def publish_subject(session: str) -> str:
    """Return the subject that publishers may use without knowing the number of shards."""
    return f"ringmere.publish.{session}"


def session_of(subject: str) -> str:
    """Return the session of any of the above subjects."""
    return subject.rsplit(".", 1)[-1]


def server_mappings(shards: int) -> str:
    """Return the lines for a server's (or account's) configuration that map publish subjects to shards.

    Raises ``ValueError`` outside 1..64.
    """
    if not 1 <= shards <= MAX_SHARDS:
        raise ValueError(f"shards must be 1 to {MAX_SHARDS}")
    target = event_subject(0, "{{wildcard(1)}}")
    if shards > 1:
        target = target.replace(".0.", f".{{{{partition({shards},1)}}}}.", 1)
    return f'mappings {{\n  "{publish_subject("*")}": "{target}"\n}}\n'
