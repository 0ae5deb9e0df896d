"""Control frames about one reader's own stream: the warning, the eviction, the fault (contract 5.2, 6)."""

from __future__ import annotations

import time
from typing import Any

from msgspec import Raw

from ringmere.core.backlog import Backlog
from ringmere.core.frames import control_frame
from ringmere.core.reasons import CloseReason

FAULT_RETRY_MS = 1000
"""Told to a client whose stream ends by a fault of this program."""


def slow_client_warning(backlog: Backlog, last_id: int | str, threshold: str) -> bytes:
    """Return the warning that stands right behind the event that crossed ``threshold`` (contract 6.4)."""
    return _frame("slow_client_warning", {**_fill_level(backlog), "lastEventId": last_id, "threshold": threshold})


def client_evicted(backlog: Backlog, reason: CloseReason, dropped_after: int | str, event_bytes: int | None) -> bytes:
    """Return the last frame of an evicted reader; ``dropped_after`` is the id to resume at (contract 6.5)."""
    data = {"reason": reason.label, "droppedAfter": dropped_after, **_fill_level(backlog)}
    if event_bytes is not None:
        data["eventBytes"] = event_bytes
    return _frame("client_evicted", data)


def resync_required(
    reason: str, detail: str | None, last_id: int | str, earliest_id: int, snapshot: str | None = None
) -> bytes:
    """Return the verdict that stands for a loss at its place: after ``last_id``, before ``earliest_id`` (4.7).

    ``snapshot`` is the URL of a stored state.
    """
    data: dict[str, Any] = {"reason": reason}
    if detail:
        data["detail"] = detail
    data |= {"lastDeliveredId": last_id, "earliestAvailableId": earliest_id}
    if snapshot:
        data["snapshot"] = snapshot
    return _frame("state_resync_required", data)


def session_snapshot(last_event_id: int, state: bytes, *, final: bool = False) -> bytes:
    """Return the frame that brings a stored state, one line of JSON: what follows it comes behind that id (10.2).

    ``final`` says that nothing follows (3.9), for clients that would come back for ever otherwise.
    """
    data: dict[str, Any] = {"lastEventId": last_event_id, "state": Raw(state)}
    return _frame("session_snapshot", data | {"final": True} if final else data)


def storing_notice(since_ms: int, last_id: int | str, now_ms: int, *, degraded: bool) -> bytes:
    """Return the notice that the log stores no more, or again; ``since_ms`` is the beginning in both (contract 8.2)."""
    type = "log_degraded" if degraded else "log_restored"
    return control_frame(type, {"since": since_ms, "lastEventId": last_id}, now_ms)


def replay_complete(events: int, last_id: int | str, session: str | None = None) -> bytes:
    """Return the frame behind a replay of many sessions, or behind that of one that was added to them."""
    data: dict[str, Any] = {"sessionId": session} if session is not None else {}
    data["replayedCount"] = events
    if events:
        data["lastReplayedEventId"] = last_id
    return _frame("replay_complete", data)


def internal_fault() -> bytes:
    """Return the last frame of a stream that a fault of this program ends; its client comes back and reads on."""
    return stream_error("internal error", CloseReason.INTERNAL.label, FAULT_RETRY_MS / 1000)


def stream_error(error: str, kind: str, retry_after: float | None = None) -> bytes:
    """Return the last frame of a stream that something else than its reader ends; ``retry_after`` in seconds."""
    data: dict[str, Any] = {"error": error, "errorKind": kind}
    if retry_after is not None:
        data["retryAfterMs"] = round(retry_after * 1000)
    return _frame("stream_error", data)


def _frame(type: str, data: dict[str, Any]) -> bytes:
    return control_frame(type, data, time.time_ns() // 1_000_000)


def _fill_level(backlog: Backlog) -> dict[str, Any]:
    return {
        "queueSize": backlog.frames,
        "maxQueued": backlog.max_frames,
        "queuedBytes": backlog.bytes,
        "maxQueuedBytes": backlog.max_bytes,
    }
