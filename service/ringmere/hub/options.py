"""What a client asked for when it opened its stream."""

from __future__ import annotations

from dataclasses import dataclass

from ringmere.core.backlog import Overflow
from ringmere.core.trace import TraceContext


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """``cursor`` is a public id; ``max_queued`` is in frames, None for the default.

    ``epoch_birth`` is the birth part of an epoch token that the client sent back (contract 1.3); ``overflow``
    and ``coalesce`` are contract 6.7 and 6.8. ``client`` is the address it reads from, for people to see;
    ``trace`` is what the request belongs to.
    """

    cursor: int | None = None
    from_start: bool = False
    anchor: bool = False
    max_queued: int | None = None
    epoch_birth: str | None = None
    overflow: Overflow = Overflow.EVICT
    coalesce: bool = False
    client: str | None = None
    trace: TraceContext | None = None
