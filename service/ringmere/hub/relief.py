"""What an instance gives up first when its memory bounds are passed (design §5)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ringmere.hub.window import Budget

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.lifetime import Lifetime

LOW_WATER = 7 / 8
"""Share of a bound that relief goes down to, so that not every turn has to sort the channels."""


def shrink_windows(channels: Collection[Channel], budget: Budget, limit: int) -> None:
    """Give windows back until they fit ``limit`` bytes again: those used least recently go first."""
    for channel in sorted(channels, key=lambda channel: max(channel.active_at, channel.joined_at)):
        if budget.used <= limit * LOW_WATER:
            return
        channel.shrink_window()


def relieve_largest(paused: Collection[Lifetime], excess: int) -> None:
    """Have readers give their backlogs up, the largest first, until ``excess`` bytes are on their way out."""
    backlogs = [(reader.backlog.bytes if reader.backlog else 0, reader) for reader in paused]
    for size, reader in sorted(backlogs, key=lambda row: row[0], reverse=True):
        if excess <= 0:
            return
        reader.relieve()
        excess -= size
