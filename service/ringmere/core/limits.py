"""Every bound of an instance by name, unit in the name or the docstring (design: a bound on everything)."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

MAX_BATCH = 1000
MAX_DEPTH = 64
MAX_TYPE_CHARS = 128
MAX_KEY_CHARS = 255
MIN_MAX_QUEUED = 16
MAX_MAX_QUEUED = 2048
MAX_RING_SIZE = 1_000_000
MAX_SHARDS = 64
MAX_WORKERS = 64
MAX_SCHEMAS = 1000
MAX_SCHEMA_BYTES = 1 * MIB
"""Files of a directory of schemas, and bytes of one."""
RESHAPED_BLOBS = 8
"""Turns and replay pages of which an instance keeps the events as CloudEvents, for the next reader of the same."""
FRAMED_BLOBS = 8
"""Turns and replay pages of which an instance keeps the WebSocket frames, for the next reader of the same."""
KEPT_BLOB_BYTES = 2 * MIB
"""Longest turn or page that is kept so: of either kind at most 8 × 2 MiB as they came, and what was made of them."""
MAX_FAULT_CHARS = 300
MAX_POINTER_CHARS = 1024
"""What an answer tells of a fault in an event's data: names in it may be of any length."""
MAX_LISTED = 1_000_000
"""Sessions whose names an instance lists, and keeps for a few seconds; about 100 bytes each."""
LISTED_BYTES = 32 * MIB
"""What may come at once of the sessions of one page of a list; NATS cuts off a connection with 64 MiB waiting."""
MAX_REASON_CHARS = 500
"""Longest reason of a cancel (contract 10.3)."""
MAX_CANCEL_WAIT = 30
"""Seconds that one request may wait for a cancel; below what proxies cut off (contract 10.3)."""
MAX_TRACESTATE_CHARS = 512
"""Longest ``tracestate`` that is passed on; a longer one is left out."""
MAX_TRACED = 8192
"""Traced events on their way to their readers that an instance remembers; further ones have no delivery span."""
MAX_DECODED_BYTES = 16 * MIB
"""What an SSE decoder buffers of one event before it gives up; far above any event a default log takes."""
MAX_RETRY_MS = 3_600_000
"""Longest reconnection time that a decoder reports, whatever ``retry:`` says (one hour)."""
MAX_OVERTAKES = 3
OVERTAKES_WITHIN = 60.0
"""A reader that retention has overtaken so often within so many seconds is too slow for its ring (contract 6.7)."""


MAX_LOOKS = 256
"""Sessions of which an instance remembers for a moment whether a verdict has found a snapshot."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one instance holds at most, and for how long; sizes in bytes, times in seconds."""

    max_queued: int = 256
    """Backlog of a reader in frames (contract 6.2)."""
    max_queued_bytes: int = 2 * MIB
    """Backlog of a reader in envelope bytes (contract 6.2)."""
    backlog_bytes_total: int = 512 * MIB
    """All backlogs of the instance; beyond it the largest is evicted."""
    max_subscribers: int = 64
    """Readers of one session on this instance (contract 6.9)."""
    max_sessions_per_stream: int = 256
    """Sessions that one stream follows (contract 7.1)."""
    max_connections: int = 100_000
    """Readers on this instance; the process lowers it to its file limit less a reserve."""
    turn_bytes: int = 1 * MIB
    """What a channel accepts in one loop turn (contract 6.1)."""
    window_bytes: int = 1 * MIB
    """Newest events that a channel keeps in memory."""
    window_bytes_total: int = 256 * MIB
    """All windows of the instance; beyond it the least recently used goes."""
    parked_bytes: int = 1 * MIB
    """Live messages a channel holds while it fills a hole; beyond it they are read again from the log."""
    page_bytes: int = 1 * MIB
    """One page of a replay as read from the log."""
    page_cache: int = 8
    """Encoded replay pages kept for other readers of the same range."""
    concurrent_reads: int = 8
    """Range reads under way at once."""
    pages_per_turn: int = 8
    """Replay pages written in one turn of the loop, over all readers; live events go in between."""
    snapshot_reads: int = 4
    """Snapshots read at once."""
    snapshot_wait: float = 0.5
    """A verdict waits for a snapshot no longer than this (contract 4.7)."""
    publish_inflight: int = 4096
    """Unacknowledged publishes of the instance."""
    publish_inflight_bytes: int = 16 * MIB
    """The same in bytes; beyond either, 503 with Retry-After."""
    breaker_failures: int = 5
    """Publishes in a row that the log fails before they are refused at once (contract 8.2)."""
    breaker_window: float = 30.0
    """A failure that comes later than this after the one before begins a new row."""
    breaker_pause: float = 1.0
    """From the breaker's opening, or a failed probe, to the next probe."""
    request_bytes: int = 8 * MIB
    """Largest request body (contract 2.6)."""
    heartbeat: float = 15.0
    """Interval of comment heartbeats (contract 3.8)."""
    write_timeout: float = 30.0
    """A transport that stays paused for this long is evicted (contract 6.6)."""
    evict_grace: float = 5.0
    """From eviction to the socket's abort at the latest (contract 6.5)."""
    drain_grace: float = 20.0
    """Span over which a drain spreads its goodbyes (contract 8.3)."""
    retry_ms: int = 3000
    """Reconnection time told to clients, before jitter (contract 3.7)."""
    connect_deadline: float = 2.0
    """From request to the first byte of a stream at the latest (contract 3.10)."""
    max_stream_age: float = 0.0
    """A stream ends by itself after this time ± 10 %; 0 is never (contract 3.8)."""
    channel_linger: float = 5.0
    """How long a channel outlives its last reader, so that a reader that comes back finds its window."""
    bounds_age: float = 1.0
    """Leader bounds older than this are read again before a verdict leans on them."""
    sweep_first: float = 1.0
    """A channel quiet for this long is checked against the log for a lost last message."""
    sweep_max: float = 30.0
    """Interval that the checks of a channel that stays quiet grow to."""
