"""What a channel has to do with streams of many sessions; next to nothing while there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringmere.core.backlog import Frame
from ringmere.core.tagged import tag
from ringmere.hub.attachment import Attachment

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel


class Attached:
    """The attachments of one channel: all of them, and those that it hands its turns to."""

    __slots__ = ("_channel", "all", "live")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
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

    def caught_up(self) -> None:
        """The channel is behind its shard no more: what waited for it may leave."""
        for attachment in self.live:
            attachment.many.mark_dirty()

    def give_up(self) -> None:
        """End all streams because of a fault of this program."""
        for attachment in self.all:
            attachment.many.give_up()
