"""What a request for a stream comes to, whatever carries the stream: who is asked to let a reader in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ringmere.core.errors import LogUnavailable
from ringmere.http.options import Door
from ringmere.hub.many import Many
from ringmere.hub.subscriber import Subscriber

Reader = Subscriber | Many


@dataclass(frozen=True, slots=True)
class Entrance:
    """The way into a stream of one session or of many.

    ``label`` is what is followed, for the observer; ``ignored`` says why a cursor was not taken. ``admit`` asks the
    hub, ``token`` gives the epoch's (contract 1.3). ``behind`` returns the same entrance for a cursor and an epoch
    token that are given later than the request.
    """

    label: str
    ignored: str | None
    admit: Callable[[], Awaitable[Reader]]
    token: Callable[[], str]
    behind: Callable[[str, str | None], Entrance]


def entrance_headers(door: Door, way: Entrance) -> dict[str, str]:
    """Return the header that says why a cursor was not taken, and tell the observer."""
    if way.ignored is None:
        return {}
    door.hub.observer.cursor_ignored(way.label, way.ignored)
    return {"X-Cursor-Ignored": way.ignored}


def reader_headers(reader: Reader) -> dict[str, str]:
    """Return what a client is told of its stream before the first frame (contract 3.1, 3.3)."""
    headers = {"X-Stream-Id": reader.stream_id, **_epoch_headers(reader.epoch_token)}
    if reader.start_id is not None and not reader.ended:
        headers["X-Start-Event-Id"] = str(reader.start_id)
    return headers


def epoch_headers(way: Entrance) -> dict[str, str]:
    """Return the epoch headers, none while the log has never been seen."""
    try:
        return _epoch_headers(way.token())
    except LogUnavailable:
        return {}


def _epoch_headers(token: str) -> dict[str, str]:
    return {"X-Event-Epoch": token, "X-Qwen-Event-Epoch": token}
