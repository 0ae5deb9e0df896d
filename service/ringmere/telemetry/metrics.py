"""Metrics in the Prometheus format, on a registry of their own.

Names begin with ``ringmere_``, units are seconds and bytes. No label ever holds a session, a stream or a
client: the number of time series does not depend on what is published or who reads.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ringmere import __version__
from ringmere.core.breaker import State
from ringmere.core.reasons import CloseReason
from ringmere.hub.observer import Account, Observer, Replay
from ringmere.telemetry import labels
from ringmere.telemetry.current import CurrentTrace, no_trace
from ringmere.telemetry.gauges import Stats, StatsCollector
from ringmere.telemetry.page import render
from ringmere.telemetry.process import ProcessCollector

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets for what should take milliseconds."""
_LONG = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Buckets for how long people stay."""


class _Counts:
    """A counter with one label: a child for every known value, and one for all others."""

    __slots__ = ("_children", "_other")

    def __init__(self, counter: Counter, known: Sequence[str], *fixed: str) -> None:
        self._children = {value: counter.labels(*fixed, value) for value in known}
        self._other = counter.labels(*fixed, labels.OTHER)

    def add(self, value: str, amount: float = 1) -> None:
        self._children.get(value, self._other).inc(amount)


class Metrics(Observer):
    """Counts what a hub tells. :meth:`watch` connects the gauges, :meth:`render` answers a scrape.

    With ``trace`` observed times get the trace that they belong to as exemplar.
    """

    def __init__(self, trace: CurrentTrace = no_trace) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._trace = trace
        self._gauges = StatsCollector()
        self.registry.register(self._gauges)
        self.registry.register(ProcessCollector())
        self._make_publish_metrics()
        self._make_stream_metrics()
        self._make_session_metrics()
        self._make_log_metrics()
        build = Gauge(
            "ringmere_build_info", "Always 1; what is running.", ["version", "python"], registry=self.registry
        )
        build.labels(__version__, platform.python_version()).set(1)

    def watch(self, stats: Callable[[], Stats]) -> None:
        """Ask ``stats`` for the gauges at every scrape from now on."""
        self._gauges.stats = stats

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics of this moment and their content type, in the format that ``Accept`` asks for."""
        return render(self.registry, accept)

    def _exemplar(self) -> dict[str, str] | None:
        trace = self._trace()
        return None if trace is None else {"trace_id": trace}

    def _counter(self, name: str, text: str, *names: str) -> Counter:
        return Counter(f"ringmere_{name}", text, names, registry=self.registry)

    def _counts(self, name: str, text: str, label: str, known: Sequence[str]) -> _Counts:
        return _Counts(self._counter(name, text, label), known)

    def _seconds(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"ringmere_{name}_seconds", text, buckets=buckets, registry=self.registry)

    def _make_publish_metrics(self) -> None:
        self._published = self._counts(
            "published_events", "Events of publish requests, by what became of them.", "outcome",
            labels.PUBLISH_OUTCOMES,
        )  # fmt: skip
        self._publish_seconds = self._seconds("publish_duration", "From publish request to answer.", _FAST)

    def _make_stream_metrics(self) -> None:
        self._opened = self._counter("streams_opened", "Streams accepted.")
        closed = self._counter("streams_closed", "Streams ended.", "transport", "reason")
        self._closed = {
            transport: _Counts(closed, labels.CLOSE_REASONS, transport)
            for transport in (*labels.TRANSPORTS, labels.OTHER)
        }
        self._stream_seconds = self._seconds("stream_duration", "Age of streams at their end.", _LONG)
        self._delivered = self._counts(
            "delivered_events", "Events handed to transports.", "transport", labels.TRANSPORTS
        )
        self._delivered_bytes = self._counter("delivered_bytes", "Bytes of events handed to transports.")
        self._lag = self._seconds("delivery_lag", "From the log's timestamp to the write, newest of a turn.", _FAST)
        resumes = self._counter("resumes", "Cursors judged.", "verdict", "source")
        self._resumes = {
            verdict: _Counts(resumes, labels.SOURCES, verdict) for verdict in (*labels.VERDICTS, labels.OTHER)
        }
        self._resyncs = self._counts(
            "resyncs", "Frames that told a client to load its state anew.", "reason", labels.RESYNC_REASONS
        )
        self._modes = self._counts(
            "resync_modes", "What followed such frames: the rest of the ring, a stored state, or live events.", "mode",
            labels.RESYNC_MODES,
        )  # fmt: skip
        self._snapshots_sent = self._counts(
            "snapshots_sent", "Stored states sent into streams, by what for.", "cause", labels.SNAPSHOT_CAUSES
        )
        self._snapshots_written = self._counts(
            "snapshots_written", "Requests to store or remove a state, by what became of them.", "outcome",
            labels.SNAPSHOT_OUTCOMES,
        )  # fmt: skip
        self._snapshots_missed = self._counter(
            "snapshots_missed", "Stored states that would have helped a reader and could not be read in time."
        )
        self._replayed = self._counts("replayed_events", "Events of replays.", "source", labels.SOURCES)
        self._replay_seconds = self._seconds("replay_duration", "From a stream's begin to its going live.", _FAST)
        self._warnings = self._counts("slow_client_warnings", "Slow readers warned.", "threshold", labels.THRESHOLDS)
        self._evictions = self._counts("evictions", "Slow readers evicted.", "reason", labels.EVICTION_REASONS)
        self._fall_backs = self._counts(
            "catchups", "Slow readers that read on from the log instead of being evicted.", "reason",
            labels.FALL_BACK_REASONS,
        )  # fmt: skip
        self._caught_up = self._counter("catchup_events", "Events such readers were given on their way back to live.")
        self._coalesced = self._counter("coalesced_events", "Events that became part of another one in a backlog.")
        self._ignored = self._counts(
            "cursors_ignored", "Malformed cursors that degraded to live-only.", "reason", labels.CURSORS_IGNORED
        )

    def _make_session_metrics(self) -> None:
        self._closes = self._counter("closes", "Sessions closed by request.")
        self._purges = self._counter("purges", "Sessions removed with all that was stored of them, by request.")

    def _make_log_metrics(self) -> None:
        self._loop_lag = self._seconds(
            "loop_lag", "How much later than due the event loop came to its timers, four times a second.", _FAST
        )
        self._live_gaps = self._counter("live_gaps", "Holes seen in the live tail.")
        self._gap_filled = self._counter("gap_filled_events", "Events of such holes read from the log.")
        self._degraded_events = self._counter("degraded_events", "Events sent to live readers without being stored.")
        self._transitions = self._counts(
            "breaker_transitions", "A shard ceased to store (open) or stores again (closed).", "state",
            labels.BREAKER_STATES,
        )  # fmt: skip
        self._skipped = self._counts(
            "skipped_messages", "Stored messages that are no events.", "reason", labels.SKIPPED
        )
        self._tail_failures = self._counter("tail_reopen_failures", "Tries to open a lost live tail again that failed.")
        self._cancels = self._counts(
            "cancels", "Cancels of tasks, by what became of them; delivered counts requests that waited for one.",
            "outcome", labels.CANCEL_OUTCOMES,
        )  # fmt: skip
        self._epochs = self._counter("epochs_added", "Changes of an epoch table: ids of lost events became unknown.")

    def published(self, outcome: str, events: int, seconds: float) -> None:
        """Count the events of a publish request."""
        self._published.add(outcome, events)
        self._publish_seconds.observe(seconds, self._exemplar())
        if outcome == "degraded":
            self._degraded_events.inc(events)

    def stream_opened(
        self, transport: str, session: str, stream_id: str, cursor: int | str | None, client: str | None
    ) -> None:
        """Count an accepted stream."""
        self._opened.inc()

    def stream_closed(
        self, transport: str, session: str, stream_id: str, reason: CloseReason, seconds: float, account: Account
    ) -> None:
        """Count an ended stream."""
        self._closed.get(transport, self._closed[labels.OTHER]).add(reason.label)
        self._stream_seconds.observe(seconds)

    def cursor_ignored(self, session: str, reason: str) -> None:
        """Count a cursor that was not taken."""
        self._ignored.add(reason)

    def resumed(self, session: str, verdict: str, source: str) -> None:
        """Count a judged cursor."""
        self._resumes.get(verdict, self._resumes[labels.OTHER]).add(source)

    def resync(self, session: str, reason: str, detail: str | None, stream_id: str | None) -> None:
        """Count a verdict frame."""
        self._resyncs.add(reason)

    def resync_mode(self, session: str, mode: str) -> None:
        """Count what followed a verdict frame."""
        self._modes.add(mode)

    def snapshot_written(self, session: str, outcome: str, size: int) -> None:
        """Count a request to store or remove a state."""
        self._snapshots_written.add(outcome)

    def snapshot_sent(self, session: str, stream_id: str, cause: str) -> None:
        """Count a state that a stream got."""
        self._snapshots_sent.add(cause)

    def snapshot_missed(self, session: str) -> None:
        """Count a state that could not be read."""
        self._snapshots_missed.inc()

    def replayed(self, session: str, stream_id: str, replay: Replay) -> None:
        """Count the events of a replay that has ended."""
        self._replayed.add(replay.source, replay.events)
        self._replay_seconds.observe(replay.seconds, self._exemplar())

    def delivered(self, transport: str, events: int, size: int, lag: float | None) -> None:
        """Count what one loop turn handed to transports."""
        self._delivered.add(transport, events)
        self._delivered_bytes.inc(size)
        if lag is not None:
            self._lag.observe(lag, self._exemplar())

    def warned(self, session: str, stream_id: str, threshold: str) -> None:
        """Count a warning."""
        self._warnings.add(threshold)

    def evicted(self, session: str, stream_id: str, reason: CloseReason) -> None:
        """Count an eviction."""
        self._evictions.add(reason.label)

    def fell_back(self, session: str, stream_id: str, reason: CloseReason) -> None:
        """Count a reader that reads on from the log."""
        self._fall_backs.add(reason.label)

    def caught_up(self, session: str, events: int) -> None:
        """Count what such a reader was given until it was live again."""
        self._caught_up.inc(events)

    def coalesced(self, session: str, events: int) -> None:
        """Count merged events."""
        self._coalesced.inc(events)

    def live_gap(self, session: str) -> None:
        """Count a hole."""
        self._live_gaps.inc()

    def gap_filled(self, session: str, events: int) -> None:
        """Count the events that filled a hole."""
        self._gap_filled.inc(events)

    def session_closed(self, session: str) -> None:
        """Count a session that was closed."""
        self._closes.inc()

    def session_purged(self, session: str) -> None:
        """Count a session that was purged."""
        self._purges.inc()

    def log_degraded(self, shard: int, reason: str) -> None:
        """Count a breaker that has opened."""
        self._transitions.add(State.OPEN.value)

    def log_restored(self, shard: int, seconds: float) -> None:
        """Count a breaker that has closed."""
        self._transitions.add(State.CLOSED.value)

    def skipped(self, session: str, seq: int, reason: str) -> None:
        """Count a message that was passed over."""
        self._skipped.add(reason)

    def cancel(self, outcome: str, session: str, task: str) -> None:
        """Count a cancel, or one that was told."""
        self._cancels.add(outcome)

    def loop_late(self, seconds: float) -> None:
        """Observe how late the event loop is."""
        self._loop_lag.observe(seconds)

    def tail_not_reopened(self, shard: int, reason: str) -> None:
        """Count a try."""
        self._tail_failures.inc()

    def epoch_added(self, shard: int, token: str) -> None:
        """Count a change of an epoch table."""
        self._epochs.inc()
