"""What `@qwen-code/sdk` makes of the service beyond delivery: epoch, resync latch, eviction, closing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from support.foreign import Follower, follow, missing
from support.gateway import GatewayProcess, gateway
from support.relay import relay

if reason := missing("qwen-session"):
    pytest.skip(reason, allow_module_level=True)

WAYS = ("qwen-client", "qwen-session")
BIG = 200_000


@pytest.fixture
async def instance(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    async with gateway(tmp_path, "--ring-size", "200", "--retry-ms", "100") as running:
        yield running


async def publish(instance: GatewayProcess, *events: dict[str, Any]) -> list[int]:
    """Publish events to the session ``s``, one request each."""
    ids = []
    async with aiohttp.ClientSession() as http:
        for event in events:
            async with http.post(f"{instance.url}/session/s/events", json=event) as answer:
                assert answer.status == 201, await answer.text()
                ids.append((await answer.json())["id"])
    return ids


def update(number: int) -> dict[str, Any]:
    return {"type": "session_update", "data": {"sessionId": "s", "update": {"n": number}}}


def malformed(sdk: Follower) -> list[str]:
    """Return the types whose data is not what the SDK's own schema says; it has none for ``replay_complete``."""
    counts = [0, *(event.view["unrecognized"] for event in sdk.events)]
    raised = [
        event.type for event, before in zip(sdk.events, counts, strict=False) if event.view["unrecognized"] > before
    ]
    return [type for type in raised if type != "replay_complete"]


@pytest.mark.parametrize("way", WAYS)
async def test_the_epoch_token_is_taken_up_and_sent_back_with_the_cursor(instance: GatewayProcess, way: str) -> None:
    [first] = await publish(instance, update(1))
    async with relay(instance.url) as via, follow(way, f"{via.url}/session/s/events", 0) as sdk:
        await sdk.until(lambda: "replay_complete" in sdk.types, "the replay")
        via.cut()
        await sdk.until(lambda: len(sdk.of_type("replay_complete")) == 2, "a resume")
        head = via.asked[-1].lower()
    async with aiohttp.ClientSession() as http, http.head(f"{instance.url}/session/s/events") as answer:
        token = answer.headers["X-Qwen-Event-Epoch"]
    assert f"x-qwen-event-epoch: {token}" in head
    assert f"last-event-id: {first}" in head
    assert sdk.of_type("replay_complete")[1] == {"replayedCount": 0}


@pytest.mark.parametrize("way", WAYS)
async def test_sdk_5_a_verdict_sets_the_resync_latch_and_events_still_arrive(
    instance: GatewayProcess, way: str
) -> None:
    [last] = await publish(instance, update(1))
    async with follow(way, f"{instance.url}/session/s/events", last + 1_000) as sdk:
        await sdk.until(lambda: "replay_complete" in sdk.types, "the replay")
        await publish(instance, update(2))
        await sdk.until(lambda: sdk.types[-1] == "session_update", "a live event")
        assert sdk.types == ["state_resync_required", "session_update", "replay_complete", "session_update"]
        assert sdk.of_type("state_resync_required")[0]["reason"] == "epoch_reset"
        assert all(event.view["awaitingResync"] for event in sdk.events)
        assert malformed(sdk) == []


async def test_closing_a_session_ends_it_for_the_sdk(instance: GatewayProcess) -> None:
    await publish(instance, update(1))
    async with follow("qwen-session", f"{instance.url}/session/s/events", 0) as sdk:
        await sdk.has(1)
        async with aiohttp.ClientSession() as http:
            await http.delete(f"{instance.url}/session/s")
        await sdk.until(lambda: sdk.closed is not None, "the end")
        closing = sdk.events[-1]
        assert closing.type == "session_closed"
        assert closing.view["terminal"] == "session_closed"
        assert closing.view["alive"] is False
        assert malformed(sdk) == []


async def test_sdk_6_a_client_that_stops_reading_is_warned_evicted_and_resumes_without_loss(
    instance: GatewayProcess,
) -> None:
    ids = await publish(instance, update(1))
    async with follow("qwen-session", f"{instance.url}/session/s/events", 0, "16", "2") as sdk:
        await sdk.until(lambda: "replay_complete" in sdk.types, "the replay")
        # The kernel's buffers take some megabytes before a write pauses; only then the backlog fills.
        padding = "x" * BIG
        while not await evicted(instance):
            assert len(ids) < 190, "never evicted"
            ids += await publish(instance, {"type": "t", "data": padding})
        await sdk.go_on()
        await sdk.until(lambda: "client_evicted" in sdk.types, "the notice")
        [notice] = sdk.of_type("client_evicted")
        assert notice["reason"] in ("queue_overflow", "queue_bytes_overflow")
        assert notice["maxQueued"] == 16
        at = sdk.types.index("client_evicted")
        assert sdk.events[at].view["terminal"] == "client_evicted"
        assert int(sdk.events[at - 1].cursor) == notice["droppedAfter"]
        await sdk.has(len(ids))
        assert sdk.ids == ids
        assert "slow_client_warning" in sdk.types[:at]
        assert "state_resync_required" not in sdk.types
        assert malformed(sdk) == []


async def evicted(instance: GatewayProcess) -> bool:
    """Say whether a reader has been put out."""
    async with aiohttp.ClientSession() as http, http.get(f"{instance.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    counts = [line.rsplit(" ", 1)[1] for line in lines if line.startswith("ringmere_evictions_total{")]
    return any(float(count) for count in counts)


@pytest.mark.parametrize("way", WAYS)
async def test_an_instance_that_is_full_is_heard_and_tried_again(tmp_path: Path, way: str) -> None:
    async with gateway(tmp_path, "--max-connections", "1", "--retry-ms", "100") as instance:
        url = f"{instance.url}/session/s/events"
        async with aiohttp.ClientSession() as http:
            first = await http.get(url)
            async with follow(way, url, 0) as sdk:
                await sdk.until(lambda: "stream_error" in sdk.types, "the refusal")
                assert sdk.of_type("stream_error")[0]["errorKind"] == "subscriber_limit_exceeded"
                first.close()
                await sdk.until(lambda: "replay_complete" in sdk.types, "the freed place")
                assert malformed(sdk) == []
