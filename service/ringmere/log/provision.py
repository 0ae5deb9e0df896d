"""Creating single streams, or refusing those that exist with another shape (contract 1.4, 1.6, 1.8)."""

from __future__ import annotations

from typing import Any, NamedTuple

from ringmere.core.cursor import MAX_SEQUENCE
from ringmere.core.errors import LogRefused, RingmereError, StreamShapeDiffers
from ringmere.core.limits import MIB
from ringmere.log import api
from ringmere.log.checkup import new_enough
from ringmere.log.connect import Connection, NoResponders
from ringmere.log.requests import NotPermitted
from ringmere.log.shape import (
    HEAD_SHARE,
    HEADER_ROOM,
    HEADS_OFF,
    MIN_STREAM_BYTES,
    RING_FROM,
    SNAPSHOT_SHARE,
    StreamSettings,
    Wanted,
    wanted_events,
    wanted_heads,
)
from ringmere.log.shards import head_name, stream_name

REQUIRED_LEVEL = 2
"""JetStream API level with atomic batches: nats-server 2.12."""
UNLIMITED_STORE = 16 * 1024 * MIB
"""Bytes asked for when no limit of the account says how large the store is; halved until the server grants it."""

LEAST_BYTES = MIN_STREAM_BYTES // HEAD_SHARE
"""A stream whose limit would have to be lower is not made."""


class ShardInfo(NamedTuple):
    """A shard's event stream as its leader described it at start."""

    shard: int
    stream: str
    created: str
    first_seq: int
    last_seq: int
    max_msg_size: int
    republishes: bool


async def require_jetstream(connection: Connection) -> dict[str, Any]:
    """Return the account's JetStream limits. Raises ``LogRefused`` when JetStream is off or too old."""
    try:
        account = await api.call(connection, "INFO")
    except NotPermitted:
        # A least-privilege user may be without this subject; then only the server's version can be looked at.
        account = {}
    except NoResponders as error:
        raise LogRefused("JetStream is not enabled on this NATS server") from error
    except api.ApiError as error:
        if error.err_code in (api.NOT_ENABLED, api.NOT_ENABLED_FOR_ACCOUNT):
            raise LogRefused(f"JetStream cannot be used with this account: {error.words}") from error
        raise
    level = account.get("api", {}).get("level")
    if not (new_enough(connection.server_version) if level is None else level >= REQUIRED_LEVEL):
        raise LogRefused(
            f"the NATS server ({connection.server_version}) is too old: 2.12 or newer is needed for atomic batches"
        )
    return dict(account)


async def ensure_shards(connection: Connection, settings: StreamSettings) -> list[ShardInfo]:
    """Create the event and head streams of all shards, or check those that exist.

    Raises ``StreamShapeDiffers`` with every difference by name unless ``settings.reconcile`` and the server
    lets each of them be changed, and ``LogRefused`` for what no setting can mend.
    """
    account = await require_jetstream(connection)
    share, size = event_limits(connection, settings, account)
    return [await _ensure_shard(connection, settings, shard, share, size) for shard in range(settings.shards)]


def event_limits(connection: Connection, settings: StreamSettings, account: dict[str, Any]) -> tuple[int, int]:
    """Return what is asked for an event stream: its bytes, and those of its largest message."""
    size = connection.max_payload
    if settings.max_event_bytes is not None:
        size = min(size, settings.max_event_bytes + HEADER_ROOM)
    return _store(account, settings) // settings.shards, size


