"""Which sessions a stream of many follows, changed while it is open, from any instance (contract 7.5).

The instance that has a stream serves its id on a control subject; the others ask there. What is asked and answered is
JSON between gateways of one version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ringmere.core.errors import (
    LogUnavailable,
    RingmereError,
    SessionNotFound,
    StreamMatches,
    StreamNotFound,
    SubscriberLimitExceeded,
    TooManySessions,
)

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.many import Many
    from ringmere.hub.muster import Muster

_ERRORS: tuple[type[RingmereError], ...] = (
    LogUnavailable,
    SessionNotFound,
    StreamMatches,
    SubscriberLimitExceeded,
    TooManySessions,
)
"""What a change can be refused for, told by its code."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sessions to follow as well and no more; ``from_start`` replays the rings of the added ones."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    from_start: bool = False


class Changed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sessions followed now and the cursor of the stream; or why nothing was changed."""

    sessions: tuple[str, ...] = ()
    cursor: str = ""
    error: str = ""
    detail: str = ""


_encode = msgspec.json.Encoder().encode
_decode_change = msgspec.json.Decoder(Change).decode
_decode_changed = msgspec.json.Decoder(Changed).decode


class Membership:
    """Changes streams of many sessions, its own and by asking those of other instances."""

    def __init__(self, muster: Muster) -> None:
        self._muster = muster

    async def change(self, stream_id: str, change: Change) -> Changed:
        """Add and drop sessions; return what the stream follows then. Added ones are live when this returns.

        Raises ``StreamNotFound`` when no instance has the stream, ``TooManySessions``, ``StreamMatches``,
        ``SessionNotFound``, ``SubscriberLimitExceeded`` and, on the instance that has the stream within
        ``connect_deadline``, ``LogUnavailable``; nothing was changed then.
        """
        many = self._muster.streams.get(stream_id)
        if many is not None:
            return await self._apply(many, change)
        answer = await self._muster.log.ask(stream_id, _encode(change))
        if answer is None:
            raise StreamNotFound(f"no instance has the stream {stream_id}")
        changed = _decode_changed(answer)
        for error in _ERRORS:
            if error.code == changed.error:
                raise error(changed.detail)
        if changed.error:
            raise StreamNotFound(changed.detail)
        return changed

    async def answer(self, stream_id: str, question: bytes) -> bytes:
        """Answer another instance that asks for a change of a stream here."""
        many = self._muster.streams.get(stream_id)
        try:
            if many is None:
                raise StreamNotFound(f"the stream {stream_id} has ended")
            changed = await self._apply(many, _decode_change(question))
        except RingmereError as error:
            changed = Changed(error=error.code, detail=str(error))
        return _encode(changed)

    async def _apply(self, many: Many, change: Change) -> Changed:
        if many.match is not None:
            raise StreamMatches("the sessions of this stream are those that match its prefix")
        wanted = [session for session in dict.fromkeys(change.add) if session not in many.attachments]
        kept = set(many.attachments) - set(change.drop)
        self._muster.check_number(len(kept) + len(wanted))
        places: list[Channel] = []
        try:
            async with asyncio.timeout(self._muster.hub.limits.connect_deadline):
                await self._muster.open(wanted, places)
            if many.ended:
                raise StreamNotFound(f"the stream {many.stream_id} has ended")
            self._check_again(many, places, change)
        except BaseException as error:
            self._muster.close(places)
            if isinstance(error, TimeoutError):
                raise LogUnavailable("the log did not answer in time") from error
            raise
        self._enter(many, places, change)
        for session in change.drop:
            many.leave(session)
        return Changed(tuple(many.attachments), str(many.last_id))

    def _check_again(self, many: Many, places: Sequence[Channel], change: Change) -> None:
        """Look at the number once more: other changes may have been made while the sessions were opened."""
        followed = many.attachments.keys() - set(change.drop) | {channel.session for channel in places}
        self._muster.check_number(len(followed))

    def _enter(self, many: Many, places: Sequence[Channel], change: Change) -> None:
        """Follow what was opened, from this moment or from the start of each ring."""
        for channel in places:
            if channel.session in many.attachments:
                self._muster.close([channel])  # another change was faster
                continue
            plan = self._muster.beginning(channel, many.passage.points.ids, from_start=change.from_start)
            many.follow(channel, plan, proven=True, announce=change.from_start)
