"""The telemetry floor: metrics and logs hang on the hub through its observer."""

from __future__ import annotations

from collections.abc import Callable

from ringmere.telemetry.fanout import Fanout
from ringmere.telemetry.gauges import Stats
from ringmere.telemetry.logs import LogObserver
from ringmere.telemetry.merge import Family, snapshot
from ringmere.telemetry.metrics import Metrics, TraceOf

__all__ = ["Telemetry"]


class Telemetry:
    """The eyes of one instance: give ``observer`` to its hub, and the hub's ``stats`` to :meth:`watch`.

    ``trace_of`` tells the metrics which trace an observed time belongs to, see :data:`TraceOf`.
    """

    def __init__(self, trace_of: TraceOf | None = None) -> None:
        self._metrics = Metrics(trace_of)
        self.observer = Fanout([self._metrics, LogObserver()])

    def watch(self, stats: Callable[[], Stats]) -> None:
        """Take the gauges from ``stats`` at every scrape."""
        self._metrics.watch(stats)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics in the format that an ``Accept`` header asks for, and their content type."""
        return self._metrics.render(accept)

    def snapshot(self) -> list[Family]:
        """Return the metrics as plain values, to be merged with those of other processes."""
        return snapshot(self._metrics.registry)
