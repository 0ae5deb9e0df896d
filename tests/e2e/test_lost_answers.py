"""What a publisher is told when answers get lost between an instance and NATS is what the log then holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from ringmere.embedded import EmbeddedServer, free_port
from ringmere.log.connect import Connection
from ringmere.log.shards import event_subject
from support.gateway import GatewayProcess, gateway
from support.nats import api, eventually
from support.relay import Relay, relay
from support.talk import open_stream

FLAGS = ("--retry-ms", "100", "--heartbeat", "0.5s")
WITHIN = 60.0


class Wired(NamedTuple):
    """An instance, and the wire between it and NATS."""

    instance: GatewayProcess
    wire: Relay
    connection: Connection

    @property
    def url(self) -> str:
        return self.instance.url

    async def stored(self, session: str) -> int:
        """Return how many events of a session the log holds."""
        subject = event_subject(0, session)
        info = await api(self.connection, "STREAM.INFO.RINGMERE_0", {"subjects_filter": subject})
        return int((info["state"].get("subjects") or {}).get(subject, 0))

    async def holds(self, session: str, count: int) -> None:
        """Wait until the log holds so many."""

        async def so_many() -> bool:
            return await self.stored(session) >= count

        await eventually(so_many, f"{count} events are stored", WITHIN)

    async def down(self) -> None:
        """Take NATS away from the instance."""
        self.wire.target = f"http://127.0.0.1:{free_port()}"
        self.wire.cut()
        await self.instance.wait_status("/readyz", 503, WITHIN)

    async def up(self, target: str) -> None:
        """Give it back."""
        self.wire.target = target
        await self.instance.wait_status("/readyz", 200, WITHIN)


@pytest.fixture
async def wired(nats_server: EmbeddedServer, connection: Connection, tmp_path: Path) -> AsyncIterator[Wired]:
    """An instance behind a wire that can be cut and muted; the test itself has a connection of its own."""
    async with (
        relay(f"http://127.0.0.1:{nats_server.port}") as wire,
        gateway(tmp_path / "gateway", *FLAGS, nats_url=wire.url.replace("http", "nats")) as instance,
    ):
        yield Wired(instance, wire, connection)


def event(number: int) -> dict[str, Any]:
    return {"type": "t", "data": {"n": number}}


async def post(url: str, session: str, body: Any, query: str = "", **headers: str) -> tuple[int, Any]:
    """Publish once and return status and body."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=WITHIN)) as http,
        http.post(f"{url}/session/{session}/events{query}", json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


async def post_and_lose_the_answer(wired: Wired, session: str, body: Any, query: str = "", **headers: str) -> Any:
    """Publish, and let NATS's answers vanish until all is stored; then cut the wire, which heals at once."""
    before = await wired.stored(session)
    wired.wire.muted = True
    publishing = asyncio.create_task(post(wired.url, session, body, query, **headers))
    await wired.holds(session, before + (len(body) if isinstance(body, list) else 1))
    wired.wire.cut()
    wired.wire.muted = False
    return await publishing


async def test_pub_8_a_key_makes_one_event_of_a_publish_whose_answer_was_lost(wired: Wired) -> None:
    key = {"Idempotency-Key": "k"}
    await post_and_lose_the_answer(wired, "s", event(1), **key)
    await wired.instance.wait_status("/readyz", 200, WITHIN)
    status, body = await post(wired.url, "s", event(1), **key)
    assert (status, body["duplicate"]) == (200, True)
    assert await wired.stored("s") == 1
    reader = await open_stream(wired.url, "s", 0)
    only, complete = await reader.take(2)
    assert (only.id, only.data, complete.type) == (body["id"], {"n": 1}, "replay_complete")
    reader.close()


async def test_pub_8_a_key_settles_a_conditional_publish_too_it_is_no_conflict_with_itself(wired: Wired) -> None:
    headers = {"Idempotency-Key": "k", "Expected-Last-Event-Id": "0"}
    await post_and_lose_the_answer(wired, "s", event(1), **headers)
    await wired.instance.wait_status("/readyz", 200, WITHIN)
    status, body = await post(wired.url, "s", event(1), **headers)
    assert (status, body["duplicate"]) == (200, True)
    assert await wired.stored("s") == 1


async def test_pub_8_without_a_key_the_publisher_is_told_that_nobody_knows_and_nothing_is_sent_again(
    wired: Wired,
) -> None:
    status, body = await post_and_lose_the_answer(wired, "s", event(1))
    assert (status, body["code"]) == (504, "publish_unconfirmed")
    await wired.instance.wait_status("/readyz", 200, WITHIN)
    status, body = await post(wired.url, "other", event(1))
    assert status == 201
    assert await wired.stored("s") == 1
    # What a retry without a key comes to is the publisher's own choice, and it was told.
    assert (await post(wired.url, "s", event(1)))[0] == 201
    assert await wired.stored("s") == 2


@pytest.mark.parametrize("query", ["", "?atomic=1"])
async def test_pub_8_a_batch_with_keys_whose_answers_were_lost_is_stored_once(wired: Wired, query: str) -> None:
    rows = [{**event(n), "key": f"k{n}"} for n in range(1, 21)]
    await post_and_lose_the_answer(wired, "s", rows, query)
    await wired.instance.wait_status("/readyz", 200, WITHIN)
    status, body = await post(wired.url, "s", rows, query)
    assert (status, [row["duplicate"] for row in body["results"]]) == (200, [True] * 20)
    assert await wired.stored("s") == 20
    reader = await open_stream(wired.url, "s", 0)
    assert [(frame.id, frame.data["n"]) for frame in await reader.take(20)] == [
        (row["id"], n) for n, row in enumerate(body["results"], 1)
    ]
    reader.close()


async def test_pub_8_a_publish_during_an_outage_was_not_sent_and_is_not_sent_later(wired: Wired) -> None:
    home = wired.wire.target
    await wired.down()
    for headers in ({}, {"Idempotency-Key": "k"}):
        status, body = await post(wired.url, "s", event(1), **headers)
        assert (status, body["code"]) == (503, "log_unavailable")
    await wired.up(home)
    assert (await post(wired.url, "other", event(1)))[0] == 201
    assert await wired.stored("s") == 0
    assert (await post(wired.url, "s", event(1), **{"Idempotency-Key": "k"}))[0] == 201
    assert await wired.stored("s") == 1


async def test_pub_8_while_the_wire_breaks_again_and_again_each_answer_is_the_truth(wired: Wired) -> None:
    """201: stored once. 503: not stored. 504: at most once. Nobody repeats anything, so nothing is there twice."""
    answers: dict[int, int] = {}
    over = asyncio.Event()

    async def write(first: int) -> None:
        number = first
        while not over.is_set():
            answers[number], _ = await post(wired.url, "s", event(number))
            number += 8

    async with asyncio.TaskGroup() as group:
        for first in range(8):
            group.create_task(write(first))
        for _ in range(6):
            enough = Counter(answers.values())[201] + 50
            await eventually(lambda enough=enough: Counter(answers.values())[201] >= enough, "events flow", WITHIN)
            status, _ = await post_and_lose_the_answer(wired, "beside", event(0))
            assert status == 504
            await wired.instance.wait_status("/readyz", 200, WITHIN)
        over.set()
    await wired.instance.wait_status("/readyz", 200, WITHIN)
    reader = await open_stream(wired.url, "s", 0)
    held: Counter[int] = Counter()
    while (frame := await reader.frame()) is not None and frame.type != "replay_complete":
        held[frame.data["n"]] += 1
    reader.close()
    assert set(answers.values()) <= {201, 503, 504}
    assert 504 in answers.values()
    assert set(held.values()) == {1}
    assert {number for number, status in answers.items() if status == 201} <= held.keys()
    assert not {number for number, status in answers.items() if status == 503} & held.keys()
