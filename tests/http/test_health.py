"""What is asked about the instance itself (contract 10.5)."""

from __future__ import annotations

from support.doors import Gateway, Start
from support.raw_http import fetch


async def test_a_live_instance_says_so_whatever_the_log_does(gateway: Gateway) -> None:
    gateway.log.disconnect()
    answer = await gateway.get("/livez")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


async def test_readiness_follows_the_log(gateway: Gateway) -> None:
    assert ((await gateway.get("/readyz")).status, (await gateway.get("/healthz")).status) == (200, 200)
    gateway.log.disconnect()
    answer = await gateway.get("/readyz")
    assert (answer.status, answer.json) == (
        503,
        {"status": "unavailable", "logConnected": False, "draining": False},
    )
    assert (await gateway.get("/healthz")).status == 200


async def test_readiness_ends_with_a_drain(gateway: Gateway) -> None:
    await gateway.hub.drain()
    answer = await gateway.get("/readyz")
    assert (answer.status, answer.json["status"], answer.json["draining"]) == (503, "draining", True)


async def test_capabilities_are_names(gateway: Gateway) -> None:
    answer = (await gateway.get("/capabilities")).json
    assert answer["v"] == 1
    assert {"session_events", "slow_client_warning", "typed_event_schema"} <= set(answer["features"])
    assert {"overflow_catchup", "coalesce", "many_sessions"} <= set(answer["features"])


async def test_metrics_are_what_telemetry_renders(start: Start) -> None:
    async def render(accept: str) -> tuple[bytes, str]:
        return f"up 1 {accept}".encode(), "text/plain; version=1.0.0"

    gateway = await start(metrics=render)
    answer = await fetch(gateway.port, "GET", "/metrics", {"Accept": "text/plain;q=0.5"})
    assert (answer.status, answer.body) == (200, b"up 1 text/plain;q=0.5")
    assert answer.headers["content-type"] == "text/plain; version=1.0.0"


async def test_without_telemetry_there_are_no_metrics(gateway: Gateway) -> None:
    answer = await gateway.get("/metrics")
    assert (answer.status, answer.code) == (404, "not_found")


async def test_answers_are_not_cached_and_name_no_library(gateway: Gateway) -> None:
    for target in ("/livez", "/readyz", "/capabilities", "/sessions", "/nothing"):
        answer = await fetch(gateway.port, "GET", target)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["server"] == "ringmere"
        assert answer.headers["x-content-type-options"] == "nosniff"
