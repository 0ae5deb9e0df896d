"""Spans of a real hub on a log in memory, kept by the SDK's own exporter in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from ringmere.core.errors import LogUnavailable, WrongLastEventId
from ringmere.core.event import Draft, make_payload
from ringmere.core.limits import Limits
from ringmere.core.reasons import CloseReason
from ringmere.core.trace import TraceContext
from ringmere.hub.hub import Hub
from ringmere.hub.observer import Account, Observer, Replay
from ringmere.hub.subscriber import SubscribeOptions, Subscriber
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from ringmere.telemetry.fanout import METHODS
from ringmere.telemetry.logs import LogObserver
from ringmere.telemetry.otlp import Export
from ringmere.telemetry.traces import Traces, current_trace
from support.hub import Client
from support.nats import eventually

PARENT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True, "congo=t61rcWkgMzE")
UNSAMPLED = PARENT._replace(sampled=False)


class Witness(Observer):
    """Notes the trace that each call was made within."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []
        for name in METHODS:
            setattr(self, name, lambda *_, name=name: self.seen.append((name, current_trace())))

    def of(self, name: str) -> list[str | None]:
        return [trace for called, trace in self.seen if called == name]


class Rig:
    """A hub with traces, and what its spans are."""

    def __init__(self, hub: Hub, exporter: InMemorySpanExporter, witness: Witness, log: MemoryLog) -> None:
        self.hub = hub
        self.exporter = exporter
        self.witness = witness
        self.log = log

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def the(self, name: str) -> ReadableSpan:
        [span] = self.spans(name)
        return span

    async def read(self, options: SubscribeOptions | None = None) -> tuple[Subscriber, Client]:
        reader = await self.hub.subscribe("s", options or SubscribeOptions())
        client = Client()
        client.reader = reader
        reader.attach(client)
        return reader, client


@asynccontextmanager
async def rigged(store: MemoryStore | None = None) -> AsyncIterator[Rig]:
    exporter, witness = InMemorySpanExporter(), Witness()
    export = Export(SimpleSpanProcessor(exporter))
    log = MemoryLog(store or MemoryStore(ring_size=10))
    hub = Hub(log, Limits(), Traces(witness, export.spans))
    await hub.start()
    try:
        yield Rig(hub, exporter, witness, log)
    finally:
        await hub.close()
        await export.close()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with rigged() as made:
        yield made


def event(number: int = 1, key: str | None = None) -> Draft:
    return make_payload("t", {"n": number})._replace(key=key)