def snapshot_limit(settings: StreamSettings, account: dict[str, Any]) -> int:
    """Return how many bytes are asked for all snapshots together."""
    return settings.snapshot_bytes or max(_store(account, settings) // SNAPSHOT_SHARE, MIB)


async def ensure_stream(connection: Connection, wanted: Wanted, *, reconcile: bool) -> Any:
    """Create one stream or check the existing one, and return what the server says of it."""
    config = wanted.config
    name = config["name"]
    found = await api.stream_info(connection, name)
    if found is None:
        try:
            return await api.call(connection, f"STREAM.CREATE.{name}", config)
        except api.ApiError as error:
            if error.err_code != api.NAME_IN_USE:
                raise _creation_error(name, error) from error
            # Another instance was a moment faster.
            found = await api.stream_info(connection, name)
            if found is None:
                raise
    rows = wanted.differences(found["config"])
    if not rows:
        unfinished = (found["config"].get("metadata") or {}).get(RING_FROM) == str(MAX_SEQUENCE)
        return await _enlarge_rings(connection, found["config"], rows) if unfinished else found
    if not reconcile:
        raise StreamShapeDiffers(name, rows)
    changed = {**found["config"], **{key: value for key, value in config.items() if key not in wanted.ignore}}
    if 0 < found["config"].get("max_msgs_per_subject", -1) < changed.get("max_msgs_per_subject", -1):
        return await _enlarge_rings(connection, changed, rows)
    return await _update(connection, changed, rows)


async def _enlarge_rings(connection: Connection, config: dict[str, Any], rows: list[str]) -> Any:
    """Update a stream to larger rings, and note up to where their lack of a fence proves nothing.

    Until it is known which sequence is the last that a smaller ring may have evicted for, none is trusted.
    """
    metadata = dict(config.get("metadata") or {})
    config["metadata"] = {**metadata, RING_FROM: str(MAX_SEQUENCE)}
    info = await _update(connection, config, rows)
    config["metadata"] = {**metadata, RING_FROM: str(info["state"]["last_seq"])}
    return await _update(connection, config, rows)


async def reset_head(connection: Connection, settings: StreamSettings, shard: int) -> None:
    """Make a shard's head stream anew: it stands still when its origin starts over or loses its end."""
    if not settings.head_ttl:
        return
    origin = await api.stream_info(connection, stream_name(shard))
    if origin is not None:
        await _delete(connection, head_name(shard))
        await create_fitting(connection, wanted_heads(settings, shard, origin["config"]["max_bytes"]).config)


async def _ensure_shard(
    connection: Connection, settings: StreamSettings, shard: int, share: int, size: int
) -> ShardInfo:
    found = await api.stream_info(connection, stream_name(shard))
    wanted = wanted_events(settings, shard, share, size, found["config"] if found else None)
    if found is None:
        await create_fitting(connection, wanted.config)
    info = await ensure_stream(connection, wanted, reconcile=settings.reconcile)
    config, state = info["config"], info["state"]
    await _ensure_head(connection, settings, shard, config["max_bytes"])
    limit = config["max_msg_size"] if config["max_msg_size"] > 0 else connection.max_payload
    republishes = bool(config.get("republish"))
    return ShardInfo(shard, config["name"], info["created"], state["first_seq"], state["last_seq"], limit, republishes)


async def _ensure_head(connection: Connection, settings: StreamSettings, shard: int, origin_bytes: int) -> None:
    found = await api.stream_info(connection, head_name(shard))
    if not settings.head_ttl:
        if found is not None:
            if not settings.reconcile:
                raise StreamShapeDiffers(head_name(shard), [HEADS_OFF])
            await _delete(connection, head_name(shard))
        return
    wanted = wanted_heads(settings, shard, origin_bytes)
    if found is None:
        await create_fitting(connection, wanted.config)
    elif found["config"].get("mirror") and settings.reconcile:
        await reset_head(connection, settings, shard)
    await ensure_stream(connection, wanted, reconcile=settings.reconcile)


async def create_fitting(connection: Connection, wanted: dict[str, Any], least: int = LEAST_BYTES) -> None:
    """Create a stream; when the store has no room for its byte limit, ask for half, and half again, until ``least``."""
    limit = wanted["max_bytes"]
    while True:
        try:
            await api.call(connection, f"STREAM.CREATE.{wanted['name']}", {**wanted, "max_bytes": limit})
            return
        except api.ApiError as error:
            if error.err_code == api.NAME_IN_USE:
                return
            if not _no_room(error) or limit // 2 < least:
                raise _creation_error(wanted["name"], error) from error
            limit //= 2


def _no_room(error: api.ApiError) -> bool:
    return error.err_code == api.NO_STORAGE or (
        error.err_code == api.NO_PEERS and "insufficient storage" in error.words
    )


def _creation_error(name: str, error: api.ApiError) -> RingmereError:
    """Return what the failure to create a stream means: try later, or never with these settings."""
    if error.status == 503 or (error.err_code == api.NO_PEERS and not _no_room(error)):
        return error
    return LogRefused(f"the stream {name} cannot be created: {error.words}")


async def _update(connection: Connection, config: dict[str, Any], rows: list[str]) -> Any:
    try:
        return await api.call(connection, f"STREAM.UPDATE.{config['name']}", config)
    except api.ApiError as error:
        if error.status >= 500 and error.err_code != 10052:
            raise
        raise StreamShapeDiffers(config["name"], [*rows, f"NATS refuses the change: {error.words}"]) from error


async def _delete(connection: Connection, name: str) -> None:
    try:
        await api.call(connection, f"STREAM.DELETE.{name}")
    except api.ApiError as error:
        if error.err_code != api.STREAM_NOT_FOUND:
            raise


def _store(account: dict[str, Any], settings: StreamSettings) -> int:
    """Return how many bytes all event streams together ask for."""
    if settings.max_bytes is not None:
        return settings.max_bytes
    tier = account.get("tiers", {}).get(f"R{settings.replicas}")
    limits = (tier or account).get("limits", {})
    limit = int(limits.get("max_storage", -1))
    if limit <= 0:
        return UNLIMITED_STORE * 8 // 10
    copies = 1 if tier else settings.replicas
    return max(limit * 8 // 10 // copies, settings.shards)
