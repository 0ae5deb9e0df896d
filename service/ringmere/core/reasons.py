"""Why a stream ended: a numbered registry, so that logs, metrics and clients say the same word.

``may_reconnect`` tells a client whether coming back makes sense. The WebSocket close code is the number.
"""

from __future__ import annotations

import enum


class CloseReason(enum.Enum):
    """Number, label and whether a client may come back. The label is a metric label: never change one."""

    CLIENT_GONE = (4000, "client_gone", True)
    QUEUE_OVERFLOW = (4001, "queue_overflow", True)
    SESSION_CLOSED = (4002, "session_closed", False)
    DRAINING = (4003, "draining", True)
    QUEUE_BYTES_OVERFLOW = (4004, "queue_bytes_overflow", True)
    WRITE_TIMEOUT = (4005, "write_timeout", True)
    TOO_SLOW = (4006, "too_slow", True)
    MAX_AGE = (4007, "max_stream_age", True)
    LIMIT = (4008, "subscriber_limit_exceeded", True)
    LOG_UNAVAILABLE = (4009, "log_unavailable", True)
    SHUTDOWN = (4010, "shutdown", True)
    MEMORY = (4011, "instance_backlog_full", True)
    INTERNAL = (4500, "internal_error", True)

    def __init__(self, number: int, label: str, may_reconnect: bool) -> None:
        self.number = number
        self.label = label
        self.may_reconnect = may_reconnect
