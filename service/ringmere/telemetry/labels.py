"""Every value that a metric label can have: bounded, known before the first event, the same for ever.

Counters start at 0 for each of them, so that a rate or an alert does not miss the first one. A value that
is not listed is counted as ``other``: no input of a client can add a time series.
"""

from __future__ import annotations

from ringmere.core.backlog import Backlog
from ringmere.core.breaker import State
from ringmere.core.cursor import Outcome
from ringmere.core.errors import LogUnavailable, NewerSnapshot, RingmereError, SnapshotTooLarge, UnknownEventId
from ringmere.core.event import SKIP_REASONS
from ringmere.core.reasons import CloseReason
from ringmere.hub.options import Resync

OTHER = "other"
"""What an unlisted value is counted as."""


def _codes(kind: type[RingmereError]) -> set[str]:
    return {kind.code}.union(*(_codes(child) for child in kind.__subclasses__()))


TRANSPORTS = ("sse", "websocket")
SOURCES = ("window", "log", "none")
VERDICTS = tuple(outcome.value for outcome in Outcome)
RESYNC_REASONS = (Outcome.RING_EVICTED.value, Outcome.EPOCH_RESET.value)
CLOSE_REASONS = tuple(reason.label for reason in CloseReason)
EVICTION_REASONS = tuple(
    reason.label
    for reason in (
        CloseReason.QUEUE_OVERFLOW,
        CloseReason.QUEUE_BYTES_OVERFLOW,
        CloseReason.WRITE_TIMEOUT,
        CloseReason.TOO_SLOW,
        CloseReason.MEMORY,
    )
)
FALL_BACK_REASONS = tuple(
    reason.label for reason in (CloseReason.QUEUE_OVERFLOW, CloseReason.QUEUE_BYTES_OVERFLOW, CloseReason.MEMORY)
)
THRESHOLDS = Backlog.THRESHOLDS
RESYNC_MODES = tuple(mode.value for mode in Resync)
SNAPSHOT_OUTCOMES = (
    "stored",
    "removed",
    *sorted(error.code for error in (NewerSnapshot, UnknownEventId, SnapshotTooLarge, LogUnavailable)),
)
SNAPSHOT_CAUSES = ("connect", "resync", "final")
SKIPPED = SKIP_REASONS
CURSORS_IGNORED = ("malformed", "repeated", "empty", "too_large")
BREAKER_STATES = (State.OPEN.value, State.CLOSED.value)
"""What a breaker is told of; that it looks (the other states) is no news."""
CANCEL_OUTCOMES = ("requested", "repeated", "failed", "delivered")
PUBLISH_OUTCOMES = ("stored", "duplicate", "degraded", *sorted(_codes(RingmereError)))