def ids(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


async def test_a_publish_is_a_child_of_the_request_it_came_with(rig: Rig) -> None:
    await rig.hub.publish("s", event(), None, PARENT)
    span = rig.the("publish")
    assert ids(span)[0] == PARENT.trace_id
    assert span.parent is not None
    assert (f"{span.parent.span_id:016x}", span.parent.is_remote) == (PARENT.span_id, True)
    assert span.kind is SpanKind.PRODUCER
    assert span.attributes == {
        "ringmere.session.id": "s",
        "messaging.system": "nats",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 1,
        "ringmere.outcome.stored": 1,
    }
    assert rig.witness.of("published") == [PARENT.trace_id]


async def test_without_a_context_a_publish_begins_a_trace(rig: Rig) -> None:
    await rig.hub.publish("s", event())
    span = rig.the("publish")
    assert span.parent is None
    assert rig.witness.of("published") == [ids(span)[0]]


async def test_a_delivery_is_one_span_an_event_with_a_link_to_the_publish_however_many_read(rig: Rig) -> None:
    for _ in range(3):
        await rig.read()
    published = await rig.hub.publish("s", event(), None, PARENT)
    await eventually(lambda: bool(rig.spans("deliver")), "a delivery")
    span = rig.the("deliver")
    assert span.parent is None
    assert ids(span)[0] != PARENT.trace_id
    [link] = span.links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == ids(rig.the("publish"))
    assert link.context.trace_state.to_header() == PARENT.state
    assert span.kind is SpanKind.CONSUMER
    assert span.attributes is not None
    assert span.attributes["ringmere.event.id"] == published.id
    assert span.attributes["ringmere.readers"] == 3
    assert span.start_time is not None
    assert span.end_time is not None
    assert 0 <= span.end_time - span.start_time < 10e9
    await eventually(lambda: bool(rig.witness.of("delivered")), "the turn is told")
    assert rig.witness.of("delivered") == [ids(span)[0]]


async def test_a_turn_without_a_traced_event_is_told_within_no_trace(rig: Rig) -> None:
    await rig.read()
    await rig.hub.publish("s", event(), None, UNSAMPLED)
    await eventually(lambda: bool(rig.witness.of("delivered")), "the turn is told")
    assert rig.witness.of("delivered") == [None]
    assert rig.spans("publish") == rig.spans("deliver") == []


async def test_nobody_reads_so_nothing_is_delivered(rig: Rig) -> None:
    reader, _ = await rig.read()
    reader.lost()
    await rig.hub.publish("s", event(1), None, PARENT)
    _, client = await rig.read(SubscribeOptions(cursor=0))
    await rig.hub.publish("s", event(2), None, UNSAMPLED)
    await eventually(lambda: len(client.ids) == 2, "both events")
    assert rig.spans("deliver") == []


async def test_an_event_that_fills_no_hole_is_delivered_when_the_hole_is_filled(rig: Rig) -> None:
    _, client = await rig.read()
    await rig.hub.publish("s", event(1))
    await eventually(lambda: len(client.ids) == 1, "the first event")
    rig.log.drop_live()
    await rig.hub.publish("s", event(2))
    published = await rig.hub.publish("s", event(3), None, PARENT)
    await eventually(lambda: len(client.ids) == 3, "all events")
    await eventually(lambda: len(rig.spans("deliver")) == 2, "deliveries of what came live")
    last = rig.spans("deliver")[-1].attributes
    assert last is not None
    assert last["ringmere.event.id"] == published.id


async def test_a_batch_carries_one_context_and_says_what_became_of_its_rows(rig: Rig) -> None:
    await rig.hub.publish("s", event(1, "a"))
    await rig.hub.publish_batch("s", [event(1, "a"), event(2, "a"), event(3), event(4)], trace=PARENT)
    attributes = rig.spans("publish")[1].attributes
    assert attributes is not None
    assert {name: value for name, value in attributes.items() if "outcome" in name or "count" in name} == {
        "messaging.batch.message_count": 4,
        "ringmere.outcome.stored": 2,
        "ringmere.outcome.duplicate": 1,
        "ringmere.outcome.key_reused": 1,
    }
    assert attributes["error.type"] == "key_reused"


async def test_a_refused_publish_is_an_error_by_its_code(rig: Rig) -> None:
    with pytest.raises(WrongLastEventId):
        await rig.hub.publish("s", event(), 7, PARENT)
    rig.log.store.refuse(LogUnavailable("no"))
    with pytest.raises(LogUnavailable):
        await rig.hub.publish_batch("s", [event(), event()], atomic=True, trace=PARENT)
    found = [(span.status.status_code, span.status.description) for span in rig.spans("publish")]
    assert found == [(StatusCode.ERROR, "wrong_last_event_id"), (StatusCode.ERROR, "log_unavailable")]


async def test_what_nobody_expected_ends_the_span_and_leaves_no_trace_behind(rig: Rig) -> None:
    async def broken(method: str, session: str) -> None:
        raise ZeroDivisionError

    rig.log.before = broken
    with pytest.raises(ZeroDivisionError):
        await rig.hub.publish("s", event())
    assert rig.the("publish").status.description == "ZeroDivisionError"
    assert current_trace() is None


async def test_a_replay_says_how_the_cursor_was_judged_and_what_it_was_given(rig: Rig) -> None:
    for number in range(1, 6):
        await rig.hub.publish("s", event(number))
    reader, client = await rig.read(SubscribeOptions(cursor=2, trace=PARENT))
    await eventually(lambda: bool(rig.spans("replay")), "a replay")
    span = rig.the("replay")
    assert ids(span)[0] == PARENT.trace_id
    assert span.links == ()
    assert span.attributes is not None
    size = span.attributes["ringmere.bytes"]
    assert isinstance(size, int)
    assert 3 * 60 < size < len(client.raw)
    assert dict(span.attributes) == {
        "ringmere.session.id": "s",
        "ringmere.stream.id": reader.stream_id,
        "ringmere.verdict": "contiguous",
        "ringmere.source": "log",
        "ringmere.events": 3,
        "ringmere.bytes": size,
    }
    assert rig.witness.of("replayed") == [PARENT.trace_id]
    reader.lost()
    assert rig.witness.of("stream_opened") == rig.witness.of("stream_closed") == [PARENT.trace_id]


async def test_a_verdict_is_a_span_in_the_trace_of_the_stream(rig: Rig) -> None:
    for number in range(1, 13):
        await rig.hub.publish("s", event(number))
    reader, _ = await rig.read(SubscribeOptions(cursor=1, trace=PARENT))
    await eventually(lambda: bool(rig.spans("replay")), "a replay")
    span = rig.the("resync")
    assert ids(span)[0] == PARENT.trace_id
    assert span.attributes == {
        "ringmere.session.id": "s",
        "ringmere.reason": "ring_evicted",
        "ringmere.stream.id": reader.stream_id,
    }
    assert rig.witness.of("resync") == [PARENT.trace_id]


async def test_the_sampler_of_the_environment_decides_and_unsampled_messages_carry_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    store = MemoryStore(ring_size=10)
    carried: list[TraceContext | None] = []
    put = store._put
    store._put = lambda *args: (carried.append(args[3].trace), put(*args))[1]  # type: ignore[method-assign]
    async with rigged(store) as rig:
        await rig.read()
        await rig.hub.publish("s", event(1))
        await rig.hub.publish("s", event(2), None, PARENT)
        await rig.hub.publish("s", event(3), None, UNSAMPLED)
        await eventually(lambda: bool(rig.spans("deliver")), "a delivery")
        assert len(rig.spans("publish")) == len(rig.spans("deliver")) == 1
    root, sampled, unsampled = carried
    assert root is None
    assert sampled is not None
    assert (sampled.trace_id, sampled.span_id) == ids(rig.the("publish"))
    assert (sampled.sampled, sampled.state) == (True, PARENT.state)
    assert unsampled is not None
    assert (unsampled.trace_id, unsampled.sampled) == (PARENT.trace_id, False)


async def test_a_delivery_is_sampled_as_its_publish_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    async with rigged(MemoryStore(ring_size=200)) as rig:
        _, client = await rig.read()
        for number in range(100):
            await rig.hub.publish("s", event(number))
        await eventually(lambda: len(client.ids) == 100, "all events")
        await eventually(lambda: len(rig.spans("deliver")) >= len(rig.spans("publish")), "all deliveries")
        linked = [f"{span.links[0].context.trace_id:032x}" for span in rig.spans("deliver")]
        assert linked == [ids(span)[0] for span in rig.spans("publish")]
        assert 0 < len(linked) < 100


def test_lines_about_a_stream_name_its_trace_until_it_is_closed() -> None:
    export = Export(SimpleSpanProcessor(InMemorySpanExporter()))
    traces = Traces(LogObserver(trace=current_trace), export.spans)
    with capture_logs() as lines:
        traces.reading("x1", PARENT)
        traces.stream_opened("sse", "s", "x1", None, None)
        traces.stream_opened("sse", "s", "x2", None, None)
        traces.warned("s", "x1", "bytes")
        traces.stream_closed("sse", "s", "x1", CloseReason.CLIENT_GONE, 1.0, Account(1, 0))
        traces.evicted("s", "x1", CloseReason.QUEUE_OVERFLOW)
    assert [line.get("trace") for line in lines] == [PARENT.trace_id, None, PARENT.trace_id, PARENT.trace_id, None]
    assert traces._reading == {}


@pytest.mark.parametrize("name", METHODS)
def test_everything_is_passed_on(name: str) -> None:
    witness = Witness()
    traces = Traces(witness, Export(SimpleSpanProcessor(InMemorySpanExporter())).spans)
    samples = {
        "published": ("stored", 1, 0.1), "stream_opened": ("sse", "s", "x", None, None),
        "stream_closed": ("sse", "s", "x", CloseReason.CLIENT_GONE, 1.0, Account(1, 0)),
        "resync": ("s", "epoch_reset", None, None),
        "replayed": ("s", "x", Replay("contiguous", "log", 1, 1, 0.1)), "delivered": ("sse", 1, 1, 0.1),
    }  # fmt: skip
    getattr(traces, name)(*samples.get(name, ("a", "b", "c")))
    assert [called for called, _ in witness.seen] == [name]
