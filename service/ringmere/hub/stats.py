"""The gauges of an instance: kept as totals, so that a scrape does not walk over its readers.

Only readers whose transport is full are looked at one by one: they alone have backlogs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ringmere.core.backlog import State

if TYPE_CHECKING:
    from ringmere.hub.hub import Hub


class Mirror(NamedTuple):
    """A stream (``events`` or ``head``) that copies from another: messages to go, seconds since it heard of it."""

    stream: str
    shard: int
    lag: int
    silence: float


@dataclass(frozen=True, slots=True)
class HubStats:
    """Gauges of one moment; sizes in bytes."""

    subscribers: dict[str, int]
    sessions_live: int
    backlog_events: int
    backlog_events_max: int
    backlog_bytes: int
    backlog_bytes_max: int
    window_bytes: int
    log_connected: bool
    log_degraded: dict[int, bool]
    """Whether publishes are refused, for each shard that has been published to (contract 8.2)."""
    mirrors: Sequence[Mirror]


def take_stats(hub: Hub) -> HubStats:
    """Return the gauges of this moment."""
    events = most_events = most_bytes = 0
    for reader in hub.paused:
        backlog = reader.backlog
        if backlog is not None and (backlog.state is not State.EVICTED or backlog.queue):
            events += backlog.frames
            most_events = max(most_events, backlog.frames)
            most_bytes = max(most_bytes, backlog.bytes)
    now = asyncio.get_running_loop().time()
    return HubStats(
        subscribers=dict(hub.readers),
        sessions_live=hub.sessions_live,
        backlog_events=events,
        backlog_events_max=most_events,
        backlog_bytes=hub.backlog_bytes,
        backlog_bytes_max=most_bytes,
        window_bytes=hub.window_budget.used,
        log_connected=hub.log.connected,
        log_degraded=hub.breakers.open,
        mirrors=[Mirror(copy.stream, copy.shard, copy.lag, now - copy.heard_at) for copy in hub.copies],
    )
