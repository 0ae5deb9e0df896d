"""What a channel has to do with streams of many sessions; next to nothing while there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringmere.core.backlog import Frame
from ringmere.core.tagged import tag
from ringmere.hub.attachment import Attachment

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel

SETTLE = 0.05
"""Seconds behind a read of the leader after which everything stored before it has surely come live."""


class Attached:
    """The attachments of one channel: all of them, and those that it hands its turns to."""

    __slots__ = ("_channel", "_held", "all", "live")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._held: int | None = None
        self.all: tuple[Attachment, ...] = ()
        self.live: tuple[Attachment, ...] = ()
        """Replaced, never changed, so that a fan-out under way is not disturbed."""

    def add(self, attachment: Attachment) -> None:
        """A stream follows the session."""
        self.all = (*self.all, attachment)

    def remove(self, attachment: Attachment) -> None:
        """It does no more."""
        self.leave(attachment)
        self.all = tuple(other for other in self.all if other is not attachment)

    def enter(self, attachment: Attachment) -> None:
        """Hand turns to it from now on."""
        self.live = (*self.live, attachment)

    def leave(self, attachment: Attachment) -> None:
        """Hand nothing to it any more."""
        self.live = tuple(other for other in self.live if other is not attachment)

    def hand_on(self, turn: Sequence[Frame], before: int) -> None:
        """Hand a turn on to all of them, its frames named after the session once for all."""
        session = self._channel.session
        tagged = [tag(frame, session) for frame in turn]
        for attachment in self.live:
            attachment.take(tagged, before)

    def overtaken(self, earliest: int) -> None:
        """Something before ``earliest`` is gone: each stream is told from the last event that it has."""
        for attachment in self.live:
            attachment.overtaken(earliest)

    def fall_behind(self) -> None:
        """The channel begins to fill a hole: nothing of its shard may leave behind what it has now (contract 7.3)."""
        if not self.filling:
            self._held = self._channel.last
        self._channel.hub.behind.add(self._channel)

    def caught_up_soon(self) -> None:
        """The hole is filled. What was read from the leader may have overtaken what is on its way live to others."""
        if self.live:
            asyncio.get_running_loop().call_later(SETTLE, self.caught_up)
        else:
            self.caught_up()

    def caught_up(self) -> None:
        """The channel is as far as the others of its shard again, unless something new keeps it."""
        if not self._channel.feed.busy:
            self._held = None
            self._channel.hub.behind.discard(self._channel)
            for attachment in self.live:
                attachment.many.mark_dirty()

    @property
    def filling(self) -> bool:
        """Whether a hole is being filled, or was just now."""
        return self._held is not None

    @property
    def in_order(self) -> int:
        """Up to where the channel has come in the order of its shard: not beyond a hole that is being filled."""
        return self._channel.last if self._held is None else min(self._held, self._channel.last)

    def give_up(self) -> None:
        """End all streams because of a fault of this program."""
        for attachment in self.all:
            attachment.many.give_up()
