"""What NATS says of itself and of single streams, judged. Pure: the answers of the API in, findings out."""

from __future__ import annotations

import re
from typing import Any

from ringmere.log.api import nanoseconds
from ringmere.log.findings import Finding, bad, ok, warn
from ringmere.log.shape import HEADER_ROOM, StreamSettings

REQUIRED_VERSION = (2, 12)
NEARLY = 0.8
"""Share of a limit from which on somebody should know."""
FULL = 0.95
LAG = 1000
"""Messages that a copy or a follower may be behind."""
SILENCE_NS = 10_000_000_000
"""Longer than ten heartbeats of a follower."""
AWAY_NS = 5_000_000_000
"""Longer than five heartbeats of a copy: the server calls one that was killed late, but hardly ever offline."""
SKEW_NS = 500_000_000
"""Difference of clocks that is seen in delivery lag."""
WRONG_CLOCK_NS = 60_000_000_000

_VERSION = re.compile(r"(\d+)\.(\d+)")
_MIB = 1024 * 1024


def new_enough(version: str) -> bool:
    """Say whether a server of that version has what the log needs: atomic batches."""
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) >= REQUIRED_VERSION


def server_version(version: str) -> Finding:
    """Judge the version of the server that we are connected to."""
    if new_enough(version):
        return ok("server_version", version, "new enough")
    wanted = ".".join(map(str, REQUIRED_VERSION))
    return bad("server_version", version, "too old", f"upgrade nats-server to {wanted} or newer", final=True)


def account_limits(account: dict[str, Any], settings: StreamSettings, missing: int) -> list[Finding]:
    """Judge the account's limits; ``missing`` is the number of streams that are still to be made."""
    tier = account.get("tiers", {}).get(f"R{settings.replicas}") or account
    limits = tier.get("limits", {})
    rows = [
        ("storage", max(tier.get("storage", 0), tier.get("reserved_storage", 0)), limits.get("max_storage", -1)),
        ("memory", max(tier.get("memory", 0), tier.get("reserved_memory", 0)), limits.get("max_memory", -1)),
        ("streams", tier.get("streams", 0) + missing, limits.get("max_streams", -1)),
        ("consumers", tier.get("consumers", 0), limits.get("max_consumers", -1)),
    ]
    return [_limit(name, int(used), int(most)) for name, used, most in rows]


def _limit(name: str, used: int, most: int) -> Finding:
    size = _mib if name in ("storage", "memory") else str
    if most < 0:
        return ok("account_limits", name, f"{size(used)} taken, the account sets no limit")
    text = f"{size(used)} of {size(most)} taken"
    todo = f"raise the account's limit of {name}"
    # What is reserved may be all there is; what is counted needs room for the next one.
    if used > most or (used >= most and name in ("memory", "consumers")):
        return bad("account_limits", name, text, todo)
    if name in ("streams", "storage"):
        return ok("account_limits", name, text)
    return warn("account_limits", name, text, todo) if used >= NEARLY * most else ok("account_limits", name, text)


