"""The table of settings: each field is one setting, with everything that flags, variables and docs say of it.

A setting that names a bound of :class:`~ringmere.core.limits.Limits` takes its default from there, so a
number stands in one place only.
"""
# ruff: noqa: E501 (one row, one line: it is a table)

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from ringmere.core.limits import MAX_MAX_QUEUED, MAX_RING_SIZE, MAX_SHARDS, MAX_WORKERS, MIN_MAX_QUEUED, Limits
from ringmere.settings.kinds import DURATION, NETWORKS, NUMBER, RULES, SIZE, SWITCH, TEXT, WORDS, Kind

DAY = 86400.0
MAX_BYTES = 1 << 40
_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. ``low`` and ``high`` are inclusive; ``secret`` ones have no flag and are never shown."""

    name: str
    kind: Kind
    default: Any
    group: str
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False
    zero: str | None = None
    """What 0 means when it lies below ``low`` and is allowed all the same."""

    @property
    def flag(self) -> str | None:
        """The command line flag, None for a secret: command lines are visible to everybody."""
        return None if self.secret else "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "RINGMERE_" + self.name.upper()


def _row(kind: Kind, default: Any, group: str, help: str, **rest: Any) -> Any:
    return field(default=default, metadata={"kind": kind, "group": group, "help": help, **rest})


def _limit(name: str, kind: Kind, group: str, help: str, **rest: Any) -> Any:
    return _row(kind, getattr(_LIMITS, name), group, help, **rest)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of an instance, checked. Sizes are bytes, durations seconds."""

    # fmt: off
    listen: str = _row(TEXT, "127.0.0.1:8080", "process", "HOST:PORT of the HTTP door; port 0 takes a free one, which is printed.")
    embedded: bool = _row(SWITCH, False, "process", "Start a NATS server of its own (extra `embedded`) and stop it on exit.")
    data_dir: str = _row(TEXT, "ringmere-data", "process", "Where the embedded NATS server keeps its log.")
    workers: int = _row(NUMBER, 1, "process", "Processes that share the address, each an instance of its own with these limits (Linux).", low=1, high=MAX_WORKERS)
    log_level: str = _row(TEXT, "info", "process", "What is written to stderr.", choices=("debug", "info", "warning", "error"))
    traces: str = _row(TEXT, "off", "process", "Where spans go: `otlp` over HTTP, as the standard `OTEL_…` variables say (extra `otel`).", choices=("off", "otlp"))
    drain_grace: float = _limit("drain_grace", DURATION, "process", "Span over which a stopping instance says goodbye to its streams.", low=0, high=3600)

    nats_url: str = _row(TEXT, "", "nats", "NATS servers, comma separated. Else `NATS_URL`, else the NATS context, else nats://127.0.0.1:4222.")
    nats_context: str = _row(TEXT, "", "nats", "Name of a NATS CLI context; else `NATS_CONTEXT`, else the selected one.")
    nats_creds: str = _row(TEXT, "", "nats", "Credentials file.")
    nats_nkey: str = _row(TEXT, "", "nats", "File with an nkey seed.")
    nats_user: str = _row(TEXT, "", "nats", "User name.")
    nats_password: str = _row(TEXT, "", "nats", "Password.", secret=True)
    nats_token: str = _row(TEXT, "", "nats", "Token.", secret=True)
    nats_tls_ca: str = _row(TEXT, "", "nats", "CA certificates that the server's is checked against.")
    nats_tls_cert: str = _row(TEXT, "", "nats", "Client certificate.")
    nats_tls_key: str = _row(TEXT, "", "nats", "Key of the client certificate.")

    ring_size: int = _row(NUMBER, 8000, "log", "Newest events of a session that can be replayed.", low=1, high=MAX_RING_SIZE)
    log_ttl: float = _row(DURATION, 3600.0, "log", "Age at which an event leaves the log: how long a client may be away.", low=1, high=366 * DAY, zero="for ever")
    head_ttl: float = _row(DURATION, 7 * DAY, "log", "How long the last id of a session is known after its events have expired.", low=1, high=3660 * DAY, zero="off")
    cancel_ttl: float = _row(DURATION, 3600.0, "log", "How long the cancel of a task is remembered: longer than a task waits for its worker.", low=1, high=366 * DAY)
    shards: int = _row(NUMBER, 1, "log", "Streams that the sessions are spread over; fixed at birth.", low=1, high=MAX_SHARDS)
    replicas: int = _row(NUMBER, 1, "log", "Copies of each stream in the NATS cluster.", low=1, high=5)
    max_bytes: int = _row(SIZE, 0, "log", "Disk that the event streams of all shards may take together, per copy.", low=1024**2, high=MAX_BYTES, zero="80 % of the store, shared by the shards")
    max_event_bytes: int = _row(SIZE, 0, "log", "Largest event.", low=1024, high=64 * 1024**2, zero="what NATS takes less 64KiB")
    max_snapshot_bytes: int = _row(SIZE, 0, "log", "Largest state of a snapshot.", low=1024, high=64 * 1024**2, zero="what NATS takes less 64KiB")
    snapshot_bytes: int = _row(SIZE, 0, "log", "Disk that all snapshots may take; the oldest make room.", low=1024**2, high=MAX_BYTES, zero="1/16 of what events ask for")
    reconcile: bool = _row(SWITCH, False, "log", "Change a stream that exists with another shape instead of refusing to start.")
    first_epoch: int = _row(NUMBER, 0, "log", "Epoch that a new log begins with, after record and stream were both lost.", low=0, high=8191)
    tail: str = _row(TEXT, "auto", "log", "Where live events come from: `republish` by the streams, or a `consumer` per shard for streams that do not; `auto` looks at them.", choices=("auto", "republish", "consumer"))
    reader: str = _row(TEXT, "consumer", "log", "How replays are read: direct gets only, or by consumers from the second page on.", choices=("consumer", "direct"))

    breaker_failures: int = _limit("breaker_failures", NUMBER, "log", "Publishes in a row that the log fails before the next ones are refused at once.", low=1, high=10_000)
    breaker_window: float = _limit("breaker_window", DURATION, "log", "A failure that comes later than this after the one before begins a new row.", low=0.1, high=DAY)
    breaker_pause: float = _limit("breaker_pause", DURATION, "log", "Interval of the probes that find out whether the log stores again.", low=0.1, high=3600)

    schemas: str = _row(TEXT, "", "http", "Directory with a JSON Schema for each event type that is checked; SIGHUP reads it again.")
    schemas_strict: bool = _row(SWITCH, False, "http", "Refuse events of a type that has no schema.")
    require_session: bool = _row(SWITCH, False, "http", "Answer 404 for a stream of an unknown session.")
    stream_errors: str = _row(TEXT, "event", "http", "How a stream says that it cannot start now: 200 and an event, or 503/429.", choices=("event", "status"))
    cors_origin: tuple[str, ...] = _row(WORDS, (), "http", "Origins that browsers may call from; none by default.")
    trusted_proxy: tuple[str, ...] = _row(NETWORKS, (), "http", "Addresses or networks of proxies whose `X-Forwarded-For` names the client.")
    request_bytes: int = _limit("request_bytes", SIZE, "http", "Largest request body.", low=1024, high=1024**3)
    retry_ms: int = _limit("retry_ms", NUMBER, "http", "Reconnection time told to clients, in ms, before ±20 % jitter.", low=100, high=600_000)
    connect_deadline: float = _limit("connect_deadline", DURATION, "http", "From a stream's request to its first byte at the latest.", low=0.1, high=60)
    heartbeat: float = _limit("heartbeat", DURATION, "http", "Interval of comment heartbeats.", low=0.1, high=3600)
    max_stream_age: float = _limit("max_stream_age", DURATION, "http", "Age at which a stream ends by itself, ±10 %.", low=1, high=366 * DAY, zero="never")

    max_queued: int = _limit("max_queued", NUMBER, "readers", "Backlog of a reader in events before it is evicted.", low=MIN_MAX_QUEUED, high=MAX_MAX_QUEUED)
    max_queued_bytes: int = _limit("max_queued_bytes", SIZE, "readers", "The same in bytes.", low=1024, high=1024**3)
    coalesce: tuple[str, ...] = _row(RULES, (), "readers", "TYPE=/data/pointer: events that a reader may have merged in its backlog, and the text to join. May be repeated.")
    write_timeout: float = _limit("write_timeout", DURATION, "readers", "A reader that takes nothing for this long is evicted.", low=0.1, high=3600)
    evict_grace: float = _limit("evict_grace", DURATION, "readers", "From an eviction to the end of the socket at the latest.", low=0.1, high=600)
    max_subscribers: int = _limit("max_subscribers", NUMBER, "readers", "Readers of one session on this instance.", low=1, high=1_000_000)
    max_sessions_per_stream: int = _limit("max_sessions_per_stream", NUMBER, "readers", "Sessions that one stream of many follows.", low=1, high=10_000)
    max_connections: int = _limit("max_connections", NUMBER, "readers", "Readers on this instance; never more than the file limit less a reserve.", low=1, high=10_000_000)

    backlog_bytes_total: int = _limit("backlog_bytes_total", SIZE, "memory", "All backlogs; beyond it the largest reader is evicted.", low=1024**2, high=MAX_BYTES)
    window_bytes: int = _limit("window_bytes", SIZE, "memory", "Newest events of a live session kept in memory.", low=1024, high=1024**3)
    window_bytes_total: int = _limit("window_bytes_total", SIZE, "memory", "All windows; beyond it the least recently used goes.", low=1024**2, high=MAX_BYTES)
    page_bytes: int = _limit("page_bytes", SIZE, "memory", "One page of a replay.", low=65536, high=64 * 1024**2)
    concurrent_reads: int = _limit("concurrent_reads", NUMBER, "memory", "Replay pages read from NATS at once.", low=1, high=64)
    publish_inflight: int = _limit("publish_inflight", NUMBER, "memory", "Publishes waiting for NATS; beyond it 503.", low=1, high=1_000_000)
    publish_inflight_bytes: int = _limit("publish_inflight_bytes", SIZE, "memory", "The same in bytes.", low=65536, high=MAX_BYTES)
    # fmt: on


GROUPS = {
    "process": "Process",
    "nats": "Connection to NATS",
    "log": "Log",
    "http": "HTTP",
    "readers": "Slow readers",
    "memory": "Memory",
}


@cache
def rows() -> tuple[Row, ...]:
    """Return the rows of the table in its order."""
    return tuple(Row(name=item.name, default=item.default, **item.metadata) for item in fields(Settings))
