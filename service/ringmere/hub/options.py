"""What a client asked for when it opened its stream."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ringmere.core.backlog import Overflow
from ringmere.core.trace import TraceContext


class Resync(enum.Enum):
    """What a reader wants behind a verdict (contract 10.2); the value is the parameter's."""

    REPLAY = "replay"
    SNAPSHOT = "snapshot"
    LIVE = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What any stream may be asked for; ``max_queued`` is in frames, None for the default.

    ``overflow`` and ``coalesce`` are contract 6.7 and 6.8, ``cloudevents`` is 5.3 and leaves nothing to coalesce.
    ``client`` is the address it reads from, for people to see; ``trace`` is what the request belongs to.
    """

    from_start: bool = False
    anchor: bool = False
    max_queued: int | None = None
    overflow: Overflow = Overflow.EVICT
    coalesce: bool = False
    cloudevents: bool = False
    client: str | None = None
    trace: TraceContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions(StreamOptions):
    """For a stream of one session.

    ``cursor`` is a public id; ``epoch_birth`` the birth part of an epoch token that
    the client sent back (contract 1.3). ``resync`` is contract 10.2; with ``snapshot`` a stream without a cursor
    begins with the stored state, if there is one.
    """

    cursor: int | None = None
    epoch_birth: str | None = None
    resync: Resync = Resync.REPLAY
    snapshot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyOptions(StreamOptions):
    """For a stream of many sessions.

    ``points`` is the cursor as the ids of all shards; ``births`` are the birth parts
    of the epoch tokens that came back, one a shard, or none.
    """

    points: tuple[int, ...] | None = None
    births: tuple[str | None, ...] = ()
