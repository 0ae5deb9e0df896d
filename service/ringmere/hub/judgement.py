"""The verdict on a cursor, or on a stored state that is to be one, by leader reads (contract 4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ringmere.core.cursor import Outcome, Verdict, decide

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel

SECOND_LOOK = 1.0
"""Seconds after which a cursor beyond the tail is looked at again before it counts as another log's (4.2)."""


async def judge(channel: Channel, cursor: int, sequence: int, birth: str | None) -> Verdict:
    """Say what a cursor is worth; ``sequence`` is its own, ``birth`` that of the log it came with, if it says so.

    Raises :class:`~ringmere.core.errors.LogUnavailable`.
    """
    table = channel.table
    if cursor and ((birth is not None and birth != table.birth) or not table.known(cursor)):
        return Verdict(Outcome.EPOCH_RESET, 0, "epoch_mismatch")
    log, session = channel.hub.log, channel.session
    if await _present(channel, sequence):
        return Verdict(Outcome.CONTIGUOUS, sequence)
    bounds = await log.bounds(session)
    if sequence > bounds.tail:
        await asyncio.sleep(SECOND_LOOK)
        bounds = await log.bounds(session)
    # Asked again behind the bounds: a sequence at or below the tail that is absent now will never come.
    present = 0 < sequence <= bounds.tail and await log.contains(session, sequence)
    bounds = await log.bounds(session)
    head = await log.head(session) if bounds.stored == 0 else None
    return decide(
        sequence,
        bounds,
        ring_size=log.ring_size,
        present=present,
        head=head.seq if head is not None else None,
        heads_kept=log.keeps_heads,
    )


async def _present(channel: Channel, sequence: int) -> bool:
    """Whether the leader stores the cursor's message: the proof that nothing behind it was removed (4.4)."""
    if sequence == 0:
        return False
    if channel.window.holds(sequence):
        # It was on this subject; it still is when the leader's first, a second old at most, is not past it.
        bounds = await channel.bounds()
        if 0 < bounds.first <= sequence:
            return True
    return await channel.hub.log.contains(channel.session, sequence)
