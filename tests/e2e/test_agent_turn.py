"""The recorded turn of a coding agent, published at its own pace to readers that come and go."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ringmere.embedded import EmbeddedServer
from support.command import running
from support.foreign import follow, missing
from support.gateway import gateway
from support.relay import Relay, relay
from support.wanderer import Wanderer

TURN = Path(__file__).resolve().parent.parent / "data" / "agent-turn.ndjson"
SEED = 20
READERS = 19
"""Raw readers, half by header and half by query; a browser is the twentieth."""


@pytest.fixture
async def instances(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[list[str]]:
    """The addresses of two instances on one NATS."""
    flags = ("--retry-ms", "100")
    async with (
        gateway(tmp_path / "a", *flags, nats_url=nats_server.url) as one,
        gateway(tmp_path / "b", *flags, nats_url=nats_server.url) as two,
    ):
        yield [one.url, two.url]


def published() -> list[dict[str, Any]]:
    """Return the events of the turn as they are published."""
    events = [json.loads(line) for line in TURN.read_text().splitlines()]
    return [{name: value for name, value in event.items() if name != "at_ms"} for event in events]


def as_published(envelope: dict[str, Any]) -> dict[str, Any]:
    """Return an envelope without what the service has added."""
    own = {name: value for name, value in envelope.items() if name not in ("id", "v")}
    meta = {name: value for name, value in own.pop("_meta").items() if name != "serverTimestamp"}
    return {**own, "_meta": meta} if meta else own


async def drop(way: Relay, instances: list[str], chance: random.Random) -> None:
    """Cut a relay at random moments, and let it lead to any instance next."""
    while True:
        await asyncio.sleep(chance.uniform(0.3, 1.0))
        way.target = chance.choice(instances)
        way.cut()


async def test_a_turn_arrives_complete_once_and_in_order_at_readers_that_drop_and_resume(
    instances: list[str],
) -> None:
    if reason := missing("chromium"):
        pytest.skip(reason)
    expected = published()
    readers = [
        Wanderer(SEED + n, instances, "turn", "query" if n % 2 else "header") for n in range(READERS)
    ]  # fmt: skip
    async with relay(instances[0]) as way, follow("chromium", f"{way.url}/session/turn/events?from=start") as page:
        async with running("publish", "turn", "--file", str(TURN), "--pace", server=instances[1]) as publishing:
            dropping = asyncio.create_task(drop(way, instances, random.Random(SEED)))
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for reader in readers:
                    group.create_task(reader.read(lambda reader=reader: len(reader.events) >= len(expected)))
            assert await asyncio.wait_for(publishing.wait(), 30) == 0
        dropping.cancel()
        await page.has(len(expected))
        sent = [event.envelope for event in page.events if "id" in event.envelope]
        assert [as_published(envelope) for envelope in sent] == expected
        assert len(way.cursors) > 3
    for reader in readers:
        assert [as_published(envelope) for envelope in reader.events] == expected
        assert reader.ids == page.ids == sorted(set(reader.ids))
        assert {control["type"] for control in reader.controls} == {"replay_complete"}
        assert reader.connections > 3
