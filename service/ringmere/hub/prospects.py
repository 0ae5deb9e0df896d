"""Sessions that a stream does not follow yet, or does not follow any more: what it must know to take them along."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ringmere.hub.due import Plan

if TYPE_CHECKING:
    from ringmere.hub.attachment import Attachment
    from ringmere.hub.channel import Channel
    from ringmere.hub.many import Many
    from ringmere.log.port import Log


class Left(NamedTuple):
    """How far a session came that is not followed any more, and since when (loop time)."""

    seq: int
    at: float


class Prospects:
    """Of a stream that follows what matches a prefix."""

    __slots__ = ("_log", "began", "holds", "left")

    def __init__(self, log: Log, positions: Sequence[int]) -> None:
        self._log = log
        self.began = list(positions)
        """The sequence behind which each shard's sessions are due, also those that are found later."""
        self.left: dict[str, Left] = {}
        """Closed sessions that are not followed any more."""
        self.holds: dict[str, int | None] = {}
        """Sessions on their way in, and what their shard must not pass before; None holds nothing."""

    def restart(self, shard: int) -> None:
        """The shard's log is another one: all of it is due."""
        self.began[shard] = 0
        self.left.clear()

    def held(self, shard: int) -> list[int]:
        """Return what a shard must not pass."""
        return [seq for session, seq in self.holds.items() if seq is not None and self._log.shard_of(session) == shard]

    def leave_closed(self, many: Many, attachments: Iterable[Attachment]) -> None:
        """Have closed sessions followed no more: they are found again, should they go on.

        What is remembered of them goes with the log's time to live; without one they stay.
        """
        if many.match is None or not self._log.log_ttl:
            return
        now = asyncio.get_running_loop().time()
        for one in attachments:
            if one.live and one.channel.closed and not one.pending and one.session in many.attachments:
                self.left[one.session] = Left(one.channel.last, now)
                many.leave(one.session)

    def forget_expired(self) -> None:
        """Forget what the log has expired: whatever it has of such a session is new."""
        expired = asyncio.get_running_loop().time() - self._log.log_ttl
        self.left = {session: left for session, left in self.left.items() if left.at > expired}

    def plan(self, channel: Channel) -> Plan:
        """Return where a session joins that was found: behind what the stream has of it."""
        left = self.left.pop(channel.session, None)
        return Plan(left.seq if left is not None else self.began[self._log.shard_of(channel.session)])
