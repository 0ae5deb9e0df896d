"""What may be watched. The hub calls, telemetry listens; the hub itself counts and logs nothing.

Every method is a no-op here, so an observer implements what it wants. Calls come from the event loop,
on the hot path once per loop turn, never once per session or reader; they must not block or raise.
"""

from __future__ import annotations

from typing import NamedTuple

from ringmere.core.reasons import CloseReason
from ringmere.hub.tracer import Tracer


class Replay(NamedTuple):
    """What a reader with a cursor was given before it went live; ``size`` in bytes, ``seconds`` from its begin.

    ``verdict`` is how the cursor was judged, ``source`` where the events came from: ``window`` or ``log``.
    """

    verdict: str
    source: str
    events: int
    size: int
    seconds: float


class Account(NamedTuple):
    """What came of a stream: its events, and how many of them were still queued when it ended.

    ``replayed`` of the events came before it went live; ``size`` is their bytes as frames, merged or dropped
    ones included. None where a kind of stream does not count it.
    """

    events: int
    lag: int
    replayed: int | None = None
    size: int | None = None


class Observer:
    """The events of a hub. ``transport`` is ``sse`` or ``websocket``; times are seconds, sizes bytes."""

    tracer: Tracer | None = None
    """Who wants to know which traces requests and messages belong to; without one nobody looks."""

    def published(self, outcome: str, events: int, seconds: float) -> None:
        """A publish request ended; ``outcome`` is ``stored``, ``duplicate``, ``degraded`` or an error code."""

    def stream_opened(
        self, transport: str, session: str, stream_id: str, cursor: int | str | None, client: str | None
    ) -> None:
        """A stream was accepted; ``client`` is the address it is read from, when the door knows it."""

    def stream_closed(
        self, transport: str, session: str, stream_id: str, reason: CloseReason, seconds: float, account: Account
    ) -> None:
        """A stream ended after so many seconds."""

    def cursor_ignored(self, session: str, reason: str) -> None:
        """A cursor was malformed and degraded to live-only (contract 3.2)."""

    def resumed(self, session: str, verdict: str, source: str) -> None:
        """A cursor was judged; ``source`` is where its first events come from: ``window``, ``log`` or ``none``."""

    def resync(self, session: str, reason: str, detail: str | None, stream_id: str | None) -> None:
        """A ``state_resync_required`` frame was put into a stream, or into all live ones of the session (None)."""

    def resync_mode(self, session: str, mode: str) -> None:
        """What followed such a frame: ``replay``, ``snapshot`` or ``live`` (contract 10.2)."""

    def snapshot_written(self, session: str, outcome: str, size: int) -> None:
        """A snapshot was to be stored or removed; ``outcome`` is ``stored``, ``removed`` or an error code."""

    def snapshot_sent(self, session: str, stream_id: str, cause: str) -> None:
        """A stream got a stored state: at its beginning (``connect``), behind a verdict (``resync``), as ``final``."""

    def snapshot_missed(self, session: str) -> None:
        """A snapshot that would have helped could not be read in time."""

    def replayed(self, session: str, stream_id: str, replay: Replay) -> None:
        """A reader's replay ended and it went live."""

    def delivered(self, transport: str, events: int, size: int, lag: float | None) -> None:
        """A turn of the loop was fanned out: ``events`` and ``size`` over all readers and sessions together.

        ``lag`` is the turn's largest, from the log's timestamp of a session's newest event to the write; None for
        what left a backlog.
        """

    def warned(self, session: str, stream_id: str, threshold: str) -> None:
        """A slow reader was warned."""

    def evicted(self, session: str, stream_id: str, reason: CloseReason) -> None:
        """A slow reader was evicted."""

    def fell_back(self, session: str, stream_id: str, reason: CloseReason) -> None:
        """A slow reader reads on from the log; ``reason`` is what another one would have been evicted for."""

    def caught_up(self, session: str, events: int) -> None:
        """Such a reader is live again; ``events`` came from the log or the window since."""

    def coalesced(self, session: str, events: int) -> None:
        """In a backlog, ``events`` became part of the one before them."""

    def live_gap(self, session: str) -> None:
        """A hole was seen in the live tail."""

    def gap_filled(self, session: str, events: int) -> None:
        """Events of a hole were read from the log."""

    def skipped(self, session: str, seq: int, reason: str) -> None:
        """A stored message is no event and was passed over (contract 1.9)."""

    def session_closed(self, session: str) -> None:
        """A session was closed by a request to this instance (contract 10.4)."""

    def session_purged(self, session: str) -> None:
        """All that was stored of a session was removed by a request to this instance (contract 10.4)."""

    def log_connected(self, connected: bool) -> None:
        """The connection to the log was lost or is back."""

    def log_degraded(self, shard: int, reason: str) -> None:
        """The log does not store in a shard: publishes are refused at once from now on (contract 8.2)."""

    def log_restored(self, shard: int, seconds: float) -> None:
        """The shard stores again, after so many seconds."""

    def cancel(self, outcome: str, session: str, task: str) -> None:
        """A cancel was ``requested``, ``repeated`` or ``failed``; or who waited for it was told (``delivered``)."""

    def loop_late(self, seconds: float) -> None:
        """The event loop came to a timer of the hub so much later than it was due; told four times a second."""

    def tail_not_reopened(self, shard: int, reason: str) -> None:
        """A shard's live messages stopped coming, and a try to have them again failed."""

    def epoch_added(self, shard: int, token: str) -> None:
        """A shard's epoch table has a new row."""
