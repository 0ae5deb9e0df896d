"""Gauges of the moment: asked for when they are scraped, so they cannot drift from what is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ringmere.telemetry.labels import TRANSPORTS


class Mirror(Protocol):
    """A stream that copies from another one."""

    @property
    def stream(self) -> str:
        """``events`` or ``head``."""

    @property
    def shard(self) -> int:
        """Its shard."""

    @property
    def lag(self) -> int:
        """Messages that its origin has and it has not."""

    @property
    def silence(self) -> float:
        """Seconds since it has heard of its origin."""


class Stats(Protocol):
    """What a hub says about this moment; sizes in bytes."""

    @property
    def subscribers(self) -> Mapping[str, int]:
        """Open streams by transport."""

    @property
    def sessions_live(self) -> int:
        """Sessions that are followed for readers of this instance."""

    @property
    def backlog_events(self) -> int:
        """Events queued for slow readers, all together."""

    @property
    def backlog_events_max(self) -> int:
        """The same for the reader that has most."""

    @property
    def backlog_bytes(self) -> int:
        """Envelope bytes queued for slow readers, all together."""

    @property
    def backlog_bytes_max(self) -> int:
        """The same for the reader that has most."""

    @property
    def window_bytes(self) -> int:
        """Newest events kept in memory."""

    @property
    def log_connected(self) -> bool:
        """Whether NATS is there."""

    @property
    def log_degraded(self) -> Mapping[int, bool]:
        """By shard, as far as it was published to: whether publishes are refused because it does not store."""

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """Streams that copy from others, as far as NATS has been asked."""


class StatsCollector(Collector):
    """Turns the answer of a ``stats`` callable into gauges at every scrape; without one there are none."""

    def __init__(self) -> None:
        self.stats: Callable[[], Stats] | None = None

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance: the registry must not ask a hub that is not there yet."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Ask for the numbers of this moment."""
        return _gauges(self.stats()) if self.stats is not None else []


def _gauges(stats: Stats) -> list[Metric]:
    readers = GaugeMetricFamily("ringmere_subscribers", "Open streams.", labels=["transport"])
    for transport in TRANSPORTS:
        readers.add_metric([transport], stats.subscribers.get(transport, 0))
    degraded = GaugeMetricFamily("ringmere_log_degraded", "1 while the shard does not store, else 0.", labels=["shard"])
    for shard, refused in stats.log_degraded.items():
        degraded.add_metric([str(shard)], int(refused))
    return [
        readers,
        degraded,
        *_mirrors(stats.mirrors),
        _gauge("sessions_live", "Sessions followed for readers of this instance.", stats.sessions_live),
        _total_and_max(
            "backlog_events", "Events queued for slow readers.", stats.backlog_events, stats.backlog_events_max
        ),
        _total_and_max("backlog_bytes", "Bytes queued for slow readers.", stats.backlog_bytes, stats.backlog_bytes_max),
        _gauge("window_bytes", "Newest events kept in memory.", stats.window_bytes),
        _gauge("log_connected", "1 while NATS is there, else 0.", int(stats.log_connected)),
    ]


def _mirrors(mirrors: Sequence[Mirror]) -> tuple[Metric, Metric]:
    names = ["stream", "shard"]
    lag = GaugeMetricFamily(
        "ringmere_mirror_lag_events", "Messages that a stream has still to copy from its origin.", labels=names
    )
    silence = GaugeMetricFamily(
        "ringmere_mirror_silence_seconds", "Time since such a stream has heard of its origin.", labels=names
    )
    for each in mirrors:
        lag.add_metric([each.stream, str(each.shard)], each.lag)
        silence.add_metric([each.stream, str(each.shard)], each.silence)
    return lag, silence


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"ringmere_{name}", text, value=value)


def _total_and_max(name: str, text: str, total: float, largest: float) -> Metric:
    family = GaugeMetricFamily(f"ringmere_{name}", f"{text} All readers, and the one with most.", labels=["of"])
    family.add_metric(["all"], total)
    family.add_metric(["largest"], largest)
    return family
