"""Log lines: JSON where machines read them, columns on a terminal; never a payload. ``LOGS.md`` lists them all.

Lines that a client or a publisher can cause at will are limited: at most one a second for each event
and reason, with ``suppressed`` counting those left out since the last one. Metrics count all of them.
"""

from __future__ import annotations

import logging
import logging.config
import sys
import time
from collections.abc import Callable
from typing import Any

import structlog
from structlog.typing import Processor

from ringmere.core.reasons import CloseReason
from ringmere.hub.observer import Account, Observer
from ringmere.telemetry.current import CurrentTrace, no_trace

LIMITED_EVERY = 1.0
"""Seconds between two lines of the same limited event and reason."""


def configure(level: str = "info", json: bool | None = None) -> None:
    """Send structlog's and the standard library's lines to stderr through one formatter.

    ``level`` is a standard level name in any case. ``json`` None means: unless stderr is a terminal.
    """
    as_json = not sys.stderr.isatty() if json is None else json
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "line": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(as_json)],
                    "foreign_pre_chain": shared,
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "root": {"handlers": ["stderr"], "level": level.upper()},
        }
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _renderers(as_json: bool) -> list[Processor]:
    # Tracebacks without the values of variables: those would be events and passwords.
    if as_json:
        frames = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        return [structlog.processors.ExceptionRenderer(frames), structlog.processors.JSONRenderer()]
    frames_for_people = structlog.dev.RichTracebackFormatter(show_locals=False)
    return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=frames_for_people)]


class LogObserver(Observer):
    """Writes what a hub tells as lines. ``clock`` is a monotonic clock in seconds.

    ``trace`` gives the trace that a call belongs to; the call's line then has it as a field.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, trace: CurrentTrace = no_trace) -> None:
        self._log = structlog.stdlib.get_logger("ringmere.hub")
        self._clock = clock
        self._trace = trace
        self._written: dict[tuple[str, str], tuple[float, int]] = {}

    def stream_opened(
        self, transport: str, session: str, stream_id: str, cursor: int | str | None, client: str | None
    ) -> None:
        """Say that a stream was accepted."""
        self._info(
            "stream_opened", transport=transport, session=session, stream=stream_id, cursor=cursor, client=client
        )

    def stream_closed(
        self, transport: str, session: str, stream_id: str, reason: CloseReason, seconds: float, account: Account
    ) -> None:
        """Say that a stream ended, why, after how long and how much."""
        self._info(
            "stream_closed",
            transport=transport,
            session=session,
            stream=stream_id,
            reason=reason.label,
            seconds=round(seconds, 3),
            events=account.events,
            replayed=account.replayed,
            bytes=account.size,
            lag=account.lag,
        )

    def warned(self, session: str, stream_id: str, threshold: str) -> None:
        """Say that a reader is slow."""
        self._limited("reader_warned", threshold, session=session, stream=stream_id, threshold=threshold)

    def evicted(self, session: str, stream_id: str, reason: CloseReason) -> None:
        """Say that a reader was too slow."""
        self._limited("reader_evicted", reason.label, session=session, stream=stream_id, reason=reason.label)

    def fell_back(self, session: str, stream_id: str, reason: CloseReason) -> None:
        """Say that a slow reader reads on from the log."""
        self._limited("reader_fell_back", reason.label, session=session, stream=stream_id, reason=reason.label)

    def cursor_ignored(self, session: str, reason: str) -> None:
        """Say that a cursor was malformed."""
        self._limited("cursor_ignored", reason, session=session, reason=reason)

    def resync(self, session: str, reason: str, detail: str | None, stream_id: str | None) -> None:
        """Say that a client was told to load its state anew."""
        self._limited("resync", reason, session=session, stream=stream_id, reason=reason, detail=detail)

    def snapshot_missed(self, session: str) -> None:
        """Say that a stored state could not be read in time."""
        self._limited("snapshot_missed", "", session=session)

    def live_gap(self, session: str) -> None:
        """Say that the live tail had a hole."""
        self._limited("live_gap", "", session=session)

    def skipped(self, session: str, seq: int, reason: str) -> None:
        """Say which stored message is no event."""
        self._limited("message_skipped", reason, session=session, seq=seq, reason=reason)

    def session_closed(self, session: str) -> None:
        """Say that a session was closed."""
        self._info("session_closed", session=session)

    def session_purged(self, session: str) -> None:
        """Say that a session was purged: what is gone for good should be found later."""
        self._info("session_purged", session=session)

    def log_connected(self, connected: bool) -> None:
        """Say that NATS is back, or gone."""
        if connected:
            self._info("log_connected")
        else:
            self._warning("log_lost")

    def log_degraded(self, shard: int, reason: str) -> None:
        """Say that a shard does not store."""
        self._warning("log_degraded", shard=shard, reason=reason)

    def log_restored(self, shard: int, seconds: float) -> None:
        """Say that it does again, and how long it did not."""
        self._info("log_restored", shard=shard, seconds=round(seconds, 3))

    def tail_not_reopened(self, shard: int, reason: str) -> None:
        """Say that a shard's live messages do not come."""
        self._limited("tail_not_reopened", str(shard), shard=shard, reason=reason)

    def cancel(self, outcome: str, session: str, task: str) -> None:
        """Say that a task is to end, or that it could not be said; of repeats only the counts are of interest."""
        if outcome == "requested":
            self._info("cancel_requested", session=session, task=task)
        elif outcome == "failed":
            self._limited("cancel_failed", "", session=session, task=task)

    def epoch_added(self, shard: int, token: str) -> None:
        """Say that a shard has a new epoch."""
        self._warning("epoch_added", shard=shard, token=token)

    def _limited(self, event: str, kind: str, **fields: Any) -> None:
        """Write a warning unless one of its event and kind was written less than a second ago."""
        now = self._clock()
        last, suppressed = self._written.get((event, kind), (-LIMITED_EVERY, 0))
        if now - last < LIMITED_EVERY:
            self._written[event, kind] = (last, suppressed + 1)
            return
        self._written[event, kind] = (now, 0)
        if suppressed:
            fields["suppressed"] = suppressed
        self._warning(event, **fields)

    def _info(self, event: str, **fields: Any) -> None:
        self._log.info(event, **fields, **self._belongs())

    def _warning(self, event: str, **fields: Any) -> None:
        self._log.warning(event, **fields, **self._belongs())

    def _belongs(self) -> dict[str, str]:
        trace = self._trace()
        return {} if trace is None else {"trace": trace}