def event_size(max_payload: int, smallest: int | None, settings: StreamSettings) -> Finding:
    """Judge the largest event: ``smallest`` is the lowest size limit of the event streams, None without any."""
    whole = min(max_payload, smallest) if smallest and smallest > 0 else max_payload
    room = whole - min(HEADER_ROOM, whole // 4)
    asked = settings.max_event_bytes
    if asked and asked > room:
        return bad(
            "event_size",
            "events",
            f"events of {asked} bytes are asked for, but only {room} fit (max_payload of NATS is {max_payload})",
            f"raise max_payload of all NATS servers to {asked + HEADER_ROOM} or lower --max-event-bytes; "
            "streams that exist also need --reconcile",
        )
    if smallest and smallest > max_payload:
        return warn(
            "event_size",
            "events",
            f"the streams take messages of {smallest} bytes, NATS only {max_payload}",
            "was max_payload of NATS lowered? publishers of larger events are told 413",
        )
    return ok("event_size", "events", f"up to {asked or room} bytes")


def stream_shape(name: str, rows: list[str]) -> Finding:
    """Judge how a stream differs from what the settings ask for."""
    if not rows:
        return ok("stream_shape", name, "as the settings ask for")
    todo = "give the settings that it was made with, or start one instance with --reconcile (never for --shards)"
    return bad("stream_shape", name, "; ".join(rows), todo, final=True)


def replicas(name: str, info: dict[str, Any]) -> Finding:
    """Judge the copies of a stream."""
    asked = int(info["config"].get("num_replicas", 1))
    group = info.get("cluster") or {}
    leader, others = group.get("leader"), group.get("replicas") or []
    if group.get("replicas") is not None and not leader:
        return bad("replicas", name, "no leader", "bring the missing NATS servers back: nothing is stored until then")
    present = 1 + len(others)
    led = nanoseconds(info["ts"]) - nanoseconds(group.get("leader_since") or info["created"])
    away = [str(peer.get("name")) for peer in others if _is_away(peer, led)]
    if away:
        left = present - len(away)
        text = f"{left} of {asked} copies are there; not heard of: {', '.join(away)}"
        spare = "one more loss is survived" if left - 1 > asked // 2 else "the next loss stops it"
        return bad("replicas", name, text, f"bring the server back; {spare}")
    if present < asked:
        todo = "the cluster has too few servers with room for it: add one, or make room"
        return bad("replicas", name, f"{present} of {asked} copies exist", todo)
    late = [f"{peer.get('name')} by {peer.get('lag', 0)}" for peer in others if _is_late(peer)]
    if late:
        todo = "run it again; a copy that does not catch up has a slow disk or network"
        return warn("replicas", name, f"copies are behind: {', '.join(late)}", todo)
    return ok("replicas", name, f"{present} of {asked}, all up to date" if asked > 1 else "one copy")


def _is_away(peer: dict[str, Any], led_ns: int) -> bool:
    """Say whether a copy is gone: the leader, which has led for ``led_ns``, has not heard of it for long, or never."""
    silent = int(peer.get("active", 0))
    never = silent == 0 and not peer.get("current", False) and led_ns > AWAY_NS
    return bool(peer.get("offline")) or silent > AWAY_NS or never


def _is_late(peer: dict[str, Any]) -> bool:
    return not peer.get("current", False) or int(peer.get("lag", 0)) > LAG


def stream_room(name: str, info: dict[str, Any]) -> Finding:
    """Judge how full a stream is."""
    used, most = int(info["state"].get("bytes", 0)), int(info["config"].get("max_bytes", -1))
    if most <= 0:
        todo = "give it a limit (--max-bytes with --reconcile): a full disk stops a server"
        return warn("stream_room", name, f"{_mib(used)} used, without a limit", todo)
    text = f"{_mib(used)} of {_mib(most)} used"
    if used < FULL * most:
        return ok("stream_room", name, text)
    if info["config"].get("discard") == "new":
        return bad("stream_room", name, text, "raise max_bytes of this stream: full, it takes no more records")
    todo = "events leave before --ring-size or --log-ttl says so: raise --max-bytes, with --reconcile"
    return warn("stream_room", name, f"{text}: the oldest events make room for new ones", todo)


def consumers(name: str, info: dict[str, Any]) -> Finding:
    """Judge how many consumers a stream has."""
    used, most = int(info["state"].get("consumer_count", 0)), int(info["config"].get("max_consumers", -1))
    text = f"{used} in use" if most <= 0 else f"{used} of {most} in use"
    if 0 < most <= used:
        return bad("consumers", name, text, "long replays fall back to slower reads: see who else makes consumers here")
    if most > 0 and used >= NEARLY * most:
        return warn("consumers", name, text, "see who else makes consumers here")
    return ok("consumers", name, text)


def sources(name: str, info: dict[str, Any]) -> list[Finding]:
    """Judge what a stream follows: its mirror, or its sources."""
    mirror = info.get("mirror")
    age = nanoseconds(info["ts"]) - nanoseconds(info["created"])
    return [_source(name, each, age) for each in [*([mirror] if mirror else []), *(info.get("sources") or [])]]


def _source(name: str, follows: dict[str, Any], age: int) -> Finding:
    of, lag, silent = follows.get("name"), int(follows.get("lag", 0)), int(follows.get("active", -1))
    error = (follows.get("error") or {}).get("description")
    if error:
        return bad("sources", name, f"cannot follow {of}: {error}", "see the NATS server's log for that stream")
    if silent < 0 and age < SILENCE_NS:
        return ok("sources", name, f"has just been made to follow {of}")
    # While it is cut off the lag stays what it was last.
    if silent < 0 or silent > SILENCE_NS:
        heard = "never heard of it" if silent < 0 else f"silent for {silent / 1e9:.0f} s"
        todo = "look at the servers, or the link, between the two; run it again"
        return bad("sources", name, f"follows {of}: {heard}", todo)
    if lag > LAG:
        return warn("sources", name, f"follows {of}: {lag} messages behind", "run it again: it should be catching up")
    return ok("sources", name, f"follows {of}: {lag} messages behind, heard {silent / 1e9:.1f} s ago")


def clock(about: str, log_time: str, before_ns: int, after_ns: int) -> Finding:
    """Judge the log's clock against two readings of ours around it, nanoseconds since 1970."""
    theirs = nanoseconds(log_time)
    skew = max(before_ns - theirs, theirs - after_ns, 0)
    if skew <= SKEW_NS:
        return ok("clock", about, f"within {max(skew, after_ns - before_ns) / 1e9:.3f} s of ours")
    text = f"{'behind' if theirs < before_ns else 'ahead of'} ours by {skew / 1e9:.1f} s"
    todo = "mend time synchronisation on this machine or on the NATS servers; delivery lag contains the difference"
    return (bad if skew > WRONG_CLOCK_NS else warn)("clock", about, text, todo)


def durability(settings: StreamSettings) -> Finding:
    """Say what an acknowledged event survives; what a server does with its disk is not told to clients."""
    if settings.replicas >= 3:
        text = f"{settings.replicas} copies: an acknowledged event survives the loss of {(settings.replicas - 1) // 2}"
    else:
        text = (
            "one copy: survives kill -9; the loss of its disk is the loss of the log, and a power loss takes up to two "
            "minutes unless the server has `sync_interval: always` (not visible from here)"
        )
    return ok("durability", "log", text)


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
