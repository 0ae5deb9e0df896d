"""The eyes on a real hub."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from ringmere.core.event import make_payload
from ringmere.core.limits import Limits
from ringmere.hub.hub import Hub
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from ringmere.telemetry import Telemetry


async def test_a_hub_is_watched_through_its_observer_and_its_stats() -> None:
    telemetry = Telemetry()
    hub = Hub(MemoryLog(MemoryStore(ring_size=10)), Limits(), telemetry.observer)
    await hub.start()
    try:
        telemetry.watch(hub.stats)
        await hub.publish("s1", make_payload("t", {"secret": "payload"}))
        hub.observer.log_connected(True)
        with capture_logs() as lines:
            hub.observer.epoch_added(0, "b-1")
        body = telemetry.render()[0].decode()
    finally:
        await hub.close()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }
    assert found["ringmere_published_events_total", "stored"] == 1
    assert found["ringmere_subscribers", "sse"] == 0
    assert found["ringmere_log_connected",] == 1
    assert [line["event"] for line in lines] == ["epoch_added"]
    assert "secret" not in body
