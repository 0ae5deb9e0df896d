"""Metrics of several processes: what is counted adds up, what is measured is merged as it means."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from ringmere.core.reasons import CloseReason
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
        if not sample.name.endswith("_created")
    }


def test_one_process_merged_alone_is_what_it_renders_itself() -> None:
    metrics = watching(FakeStats())
    tell_everything(metrics, "s", "x")
    assert shown(merge([snapshot(metrics.registry)])) == samples(metrics)
    assert render(merge([snapshot(metrics.registry)])) == metrics.render()


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


def test_every_gauge_has_a_rule() -> None:
    gauges = {family.name for family in snapshot(watching(FakeStats()).registry) if family.kind == "gauge"}
    assert gauges
    assert gauges - set(GAUGES) == set()


def test_of_a_process_that_has_ended_the_counts_stay_and_the_gauges_go() -> None:
    gone = watching(FakeStats())
    gone.stream_closed("sse", "s", "x", CloseReason.CLIENT_GONE, 12.5, 40)
    kept = shown(merge([lasting(snapshot(gone.registry)), snapshot(watching(FakeStats()).registry)]))
    assert kept["ringmere_streams_closed_total{reason=client_gone,transport=sse}"] == 1
    assert kept["ringmere_stream_duration_seconds_sum"] == 12.5
    assert kept["ringmere_subscribers{transport=sse}"] == 3


def test_a_created_time_is_that_of_the_first_process() -> None:
    one, two = snapshot(Metrics().registry), snapshot(Metrics().registry)
    first, merged = (
        {reading.name: reading.value for reading in family.readings}
        for family in (one[1], next(family for family in merge([two, one]) if family.name == one[1].name))
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
