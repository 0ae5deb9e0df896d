"""What one reader is due before its next event: a stored state to begin with, a verdict, what mends the loss."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ringmere.core.cursor import Outcome
from ringmere.hub.lagging import Overtakes
from ringmere.hub.notices import resync_required
from ringmere.hub.options import Resync
from ringmere.hub.outlet import Outlet
from ringmere.hub.remedy import Remedy, remedy_for
from ringmere.hub.snapshots import Found

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel


class Gap(NamedTuple):
    """A verdict that must be told before the next event; where it begins and ends is known when it is told."""

    reason: Outcome
    detail: str | None


class Plan(NamedTuple):
    """Where a stream begins: behind ``position``, or with what is left of the ring when ``whole_ring``.

    ``gap`` is the verdict to tell first, ``announce`` whether a ``replay_complete`` is due, ``verdict`` a
    label for metrics, None without a cursor. ``point`` stands for a position of 0 when the log has to be read:
    to a live reader 0 is an empty session, to the log it is the wish for everything.

    ``found`` is a stored state to begin with; ``remedy`` is what mends the gap, when that is known already. ``over``:
    nothing is known behind the position, and the stream ends there (contract 3.9).
    """

    position: int
    gap: Gap | None = None
    whole_ring: bool = False
    announce: bool = False
    verdict: str | None = None
    point: int = 0
    found: Found | None = None
    remedy: Remedy | None = None
    over: bool = False


class Due:
    """Keeps it until it is told, all in one step."""

    __slots__ = ("_channel", "_found", "_gap", "_over", "_overtakes", "_quiet", "_remedy", "_resync", "state_id")

    def __init__(self, channel: Channel, plan: Plan, overtakes: Overtakes | None, resync: Resync) -> None:
        self._channel = channel
        self._overtakes = overtakes
        self._resync = resync
        self._gap = plan.gap
        self._found = plan.found
        self._remedy = plan.remedy
        self._over = plan.over
        self._quiet = plan.whole_ring and plan.gap is None
        self.state_id = -1
        """The id that the stored state reaches to that the reader has got, -1 without one."""

    @property
    def nothing(self) -> bool:
        """Whether the reader has been told everything."""
        return self._gap is None and self._found is None

    @property
    def verdict(self) -> bool:
        """Whether a verdict is due."""
        return self._gap is not None

    @property
    def unsettled(self) -> bool:
        """Whether a verdict is due whose remedy is not known yet."""
        return self._gap is not None and self._remedy is None

    def replan(self, plan: Plan, *, whole_ring: bool) -> None:
        """Go by another plan: the log behind the reader has changed. A verdict that is due stays due."""
        self._gap = self._gap or plan.gap
        self._remedy = None
        self._over = False
        self._quiet = whole_ring and self._gap is None
        if self._found is not None and not self._channel.table.known(self._found.id):
            self._found = None

    def lost(self) -> None:
        """Something behind the position is gone: a verdict is due, unless one is due already or none is wanted."""
        if self._gap is None and not self._quiet:
            self._gap = Gap(Outcome.RING_EVICTED, None)
        elif self._remedy is not None and self._remedy.found is not None:
            self._remedy = self._remedy.stale

    async def settle(self, last_id: int) -> Remedy | None:
        """Find out, once for each verdict, what mends it; return it when the stream is to go on elsewhere for that."""
        if self._gap is None or self._remedy is not None:
            return None
        remedy = await remedy_for(self._channel, self._gap.reason, self._resync, last_id)
        if self._gap is None:
            return None
        self._remedy = remedy
        return remedy if remedy.position is not None else None

    def tell(self, outlet: Outlet, earliest: int, last_id: int) -> int:
        """Write it all; ``earliest`` is what comes next. Return the id that the reader has everything up to."""
        gap, self._gap = self._gap, None
        found, self._found = self._found, None
        remedy, self._remedy = self._remedy or Remedy(Resync.REPLAY), None
        self._quiet = False
        if found is not None:
            last_id = self._send(found, outlet, "connect")
        if gap is not None:
            self._tell_verdict(gap, remedy, outlet, earliest, last_id)
            if remedy.found is not None:
                last_id = self._send(remedy.found, outlet, "resync")
        return last_id

    def _tell_verdict(self, gap: Gap, remedy: Remedy, outlet: Outlet, earliest: int, last_id: int) -> None:
        if self._overtakes is not None and gap.reason is Outcome.RING_EVICTED:
            self._overtakes.note(asyncio.get_running_loop().time(), last_id)
        channel = self._channel
        reason, detail = gap.reason.value, remedy.detail or gap.detail
        outlet.send(resync_required(reason, detail, last_id, channel.id_of(earliest), remedy.snapshot))
        channel.hub.observer.resync(channel.session, reason, detail, outlet.stream_id)
        channel.hub.observer.resync_mode(channel.session, remedy.mode.value)

    def _send(self, found: Found, outlet: Outlet, cause: str) -> int:
        frame = found.frame(last=self._over, framed=outlet.framed)
        if outlet.framed:
            outlet.share(frame)
        else:
            outlet.send(frame)
        cause = "final" if self._over else cause
        self._channel.hub.observer.snapshot_sent(self._channel.session, outlet.stream_id, cause)
        self.state_id = found.id
        return found.id
