"""Where a stream begins: the cursor's verdict, decided on leader reads (contract 3.3, 3.4, 3.9, 4)."""

from __future__ import annotations

from ringmere.core.cursor import Outcome, Verdict, split_id
from ringmere.core.errors import LogUnavailable
from ringmere.hub.channel import Channel
from ringmere.hub.due import Gap, Plan
from ringmere.hub.judgement import judge
from ringmere.hub.options import Resync
from ringmere.hub.remedy import Remedy, is_over, may_have_expired, offer
from ringmere.hub.snapshots import Found
from ringmere.hub.subscriber import SubscribeOptions


async def plan_stream(channel: Channel, options: SubscribeOptions) -> Plan | None:
    """Return where the stream begins, or None when the cursor is at the terminal event and nothing is due (3.9).

    Raises :class:`~ringmere.core.errors.LogUnavailable`.
    """
    cursor = options.cursor
    found = await _state(channel, must=options.snapshot and cursor is None)
    if cursor is None:
        return await _without_cursor(channel, options, found)
    _, sequence = split_id(cursor)
    verdict = await judge(channel, cursor, sequence, options.epoch_birth)
    label = verdict.outcome.value
    if found is not None and await is_over(channel, found):
        return _over(channel.session, cursor, verdict, found)
    if verdict.is_gap:
        gap = Gap(verdict.outcome, verdict.detail)
        return Plan(0, gap, whole_ring=True, announce=True, verdict=label)
    if sequence and await at_the_end(channel, sequence):
        return None
    return Plan(sequence, announce=True, verdict=label)


async def _state(channel: Channel, *, must: bool) -> Found | None:
    """Return the stored state where one is asked for, or may be all that is left of the session."""
    snapshots, session = channel.hub.snapshots, channel.session
    if must:
        found = await snapshots.read(session)
        if found is not None and not channel.table.known(found.id):
            raise LogUnavailable("the log was replaced")
        return found
    found = await snapshots.look(session) if may_have_expired(channel) else None
    return found if found is not None and channel.table.known(found.id) else None


async def _without_cursor(channel: Channel, options: SubscribeOptions, found: Found | None) -> Plan:
    over = found is not None and await is_over(channel, found)
    if found is not None and (over or options.snapshot):
        gap = None if over else await _loss_behind(channel, found)
        if gap is not None:
            return Plan(0, gap, whole_ring=True, announce=True, found=found, remedy=Remedy(Resync.REPLAY).stale)
        return Plan(found.position, announce=options.snapshot, found=found, over=over)
    return Plan(0, whole_ring=True) if options.from_start else _live(channel)


async def _loss_behind(channel: Channel, found: Found) -> Gap | None:
    """Judge a stored state as a cursor: of an expired log no page can show later that something is missing."""
    verdict = await judge(channel, found.id, found.position, None)
    return Gap(verdict.outcome, verdict.detail) if verdict.is_gap else None


def _over(session: str, cursor: int, verdict: Verdict, found: Found) -> Plan | None:
    """Return the plan for a cursor of a session of which a final state is all that is left; None at or past it."""
    lost_log = verdict.outcome is Outcome.EPOCH_RESET
    if cursor >= found.id and not lost_log:
        return None
    if not verdict.is_gap:
        return Plan(found.position, announce=True, verdict=verdict.outcome.value, found=found, over=True)
    _, url = offer(session, found.id, cursor)
    return Plan(
        found.position,
        Gap(verdict.outcome, verdict.detail),
        announce=True,
        verdict=verdict.outcome.value,
        remedy=Remedy(Resync.SNAPSHOT, snapshot=url, found=found),
        over=True,
    )


def _live(channel: Channel) -> Plan:
    position = channel.live_position
    return Plan(position, point=0 if channel.closed else channel.start_point)


async def at_the_end(channel: Channel, sequence: int) -> bool:
    """Whether the session is closed and the cursor at or past its last event, by a leader read.

    The log's last message may be none (contract 1.9): the channel knows what it has passed over.
    """
    if not channel.closed or sequence < channel.last_word:
        return False
    log, session = channel.hub.log, channel.session
    last = await log.last(session) or await log.head(session)
    return channel.closed and last is not None and last.seq <= max(sequence, channel.last)
