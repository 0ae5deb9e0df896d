"""What follows a verdict: the rest of the ring, a stored state and what came behind it, or what comes live (10.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringmere.core.cursor import Outcome
from ringmere.hub.judgement import judge
from ringmere.hub.options import Resync
from ringmere.hub.snapshots import Found

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel

STALE = "snapshot_stale"
"""The detail of a verdict that no stored snapshot can mend (contract 4.7)."""


class Remedy(NamedTuple):
    """How a loss is mended.

    ``mode`` is what really follows the verdict, ``detail`` what replaces the verdict's own, ``snapshot`` the URL that
    it names. ``found`` is the state that is sent behind the verdict; the stream goes on behind ``position``, None
    for wherever it would have gone on anyway, and ``point`` stands for it when the log has to be read.
    """

    mode: Resync
    detail: str | None = None
    snapshot: str | None = None
    found: Found | None = None
    position: int | None = None
    point: int = 0

    @property
    def stale(self) -> Remedy:
        """The same when the log has lost what came right behind the state: the client takes what follows."""
        return self._replace(detail=STALE, snapshot=None)


def offer(session: str, state_id: int | None, last_id: int) -> tuple[str | None, str | None]:
    """Return the detail and the URL that a verdict gets from a snapshot up to ``state_id``, None without one.

    A client that comes with that very id has loaded it: it must not be sent there again.
    """
    if state_id is None:
        return None, None
    return (STALE, None) if state_id == last_id else (None, f"/session/{session}/snapshot")


async def remedy_for(channel: Channel, reason: Outcome, wish: Resync, last_id: int) -> Remedy:
    """Return what mends a loss of a reader that has everything up to ``last_id``; one bounded read, which may fail.

    Raises ``LogUnavailable``.
    """
    found = await channel.hub.snapshots.look(channel.session)
    if found is not None and not channel.table.known(found.id):
        found = None
    detail, url = offer(channel.session, found.id if found is not None else None, last_id)
    if wish is Resync.LIVE:
        position = channel.live_position
        return Remedy(wish, detail, url, position=position, point=0 if channel.closed else channel.start_point)
    if wish is Resync.REPLAY or found is None:
        return Remedy(Resync.REPLAY, detail, url)
    if reason is Outcome.RING_EVICTED and found.id <= last_id:
        # What the client has is newer than the state, so the state would take something away.
        return Remedy(Resync.REPLAY).stale
    remedy = Remedy(wish, detail, url, found, found.position)
    # Of an expired log no page can show later that something is missing.
    return remedy.stale if (await judge(channel, found.id, found.position, None)).is_gap else remedy


async def is_over(channel: Channel, found: Found) -> bool:
    """Whether a session's log has expired and nothing is known behind a state that is marked as final (contract 3.9).

    Raises ``LogUnavailable``.
    """
    if not found.final or await channel.hub.log.last(channel.session) is not None:
        return False
    head = await channel.hub.log.head(channel.session)
    return head is None or head.seq <= found.position


def may_have_expired(channel: Channel) -> bool:
    """Whether a session's log may hold nothing any more, as far as the channel knows; never wrong with a No."""
    if channel.last == 0:
        return True
    ttl = channel.hub.log.log_ttl
    return bool(ttl) and channel.feed.last_time_ns <= channel.hub.clock() - int(ttl * 1e9)
