"""Metrics: what is told is counted, series are bounded, gauges are what is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from ringmere.core.errors import EventTooLarge, LogUnavailable
from ringmere.core.reasons import CloseReason
from ringmere.hub.observer import Account, Observer, Replay
from ringmere.hub.stats import Mirror
from ringmere.telemetry.metrics import Metrics


@dataclass
class FakeStats:
    subscribers: dict[str, int] = field(default_factory=lambda: {"sse": 3})
    sessions_live: int = 2
    backlog_events: int = 10
    backlog_events_max: int = 7
    backlog_bytes: int = 1000
    backlog_bytes_max: int = 700
    window_bytes: int = 4096
    log_connected: bool = True
    log_degraded: dict[int, bool] = field(default_factory=lambda: {0: False, 3: True})
    mirrors: Sequence[Mirror] = (Mirror("head", 0, 12, 1.5),)


def series(name: str, values: dict[str, str]) -> str:
    inner = ",".join(f"{label}={value}" for label, value in sorted(values.items()))
    return f"{name}{{{inner}}}" if inner else name


def samples(metrics: Metrics) -> dict[str, float]:
    """Return what is counted of the service; what the process costs is its own test's."""
    families = text_string_to_metric_families(metrics.render()[0].decode())
    return {
        series(sample.name, sample.labels): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created") and "_process_" not in sample.name
    }


def tell_everything(observer: Observer, session: str, stream: str) -> None:
    for outcome in ("stored", "duplicate", "degraded", EventTooLarge.code, LogUnavailable.code):
        observer.published(outcome, 2, 0.003)
    observer.stream_opened("sse", session, stream, 5, None)
    observer.stream_closed("sse", session, stream, CloseReason.CLIENT_GONE, 12.5, Account(40, 0))
    observer.cursor_ignored(session, "malformed")
    observer.resumed(session, "contiguous", "window")
    observer.resync(session, "ring_evicted", None, stream)
    observer.replayed(session, stream, Replay("contiguous", "log", 8, 800, 0.02))
    observer.delivered("sse", 30, 9000, 0.004)
    observer.delivered("sse", 3, 900, None)
    observer.warned(session, stream, "frames")
    observer.evicted(session, stream, CloseReason.QUEUE_OVERFLOW)
    observer.fell_back(session, stream, CloseReason.QUEUE_BYTES_OVERFLOW)
    observer.caught_up(session, 70)
    observer.coalesced(session, 6)
    observer.live_gap(session)
    observer.gap_filled(session, 4)
    observer.skipped(session, 17, "not_json")
    observer.log_connected(False)
    observer.log_degraded(0, "no quorum")
    observer.log_restored(0, 3.0)
    observer.loop_late(0.04)
    observer.tail_not_reopened(0, "no leader")
    observer.epoch_added(0, "b-1")
    for outcome in ("requested", "repeated", "repeated", "delivered", "failed"):
        observer.cancel(outcome, session, "t1")


EXPECTED = {
    "ringmere_published_events_total{outcome=stored}": 2,
    "ringmere_published_events_total{outcome=duplicate}": 2,
    "ringmere_published_events_total{outcome=event_too_large}": 2,
    "ringmere_published_events_total{outcome=log_unavailable}": 2,
    "ringmere_published_events_total{outcome=degraded}": 2,
    "ringmere_degraded_events_total": 2,
    "ringmere_breaker_transitions_total{state=open}": 1,
    "ringmere_breaker_transitions_total{state=closed}": 1,
    "ringmere_publish_duration_seconds_count": 5,
    "ringmere_streams_opened_total": 1,
    "ringmere_streams_closed_total{reason=client_gone,transport=sse}": 1,
    "ringmere_stream_duration_seconds_sum": 12.5,
    "ringmere_cursors_ignored_total{reason=malformed}": 1,
    "ringmere_resumes_total{source=window,verdict=contiguous}": 1,
    "ringmere_resyncs_total{reason=ring_evicted}": 1,
    "ringmere_replayed_events_total{source=log}": 8,
    "ringmere_replay_duration_seconds_sum": 0.02,
    "ringmere_delivered_events_total{transport=sse}": 33,
    "ringmere_delivered_bytes_total": 9900,
    "ringmere_delivery_lag_seconds_count": 1,
    "ringmere_slow_client_warnings_total{threshold=frames}": 1,
    "ringmere_evictions_total{reason=queue_overflow}": 1,
    "ringmere_catchups_total{reason=queue_bytes_overflow}": 1,
    "ringmere_catchup_events_total": 70,
    "ringmere_coalesced_events_total": 6,
    "ringmere_live_gaps_total": 1,
    "ringmere_gap_filled_events_total": 4,
    "ringmere_skipped_messages_total{reason=not_json}": 1,
    "ringmere_tail_reopen_failures_total": 1,
    "ringmere_epochs_added_total": 1,
    "ringmere_cancels_total{outcome=requested}": 1,
    "ringmere_cancels_total{outcome=repeated}": 2,
    "ringmere_cancels_total{outcome=delivered}": 1,
    "ringmere_cancels_total{outcome=failed}": 1,
    "ringmere_loop_lag_seconds_sum": 0.04,
}


