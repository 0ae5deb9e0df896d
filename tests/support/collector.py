"""An OTLP/HTTP collector in this process: it takes spans as a real one does, and keeps them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Takes spans on ``endpoint``; with ``status`` other than 200 it refuses them."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.status = 200
        self.requests = 0
        self.spans: list[Span] = []
        self.resources: list[dict[str, object]] = []

    async def take(self, request: web.Request) -> web.Response:
        self.requests += 1
        message = ExportTraceServiceRequest.FromString(await request.read())
        if self.status == 200:
            for resource in message.resource_spans:
                self.resources.append(attributes_of(resource.resource.attributes))
                for scope in resource.scope_spans:
                    self.spans.extend(scope.spans)
        return web.Response(status=self.status, content_type="application/x-protobuf")

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def attributes_of(pairs: list[KeyValue]) -> dict[str, object]:
    """Return attributes as plain values."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """Run a collector on a free port."""
    made = Collector()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        made.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield made
    finally:
        await runner.cleanup()
