"""How far one reader has come: in the log, by the last event it was given, and by their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringmere.core.backlog import Backlog

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel


class Progress:
    """The progress of one reader.

    A live reader's is not written down event by event: what its channel has fanned out since it joined, it was
    given. Position and last event differ behind a loss and behind what is no event: one goes on, the other stays.
    """

    __slots__ = (
        "_channel",
        "_events_then",
        "_last_id",
        "_live",
        "_sent_then",
        "_turns_then",
        "delivered",
        "position",
        "replayed",
        "size",
    )

    def __init__(self, channel: Channel, position: int, last_id: int) -> None:
        """``last_id`` is where the reader begins: its cursor, the point of a live one, 0 for everything."""
        self._channel = channel
        self._live = False
        self._last_id = last_id
        self._events_then = self._sent_then = 0
        self._turns_then = 0
        self.position = position
        """Everything up to this sequence was accepted for it before it last went live."""
        self.delivered = 0
        """Events it was given before it last went live, merged ones counted once."""
        self.replayed = 0
        """How many of all came from log and memory, not live."""
        self.size = 0
        """Bytes of the frames of all, merged and dropped ones included."""

    @property
    def last_id(self) -> int:
        """The id of the last event accepted for it, delivered or queued, which every verdict names to it (4.7)."""
        channel = self._channel
        if self._live and channel.turns != self._turns_then:
            return channel.id_of(channel.last_event)
        return self._last_id

    def reached(self, backlog: Backlog | None) -> int:
        """Return the last sequence that was accepted for it: what it has, or what its backlog holds."""
        if not self._live:
            return self.position
        if backlog is not None and backlog.frames:
            return max(self.position, backlog.last_seq)
        return max(self.position, self._channel.flushed)

    def join(self, position: int, last_id: int, events: int, size: int) -> None:
        """Go live behind ``position`` and ``last_id``, after ``events`` of ``size`` read from log and memory."""
        self.position = position
        self.delivered += events
        self.replayed += events
        self.size += size
        self._last_id = last_id
        self._live = True
        self._events_then, self._turns_then = self._channel.events, self._channel.turns
        self._sent_then = self._channel.sent

    def leave(self, backlog: Backlog | None) -> None:
        """Take no part in what the channel fans out from now on."""
        if self._live:
            self.position = self.reached(backlog)
            self.settle()
            self.delivered += self._channel.events - self._events_then
            self.size += self._channel.sent - self._sent_then
            self._live = False

    def stop(self, position: int, last_id: int, events: int, size: int) -> None:
        """Give up a catch-up that came so far."""
        self.position = position
        self.delivered += events
        self.replayed += events
        self.size += size
        self._last_id = last_id

    def settle(self, newest: int = 0) -> None:
        """Fix the last id before its sequence means another, or at ``newest``, an event of a turn under way."""
        self._last_id = self._channel.id_of(newest) if newest else self.last_id
        self._turns_then = self._channel.turns