def test_everything_the_hub_tells_is_counted_under_its_name() -> None:
    metrics = Metrics()
    before = samples(metrics)
    assert [name for name in EXPECTED if before.get(name) != 0] == []
    tell_everything(metrics, "s1", "x")
    after = samples(metrics)
    assert {name: after[name] for name in EXPECTED} == EXPECTED
    unmentioned = {name for name in after if name.endswith("_total") or "_total{" in name} - set(EXPECTED)
    assert {after[name] for name in unmentioned} == {0}


def test_obs_1_the_number_of_series_does_not_depend_on_sessions_or_streams() -> None:
    telemetry = Metrics()
    telemetry.watch(FakeStats)
    before = samples(telemetry)
    for number in range(1000):
        tell_everything(telemetry, f"session-{number}", f"stream-{number}")
    assert set(samples(telemetry)) == set(before)
    assert b"session-" not in telemetry.render()[0]


def test_obs_1_unknown_label_values_are_counted_as_other() -> None:
    metrics = Metrics()
    before = set(samples(metrics))
    metrics.published("made-up", 1, 0.1)
    metrics.cursor_ignored("s", "made-up")
    metrics.resumed("s", "made-up", "made-up")
    metrics.delivered("carrier-pigeon", 1, 1, 0.1)
    metrics.stream_closed("carrier-pigeon", "s", "x", CloseReason.MAX_AGE, 1, Account(1, 0))
    metrics.skipped("s", 1, "made-up")
    after = samples(metrics)
    assert set(after) == before
    assert after["ringmere_resumes_total{source=other,verdict=other}"] == 1
    assert after["ringmere_published_events_total{outcome=other}"] == 1


def test_every_close_reason_has_its_series_from_the_start() -> None:
    names = samples(Metrics())
    for reason in CloseReason:
        assert f"ringmere_streams_closed_total{{reason={reason.label},transport=sse}}" in names


def test_gauges_are_the_numbers_of_the_moment_of_the_scrape() -> None:
    stats = FakeStats()
    metrics = Metrics()
    metrics.watch(lambda: stats)
    first = samples(metrics)
    assert first["ringmere_subscribers{transport=sse}"] == 3
    assert first["ringmere_subscribers{transport=websocket}"] == 0
    assert first["ringmere_sessions_live"] == 2
    assert first["ringmere_backlog_events{of=all}"] == 10
    assert first["ringmere_backlog_events{of=largest}"] == 7
    assert first["ringmere_backlog_bytes{of=all}"] == 1000
    assert first["ringmere_backlog_bytes{of=largest}"] == 700
    assert first["ringmere_window_bytes"] == 4096
    assert first["ringmere_log_connected"] == 1
    assert first["ringmere_mirror_lag_events{shard=0,stream=head}"] == 12
    assert first["ringmere_mirror_silence_seconds{shard=0,stream=head}"] == 1.5
    assert (first["ringmere_log_degraded{shard=0}"], first["ringmere_log_degraded{shard=3}"]) == (0, 1)
    stats.subscribers = {}
    stats.log_connected = False
    second = samples(metrics)
    assert (second["ringmere_subscribers{transport=sse}"], second["ringmere_log_connected"]) == (0, 0)


def test_without_a_hub_there_are_no_gauges_and_no_error() -> None:
    assert "ringmere_sessions_live" not in samples(Metrics())


def test_a_stats_error_fails_the_scrape_instead_of_showing_old_numbers() -> None:
    metrics = Metrics()

    def broken() -> FakeStats:
        raise RuntimeError("no hub")

    metrics.watch(broken)
    with pytest.raises(RuntimeError):
        metrics.render()


def test_build_info_says_what_is_running() -> None:
    assert [name for name in samples(Metrics()) if name.startswith("ringmere_build_info{python=3.")]


def test_two_instances_in_one_process_do_not_share_counts() -> None:
    first, second = Metrics(), Metrics()
    first.live_gap("s")
    assert samples(second)["ringmere_live_gaps_total"] == 0


def test_a_scrape_gets_the_format_that_it_asks_for() -> None:
    assert Metrics().render()[1].startswith("text/plain; version=")
    body, content_type = Metrics().render("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    assert len(list(openmetrics(body.decode()))) > 30


def exemplars(metrics: Metrics) -> dict[str, str]:
    """Return the trace of each bucket that has one."""
    families = openmetrics(metrics.render("application/openmetrics-text; version=1.0.0")[0].decode())
    samples = [sample for family in families for sample in family.samples if sample.exemplar is not None]
    return {f"{each.name} {each.labels['le']}": each.exemplar.labels["trace_id"] for each in samples}


def test_a_time_has_its_trace_as_exemplar_and_none_without_one() -> None:
    traces = iter(["a" * 32, "b" * 32, None])
    metrics = Metrics(lambda: next(traces))
    metrics.published("stored", 1, 0.003)
    metrics.delivered("sse", 1, 10, 0.004)
    metrics.replayed("s", "x", Replay("contiguous", "log", 8, 800, 0.02))
    metrics.loop_late(0.02)
    assert exemplars(metrics) == {
        "ringmere_publish_duration_seconds_bucket 0.005": "a" * 32,
        "ringmere_delivery_lag_seconds_bucket 0.005": "b" * 32,
    }
    untraced = Metrics()
    tell_everything(untraced, "s", "x")
    assert exemplars(untraced) == {}


def test_every_name_has_the_prefix_and_a_help_text() -> None:
    metrics = Metrics()
    metrics.watch(FakeStats)
    for family in text_string_to_metric_families(metrics.render()[0].decode()):
        assert family.name.startswith("ringmere_")
        assert family.documentation
