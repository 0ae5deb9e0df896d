"""The metrics of several processes as one: what a scrape of any of them is answered with.

Counters and histograms are added up. A gauge is merged as its meaning demands, see ``GAUGES``. Of several exemplars
of a bucket the newest stays. The counts of a process that has ended are kept (:func:`lasting`), so no counter ever
goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from ringmere.telemetry import page

Pick = Callable[[Iterable[float]], float]

GAUGES: dict[str, Pick] = {
    "ringmere_subscribers": sum,
    "ringmere_sessions_live": sum,
    "ringmere_backlog_events": sum,
    "ringmere_backlog_bytes": sum,
    "ringmere_window_bytes": sum,
    "ringmere_log_connected": min,
    "ringmere_log_degraded": max,
    "ringmere_build_info": max,
    "ringmere_mirror_lag_events": max,
    "ringmere_mirror_silence_seconds": max,
    "ringmere_process_resident_memory_bytes": sum,
    "ringmere_process_open_fds": sum,
    "ringmere_process_max_fds": sum,
    "ringmere_process_start_time_seconds": max,
}
"""How each gauge is merged: a total is the sum, ``connected`` holds when it holds for all, ``degraded`` for any.

All processes ask NATS for the same mirrors: the worst answer counts. The start time is that of the youngest process.
A session that is followed in two processes counts twice, as its window does. Series with ``of="largest"`` take
the maximum.
"""
COUNTED = frozenset({"counter", "histogram", "summary"})


class Trace(NamedTuple):
    """The exemplar of a bucket: its labels, the value that was observed, when (seconds since 1970)."""

    labels: dict[str, str]
    value: float
    at: float


class Reading(NamedTuple):
    """One sample: its full name, its labels, its value, and its exemplar if it has one."""

    name: str
    labels: dict[str, str]
    value: float
    trace: Trace | None = None


class Family(NamedTuple):
    """One metric with its samples, as plain values that travel between processes."""

    name: str
    text: str
    kind: str
    readings: list[Reading]


def snapshot(registry: Collector | CollectorRegistry) -> list[Family]:
    """Return all metrics of a registry as they are now."""
    return [
        Family(
            family.name,
            family.documentation,
            family.type,
            [Reading(sample.name, sample.labels, sample.value, _trace(sample.exemplar)) for sample in family.samples],
        )
        for family in registry.collect()
    ]


def merge(parts: Iterable[Sequence[Family]]) -> list[Family]:
    """Return one set of families for all ``parts``, in the order in which they first appear."""
    families: dict[str, Family] = {}
    values: dict[str, dict[tuple[object, ...], list[Reading]]] = {}
    for family in (family for part in parts for family in part):
        families.setdefault(family.name, family)
        series = values.setdefault(family.name, {})
        for reading in family.readings:
            series.setdefault((reading.name, *sorted(reading.labels.items())), []).append(reading)
    return [
        family._replace(readings=[_merged(family, same) for same in values[name].values()])
        for name, family in families.items()
    ]


def lasting(families: Iterable[Family]) -> list[Family]:
    """Return what stays of a process that has ended: its counts, not its gauges."""
    return [family for family in families if family.kind in COUNTED]


def gauge(name: str, text: str, value: float) -> Family:
    """Return a gauge with one value."""
    return Family(name, text, "gauge", [Reading(name, {}, value)])


def counter(name: str, text: str, value: float) -> Family:
    """Return a counter with one value; ``name`` is without ``_total``."""
    return Family(name, text, "counter", [Reading(f"{name}_total", {}, value)])


def render(families: Iterable[Family], accept: str = "") -> tuple[bytes, str]:
    """Return families in the format that an ``Accept`` header asks for, and their content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(families))
    return page.render(registry, accept)


class _Given(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.text, family.kind)
            for reading in family.readings:
                exemplar = Exemplar(*reading.trace) if reading.trace is not None else None
                metric.add_sample(reading.name, reading.labels, reading.value, exemplar=exemplar)
            yield metric


def _merged(family: Family, same: list[Reading]) -> Reading:
    pick: Pick
    if same[0].name.endswith("_created"):
        pick = min
    elif same[0].labels.get("of") == "largest":
        pick = max
    else:
        pick = sum if family.kind in COUNTED else GAUGES.get(family.name, sum)
    newest = max((reading.trace for reading in same if reading.trace is not None), key=lambda it: it.at, default=None)
    return same[0]._replace(value=float(pick(reading.value for reading in same)), trace=newest)


def _trace(exemplar: Exemplar | None) -> Trace | None:
    if exemplar is None:
        return None
    return Trace(exemplar.labels, exemplar.value, float(exemplar.timestamp or 0.0))
