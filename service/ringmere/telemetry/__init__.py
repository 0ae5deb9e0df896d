"""The telemetry floor: metrics, log lines and traces hang on the hub through its observer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringmere.core.errors import StartRefused
from ringmere.hub.observer import Observer
from ringmere.telemetry.fanout import Fanout
from ringmere.telemetry.gauges import Stats
from ringmere.telemetry.logs import LogObserver
from ringmere.telemetry.merge import Family, snapshot
from ringmere.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from ringmere.telemetry.otlp import Export

__all__ = ["Telemetry"]


class Telemetry:
    """The eyes of one instance: give ``observer`` to its hub, and the hub's ``stats`` to :meth:`watch`.

    ``traces`` is ``off`` or ``otlp``. Raises ``StartRefused`` when the extra that traces need is not installed.
    """

    def __init__(self, traces: str = "off") -> None:
        self._export: Export | None = None
        self.observer: Observer
        if traces == "off":
            self._metrics = Metrics()
            self.observer = Fanout([self._metrics, LogObserver()])
            return
        try:
            from ringmere.telemetry.otlp import Export
            from ringmere.telemetry.traces import Traces, current_trace
        except ImportError as error:
            raise StartRefused(f"--traces otlp needs the extra otel: pip install 'ringmere[otel]' ({error})") from error
        self._export = Export()
        self._metrics = Metrics(current_trace)
        others = Fanout([self._metrics, LogObserver(trace=current_trace)])
        self.observer = Traces(others, self._export.spans)

    async def close(self) -> None:
        """Send the spans that are left, within a bound."""
        if self._export is not None:
            await self._export.close()

    def watch(self, stats: Callable[[], Stats]) -> None:
        """Take the gauges from ``stats`` at every scrape."""
        self._metrics.watch(stats)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics in the format that an ``Accept`` header asks for, and their content type."""
        return self._metrics.render(accept)

    def snapshot(self) -> list[Family]:
        """Return the metrics as plain values, to be merged with those of other processes."""
        return snapshot(self._metrics.registry)
