"""Who is furthest behind, over all sessions of an instance: answered as rows, for a label would cost a series each."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ringmere.core.backlog import State
from ringmere.hub.subscriber import Subscriber

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.lifetime import Lifetime


def describe_laggards(paused: Collection[Lifetime], limit: int) -> list[dict[str, Any]]:
    """Return at most ``limit`` of the readers whose transport is full, the longest backlog first.

    All others have been handed all there is, or read the log as fast as they can: to find them would take a walk
    over everybody. One that reads the log through a full transport has no backlog and comes last.
    """
    return [_row(reader) for reader in heapq.nlargest(limit, paused, key=_weight) if not reader.ended]


def _weight(reader: Lifetime) -> tuple[int, int, float]:
    backlog = reader.backlog
    return (backlog.frames, backlog.bytes, reader.age) if backlog is not None else (0, 0, reader.age)


def _row(reader: Lifetime) -> dict[str, Any]:
    row = {"sessionId": reader.session, **describe_reader(reader)}
    if not isinstance(reader, Subscriber):
        return {**row, "positionId": reader.last_id}
    channel = reader.channel
    return {
        **row,
        **describe_place(channel, position_of(reader)),
        "lastEventId": channel.id_of(channel.last),
        "sessionEvictions": channel.evictions,
    }


def describe_reader(reader: Lifetime) -> dict[str, Any]:
    """Return what is said of a reader, whatever it follows."""
    backlog = reader.backlog
    return {
        "streamId": reader.stream_id,
        "client": reader.client,
        "transport": reader.transport,
        "state": reader.state.value,
        "backlogEvents": backlog.frames if backlog is not None else 0,
        "backlogBytes": backlog.bytes if backlog is not None else 0,
        "maxQueued": backlog.max_frames if backlog is not None else 0,
        "warned": backlog is not None and backlog.state is State.WARNED,
        "ageSeconds": round(reader.age, 1),
    }


def position_of(reader: Subscriber) -> int:
    """Return the sequence of the last event that was handed to the reader's connection."""
    backlog = reader.backlog
    return backlog.handed if backlog is not None and backlog.frames else reader.reached


def describe_place(channel: Channel, position: int) -> dict[str, Any]:
    """Say how far one who has been handed everything up to ``position`` is behind the session."""
    due, oldest_ns = channel.window.due(position)
    # What memory does not reach back to is not counted; its age is at least that of what memory has.
    known = channel.window.floor <= position
    return {
        "positionId": channel.id_of(position),
        "behindEvents": due if known else None,
        "behindSeconds": round(max(0, channel.hub.clock() - oldest_ns) / 1e9, 3) if oldest_ns else 0.0,
    }
