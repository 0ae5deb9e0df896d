"""The page of metrics in the format that a scrape asks for: Prometheus text, or OpenMetrics with exemplars."""

from __future__ import annotations

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry


def render(registry: Collector | CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return all metrics of a registry and their content type; ``accept`` is the request's header, or empty."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
