"""What readers see while the log does not store: events without an id, and the notices around them (contract 8.2).

A channel's ``told`` holds the readers that know of a degradation and not of its end yet. Live readers are
told when it changes, the others when they go live: each of them once of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringmere.core.backlog import Frame
from ringmere.core.event import NotAnEvent, envelope
from ringmere.core.frames import degraded_frame
from ringmere.hub.notices import storing_notice

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.subscriber import Subscriber


def hand_out(channel: Channel, payload: bytes) -> None:
    """Hand an event that could not be stored to the channel's live readers; what is none is observed and skipped.

    It neither closes nor reopens the session, whatever it says: the log decides that (contract 2.9).
    """
    hub = channel.hub
    try:
        event = envelope(payload, None, hub.clock() // 1_000_000)
    except NotAnEvent as error:
        hub.observer.skipped(channel.session, 0, error.reason)
    else:
        channel.take_unstored(Frame(0, degraded_frame(event), len(event.json)))


def tell_all(channel: Channel, since_ms: int, *, degraded: bool) -> None:
    """Tell the live readers that a degradation has begun or ended; ``since_ms`` is its beginning."""
    channel.flush()
    live = frozenset(channel.readers)
    absent = channel.told & channel.members - live
    channel.told = absent | live if degraded else absent
    channel.take_unstored(_notice(channel, since_ms, degraded))


def tell_one(channel: Channel, reader: Subscriber, since_ms: int, *, degraded: bool) -> None:
    """Tell a reader that has just gone live."""
    channel.told = channel.told | {reader} if degraded else channel.told - {reader}
    frame = _notice(channel, since_ms, degraded)
    reader.offer([frame], frame.sse, channel.flushed)


def _notice(channel: Channel, since_ms: int, degraded: bool) -> Frame:
    now_ms = channel.hub.clock() // 1_000_000
    return Frame(0, storing_notice(since_ms, channel.id_of(channel.last), now_ms, degraded=degraded), 0)
