"""Spans of what a hub does, in OpenTelemetry's terms. Needs the extra ``otel``; imported only when traces are on.

==========  ====================================================================================================
span        what it is
==========  ====================================================================================================
``publish`` a publish request until its acknowledgement, child of the request's context; its own context goes into
            the stored messages
``deliver`` one event with a sampled context from the log to the readers of this instance, a trace of its own with
            a link to the publish: once an instance, however many readers there are
``replay``  what a reader with a cursor was given before it went live, child of the context its stream was asked in
``resync``  a verdict, at the moment at which it was told
==========  ====================================================================================================

Other observers are told inside the span, so that their exemplars and lines can name the trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

from opentelemetry import trace as otel
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import AttributeValue

from ringmere.core.errors import RingmereError
from ringmere.core.reasons import CloseReason
from ringmere.core.trace import TraceContext
from ringmere.hub.observer import Account, Observer, Replay
from ringmere.telemetry.fanout import METHODS

SESSION = "ringmere.session.id"
STREAM = "ringmere.stream.id"
_SUCCESS = ("stored", "duplicate", "degraded")

Attributes = dict[str, AttributeValue]


def current_trace() -> str | None:
    """Return the id of the sampled trace that what is being observed belongs to, None outside of one."""
    context = otel.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid and context.trace_flags.sampled else None


class Traces(Observer):
    """Makes spans with ``spans`` and tells ``inner`` everything, inside the span where there is one.

    Also the hub's :class:`~ringmere.hub.tracer.Tracer`.
    """

    def __init__(self, inner: Observer, spans: otel.Tracer) -> None:
        self.tracer = self
        self._inner = inner
        self._spans = spans
        self._reading: dict[str, Context] = {}
        """By stream, the context that it was asked for in; as many as there are such streams."""
        self._latest: SpanContext | None = None
        for name in METHODS:
            if getattr(type(self), name) is getattr(Observer, name):
                setattr(self, name, self._passed_on(name))

    def _passed_on(self, name: str) -> Callable[..., None]:
        """Return the inner observer's method; one about a stream is called within the context of that stream."""
        call: Callable[..., None] = getattr(self._inner, name)
        parameters = list(signature(getattr(Observer, name)).parameters)[1:]
        if "stream_id" not in parameters:
            return call
        position = parameters.index("stream_id")

        def tell(*args: Any) -> None:
            context = self._reading.get(args[position])
            if context is None:
                call(*args)
            else:
                _within(context, call, *args)

        return tell

    # -- publishing ------------------------------------------------------------------------------------

    @contextmanager
    def publishing(self, session: str, events: int, trace: TraceContext | None) -> Iterator[TraceContext | None]:
        """Span a publish; give the block what its messages carry.

        A trace that begins here and is not sampled is not worth its bytes in the log.
        """
        attributes: Attributes = {
            SESSION: session,
            "messaging.system": "nats",
            "messaging.operation.type": "send",
            "messaging.batch.message_count": events,
        }
        parent = _context(trace)
        span = self._spans.start_span("publish", parent, SpanKind.PRODUCER, attributes)
        own = span.get_span_context()
        token = attach(otel.set_span_in_context(span, parent))
        try:
            yield _carried(own) if own.trace_flags.sampled or trace is not None else None
        except RingmereError:
            raise  # the outcome has been told
        except BaseException as error:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise
        finally:
            detach(token)
            span.end()

    def published(self, outcome: str, events: int, seconds: float) -> None:
        """Note on the publish's span what became of how many events; a batch may have several outcomes."""
        span = otel.get_current_span()
        span.set_attribute(f"ringmere.outcome.{outcome}", events)
        if outcome not in _SUCCESS:
            span.set_attribute("error.type", outcome)
            span.set_status(Status(StatusCode.ERROR, outcome))
        self._inner.published(outcome, events, seconds)

    # -- delivery --------------------------------------------------------------------------------------

    def handed_out(self, session: str, event_id: int, trace: TraceContext, readers: int, seconds: float) -> None:
        """Span an event's way from the log to the readers, linked to its publish."""
        attributes: Attributes = {
            SESSION: session,
            "messaging.system": "nats",
            "messaging.operation.type": "process",
            "ringmere.event.id": event_id,
            "ringmere.readers": readers,
        }
        span = self._past("deliver", Context(), seconds, attributes, SpanKind.CONSUMER, [Link(_remote(trace))])
        if span.is_recording():
            self._latest = span.get_span_context()
        span.end()

    def delivered(self, transport: str, events: int, size: int, lag: float | None) -> None:
        """Pass on what a loop turn handed out, within the newest of its traced deliveries."""
        latest, self._latest = self._latest, None
        if latest is None:
            self._inner.delivered(transport, events, size, lag)
        else:
            context = otel.set_span_in_context(NonRecordingSpan(latest), Context())
            _within(context, self._inner.delivered, transport, events, size, lag)

    # -- streams ---------------------------------------------------------------------------------------

    def reading(self, stream_id: str, trace: TraceContext) -> None:
        """Keep the context of a stream until the stream is closed."""
        self._reading[stream_id] = _context(trace)

    def stream_closed(
        self, transport: str, session: str, stream_id: str, reason: CloseReason, seconds: float, account: Account
    ) -> None:
        """Pass the end of a stream on, within its context, and forget that."""
        context = self._reading.pop(stream_id, None) or Context()
        _within(context, self._inner.stream_closed, transport, session, stream_id, reason, seconds, account)

    def resync(self, session: str, reason: str, detail: str | None, stream_id: str | None) -> None:
        """Span a verdict: a moment."""
        attributes: Attributes = {SESSION: session, "ringmere.reason": reason}
        if detail is not None:
            attributes["ringmere.detail"] = detail
        if stream_id is not None:
            attributes[STREAM] = stream_id
        with self._span("resync", self._of(stream_id), 0.0, attributes):
            self._inner.resync(session, reason, detail, stream_id)

    def replayed(self, session: str, stream_id: str, replay: Replay) -> None:
        """Span a replay that has just ended."""
        attributes: Attributes = {
            SESSION: session,
            STREAM: stream_id,
            "ringmere.verdict": replay.verdict,
            "ringmere.source": replay.source,
            "ringmere.events": replay.events,
            "ringmere.bytes": replay.size,
        }
        with self._span("replay", self._of(stream_id), replay.seconds, attributes):
            self._inner.replayed(session, stream_id, replay)

    def _of(self, stream_id: str | None) -> Context:
        return self._reading.get(stream_id or "") or Context()

    # -- spans -----------------------------------------------------------------------------------------

    def _past(
        self,
        name: str,
        parent: Context,
        seconds: float,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        links: list[Link] | None = None,
    ) -> Span:
        """Return a span that has been going on for ``seconds`` already."""
        begin = time.time_ns() - int(max(seconds, 0.0) * 1e9)
        return self._spans.start_span(name, parent, kind, attributes, links, begin)

    @contextmanager
    def _span(self, name: str, parent: Context, seconds: float, attributes: Attributes) -> Iterator[None]:
        """Make the span of something that has just ended, current for those who are told of it."""
        span = self._past(name, parent, seconds, attributes)
        token = attach(otel.set_span_in_context(span, parent))
        try:
            yield
        finally:
            detach(token)
            span.end()


def _within(context: Context, call: Callable[..., None], *args: Any) -> None:
    token = attach(context)
    try:
        call(*args)
    finally:
        detach(token)


def _remote(trace: TraceContext) -> SpanContext:
    """Return a context of another process in the SDK's form."""
    flags = TraceFlags(TraceFlags.SAMPLED if trace.sampled else TraceFlags.DEFAULT)
    state = TraceState.from_header([trace.state]) if trace.state else None
    return SpanContext(int(trace.trace_id, 16), int(trace.span_id, 16), True, flags, state)


def _context(trace: TraceContext | None) -> Context:
    """Return the parent that a trace context stands for: a new trace's when there is none."""
    return otel.set_span_in_context(NonRecordingSpan(_remote(trace)), Context()) if trace is not None else Context()


def _carried(own: SpanContext) -> TraceContext:
    """Return a span of this process as the value that messages carry."""
    sampled = bool(own.trace_flags.sampled)
    return TraceContext(f"{own.trace_id:032x}", f"{own.span_id:016x}", sampled, own.trace_state.to_header())
