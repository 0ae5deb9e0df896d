"""Where spans go: to an OTLP collector over HTTP, as the standard ``OTEL_…`` variables say. Needs the extra ``otel``.

The SDK collects finished spans in a bounded queue and sends them from a thread of its own, so a collector that
is away costs spans, never a turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind

from ringmere import __version__

FLUSH_TIMEOUT = 3.0
"""Seconds that the end of the process waits for the last spans to be taken."""
WARN_EVERY = 30.0
"""Seconds between two lines about spans that nobody takes."""

logger = structlog.stdlib.get_logger("ringmere.traces")


class FollowLinks(Sampler):
    """Asks ``base`` about a span without a parent as if it were a child of the span it is linked to.

    A delivery is a trace of its own, but whether it is recorded was decided when the event was published.
    """

    def __init__(self, base: Sampler) -> None:
        self._base = base

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Any = None,
        links: Sequence[Link] | None = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        """Return the decision of the base sampler."""
        if links:
            linked = links[0].context
            parent_context, trace_id = otel.set_span_in_context(NonRecordingSpan(linked), Context()), linked.trace_id
        return self._base.should_sample(parent_context, trace_id, name, kind, attributes, links)

    def get_description(self) -> str:
        """Return the name of this sampler."""
        return f"FollowLinks({self._base.get_description()})"


class WatchedExporter(SpanExporter):
    """Says now and then that spans are not taken, and why; ``clock`` is a monotonic clock in seconds."""

    def __init__(self, exporter: SpanExporter, clock: Callable[[], float] = time.monotonic) -> None:
        self._exporter = exporter
        self._clock = clock
        self._warned_at = -WARN_EVERY
        self._lost = self._suppressed = 0
        self._words = _LastWords()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export, on the SDK's thread."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._failed(len(spans))
        return result

    def shutdown(self) -> None:
        """End the exporter, and its tries under way."""
        self._exporter.shutdown()
        self._words.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Flush the exporter."""
        return self._exporter.force_flush(timeout_millis)

    def _failed(self, spans: int) -> None:
        self._lost += spans
        now = self._clock()
        if now - self._warned_at < WARN_EVERY:
            self._suppressed += 1
            return
        logger.warning("traces_not_exported", spans=self._lost, reason=self._words.text, suppressed=self._suppressed)
        self._warned_at, self._lost, self._suppressed = now, 0, 0


class _LastWords(logging.Handler):
    """Keeps the last thing that the exporter's own loggers said, in place of their lines: one for each try."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self._logger = logging.getLogger("opentelemetry.exporter")
        self._logger.addHandler(self)
        self._logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()[:300]

    def close(self) -> None:
        self._logger.removeHandler(self)
        super().close()


class Export:
    """A provider of tracers whose spans go through ``processor``, or to the collector of the environment."""

    def __init__(self, processor: SpanProcessor | None = None) -> None:
        resource = Resource.create({"service.name": "ringmere", "service.version": __version__})
        # The operator's own words win.
        resource = resource.merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.sampler = FollowLinks(self._provider.sampler)
        self._provider.add_span_processor(processor or BatchSpanProcessor(WatchedExporter(OTLPSpanExporter())))
        self.spans: otel.Tracer = self._provider.get_tracer("ringmere", __version__)

    async def close(self) -> None:
        """Send what is left, for ``FLUSH_TIMEOUT`` at most; a collector that hangs holds nobody up."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def flush() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish)

        # A thread that does not keep the process alive, unlike those of the loop's executor.
        threading.Thread(target=flush, name="traces-flush", daemon=True).start()
        await asyncio.wait({done}, timeout=FLUSH_TIMEOUT)
