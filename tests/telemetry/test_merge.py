"""Metrics of several processes: what is counted adds up, what is measured is merged as it means."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from ringmere.core.reasons import CloseReason
from ringmere.hub.observer import Account
from ringmere.hub.stats import Mirror
from ringmere.telemetry.merge import GAUGES, Family, counter, gauge, lasting, merge, render, snapshot
from ringmere.telemetry.metrics import Metrics
from telemetry.test_metrics import FakeStats, samples, series, tell_everything


def watching(stats: FakeStats) -> Metrics:
    metrics = Metrics()
    metrics.watch(lambda: stats)
    return metrics


def shown(families: list[Family]) -> dict[str, float]:
    return {
        series(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(render(families)[0].decode())
        for sample in family.samples
        if not sample.name.endswith("_created") and "_process_" not in sample.name
    }


def steady(page: tuple[bytes, str]) -> tuple[list[bytes], str]:
    """Leave out what the process has used between two looks."""
    return [line for line in page[0].splitlines() if b"_process_" not in line], page[1]


def test_one_process_merged_alone_is_what_it_renders_itself() -> None:
    metrics = watching(FakeStats())
    tell_everything(metrics, "s", "x")
    assert shown(merge([snapshot(metrics.registry)])) == samples(metrics)
    own, merged = (steady(render_) for render_ in (metrics.render(), render(merge([snapshot(metrics.registry)]))))
    assert merged == own


def test_counters_and_histograms_of_all_processes_are_added_up() -> None:
    one, two = Metrics(), Metrics()
    tell_everything(one, "s", "x")
    for _ in range(2):
        tell_everything(two, "s", "x")
    merged, single = shown(merge([snapshot(one.registry), snapshot(two.registry)])), samples(one)
    counted = [name for name in single if "build_info" not in name]
    assert len(counted) > 100
    assert {name: merged[name] for name in counted} == {name: 3 * single[name] for name in counted}


def test_a_gauge_is_merged_as_it_means() -> None:
    one = watching(FakeStats())
    two = watching(replace(FakeStats(), backlog_events=5, backlog_events_max=4, log_connected=False))
    merged = shown(merge([snapshot(one.registry), snapshot(two.registry)]))
    assert merged["ringmere_subscribers{transport=sse}"] == 6
    assert merged["ringmere_sessions_live"] == 4
    assert merged["ringmere_window_bytes"] == 8192
    assert merged["ringmere_backlog_events{of=all}"] == 15
    assert merged["ringmere_backlog_events{of=largest}"] == 7
    assert merged["ringmere_backlog_bytes{of=largest}"] == 700
    assert merged["ringmere_log_connected"] == 0
    assert [value for name, value in merged.items() if "build_info" in name] == [1]


def test_processes_add_up_and_have_the_youngest_start() -> None:
    one, two = (
        [gauge("ringmere_process_open_fds", "", fds), gauge("ringmere_process_start_time_seconds", "", at)]
        for fds, at in ((10, 500), (7, 900))
    )
    merged = {reading.name: reading.value for family in merge([one, two]) for reading in family.readings}
    assert merged == {
        "ringmere_process_open_fds": 17,
        "ringmere_process_start_time_seconds": 900,
    }


def test_mirrors_are_as_bad_as_the_worst_process_sees_them() -> None:
    one = watching(FakeStats())
    two = watching(replace(FakeStats(), mirrors=[Mirror("head", 0, 3, 9.0), Mirror("events", 1, 5, 0.5)]))
    merged = shown(merge([snapshot(one.registry), snapshot(two.registry)]))
    assert merged["ringmere_mirror_lag_events{shard=0,stream=head}"] == 12
    assert merged["ringmere_mirror_silence_seconds{shard=0,stream=head}"] == 9.0
    assert merged["ringmere_mirror_lag_events{shard=1,stream=events}"] == 5


def test_of_the_exemplars_of_a_bucket_the_newest_stays_also_when_its_process_has_ended() -> None:
    one, two = (Metrics(lambda trace=trace: trace) for trace in ("a" * 32, "b" * 32))
    for metrics in (one, two):
        metrics.published("stored", 1, 0.003)
    one.published("stored", 1, 0.8)
    taken = [
        msgspec.json.decode(msgspec.json.encode(snapshot(each.registry)), type=list[Family]) for each in (two, one)
    ]
    page = render(merge([taken[0], lasting(taken[1])]), "application/openmetrics-text; version=1.0.0")[0].decode()
    buckets = [sample for family in openmetrics(page) for sample in family.samples if sample.exemplar is not None]
    assert [(each.labels["le"], each.exemplar.labels["trace_id"][0], each.exemplar.value) for each in buckets] == [
        ("0.005", "b", 0.003),
        ("1.0", "a", 0.8),
    ]
    assert [each.value for each in buckets] == [2, 3]


def test_every_gauge_has_a_rule() -> None:
    gauges = {family.name for family in snapshot(watching(FakeStats()).registry) if family.kind == "gauge"}
    assert gauges
    assert gauges - set(GAUGES) == set()


def test_of_a_process_that_has_ended_the_counts_stay_and_the_gauges_go() -> None:
    gone = watching(FakeStats())
    gone.stream_closed("sse", "s", "x", CloseReason.CLIENT_GONE, 12.5, Account(40, 0))
    kept = shown(merge([lasting(snapshot(gone.registry)), snapshot(watching(FakeStats()).registry)]))
    assert kept["ringmere_streams_closed_total{reason=client_gone,transport=sse}"] == 1
    assert kept["ringmere_stream_duration_seconds_sum"] == 12.5
    assert kept["ringmere_subscribers{transport=sse}"] == 3


def test_a_created_time_is_that_of_the_first_process() -> None:
    one, two = snapshot(Metrics().registry), snapshot(Metrics().registry)
    first, merged = (
        {reading.name: reading.value for family in families for reading in family.readings}
        for families in (one, merge([two, one]))
    )
    created = [name for name in first if name.endswith("_created")]
    assert created
    assert all(merged[name] == first[name] for name in created)


def test_a_snapshot_is_the_same_after_its_way_between_processes() -> None:
    metrics = watching(FakeStats())
    tell_everything(metrics, "s", "x")
    taken = snapshot(metrics.registry)
    assert msgspec.json.decode(msgspec.json.encode(taken), type=list[Family]) == taken


def test_single_values_of_the_parent_are_families_too() -> None:
    assert shown([gauge("a", "A.", 2), counter("b", "B.", 3)]) == {"a": 2, "b_total": 3}
