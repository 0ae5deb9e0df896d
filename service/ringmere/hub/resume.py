"""Where a stream begins: the cursor's verdict, decided on leader reads (contract 3.3, 3.4, 3.9, 4)."""

from __future__ import annotations

import asyncio

from ringmere.core.cursor import Outcome, Verdict, decide, split_id
from ringmere.hub.catchup import Gap, Plan
from ringmere.hub.channel import Channel
from ringmere.hub.subscriber import SubscribeOptions

SECOND_LOOK = 1.0
"""Seconds after which a cursor beyond the tail is looked at again before it counts as another log's (4.2)."""


async def plan_stream(channel: Channel, options: SubscribeOptions) -> Plan | None:
    """Return where the stream begins, or None when the cursor is at the terminal event and nothing is due (3.9).

    Raises :class:`~ringmere.core.errors.LogUnavailable`.
    """
    cursor = options.cursor
    if cursor is None:
        return Plan(0, whole_ring=True) if options.from_start else _live(channel)
    _, sequence = split_id(cursor)
    verdict = await _judge(channel, cursor, sequence, options.epoch_birth)
    label = verdict.outcome.value
    if verdict.is_gap:
        gap = Gap(verdict.outcome, verdict.detail)
        return Plan(0, gap, whole_ring=True, announce=True, verdict=label)
    if sequence and await at_the_end(channel, sequence):
        return None
    return Plan(sequence, announce=True, verdict=label)


def _live(channel: Channel) -> Plan:
    position = channel.live_position
    return Plan(position, point=0 if channel.closed else channel.start_point)


async def _judge(channel: Channel, cursor: int, sequence: int, birth: str | None) -> Verdict:
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


async def at_the_end(channel: Channel, sequence: int) -> bool:
    """Whether the session is closed and the cursor at or past its last event, by a leader read.

    The log's last message may be none (contract 1.9): the channel knows what it has passed over.
    """
    if not channel.closed or sequence < channel.last_word:
        return False
    log, session = channel.hub.log, channel.session
    last = await log.last(session) or await log.head(session)
    return channel.closed and last is not None and last.seq <= max(sequence, channel.last)
