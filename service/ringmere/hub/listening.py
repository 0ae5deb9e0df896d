"""What the hub does when the log speaks: it is the log's one listener; a part of the hub."""

from __future__ import annotations

from collections.abc import Sequence

from ringmere.core.cursor import EpochTable
from ringmere.hub.breaker import Breakers
from ringmere.hub.channel import Channel
from ringmere.hub.control import Cancels
from ringmere.hub.degraded import hand_out
from ringmere.hub.muster import Muster
from ringmere.hub.observer import Observer
from ringmere.hub.sweep import Sweep
from ringmere.log.port import Copy, Log


class Listening:
    """The parts it leans on are set by :class:`~ringmere.hub.hub.Hub`."""

    log: Log
    observer: Observer
    breakers: Breakers
    cancels: Cancels
    many: Muster
    sweep: Sweep
    copies: Sequence[Copy]
    _channels: dict[str, Channel]

    def log_connected(self, connected: bool) -> None:
        """Look at every channel's tail once the log is back."""
        self.observer.log_connected(connected)
        if connected:
            self.sweep.all_now()
            self.many.look_at_all()

    def epochs_changed(self, shard: int, table: EpochTable) -> None:
        """Let the channels of a shard follow its new epoch."""
        self.observer.epoch_added(shard, table.token)
        for channel in list(self._channels.values()):
            if channel.started and self.log.shard_of(channel.session) == shard:
                channel.feed.follow(table)

    def tail_not_reopened(self, shard: int, reason: str) -> None:
        """Say that live messages of a shard do not come; sweeps read what is missed."""
        self.observer.tail_not_reopened(shard, reason)

    def session_purged(self, session: str) -> None:
        """Drop what is remembered of a purged session."""
        channel = self._channels.get(session)
        if channel is not None and channel.started:
            channel.purged()

    def degraded_event(self, session: str, payload: bytes) -> None:
        """Hand an event that could not be stored to the session's live readers here."""
        channel = self._channels.get(session)
        if channel is not None and (channel.readers or channel.attached.live):
            hand_out(channel, payload)

    def storing_doubted(self, shard: int) -> None:
        """Look whether the shard stores: an instance could not."""
        self.breakers.warned(shard)

    def cancel_noticed(self, session: str, task: str) -> None:
        """Tell who waits for a task's cancel here."""
        self.cancels.noticed(session, task)

    def copies_seen(self, copies: Sequence[Copy]) -> None:
        """Remember how far streams that copy others are."""
        self.copies = copies
