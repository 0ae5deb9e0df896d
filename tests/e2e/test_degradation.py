"""NATS is there and does not store: no quorum, a full disk. Readers live on, publishers are told, it ends by itself."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ringmere.core.errors import LogUnavailable
from ringmere.embedded import EmbeddedServer
from ringmere.log.shards import PROBE, event_subject, stream_name
from support.disk import fill_up, tmpfs
from support.gateway import GatewayProcess, gateway
from support.nats import Cluster, api, connected, eventually, running_server
from support.raw_http import Frame, Stream
from support.talk import get, open_stream, publish, total

QUICK = ("--retry-ms", "100", "--heartbeat", "0.2s", "--breaker-failures", "3", "--breaker-pause", "0.5s")
ALLOW = {"Degraded": "allow"}
S = "/session/s/events"


def event(number: int, size: int = 0) -> dict[str, Any]:
    return {"type": "t", "data": {"n": number, "pad": "x" * size} if size else {"n": number}}


async def send(url: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Publish once; return status and body."""
    async with aiohttp.ClientSession() as http, http.post(url + S, json=body, headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)


async def until_refused(url: str, first: int, deadline: float = 60.0, size: int = 0) -> dict[int, int]:
    """Publish until the breaker is open, which the health of the instance shows; return the answer to each number."""
    answers: dict[int, int] = {}
    end = time.monotonic() + deadline
    number = first
    while (await get(url, "/healthz")).json["status"] != "degraded":
        assert time.monotonic() < end, f"never refused: {answers}"
        answers[number], _ = await send(url, event(number, size))
        number += 1
    return answers


async def until_stored(url: str, number: int) -> int:
    """Publish one event until it is stored; return its id."""
    found: list[int] = []

    async def stored() -> bool:
        status, answer = await send(url, event(number))
        assert status in (201, 503, 504), answer
        if status == 201:
            found.append(answer["id"])
        return bool(found)

    await eventually(stored, "a publish is stored again", 90)
    return found[0]


async def frames_until(stream: Stream, type: str) -> list[Frame]:
    """Read frames up to and with the first of a type; heartbeats are passed over."""
    frames: list[Frame] = []
    while not frames or frames[-1].type != type:
        [frame] = await asyncio.wait_for(stream.take(1), 60)
        frames.append(frame)
    return frames


async def replay_of(url: str, cursor: int) -> list[Frame]:
    """Return the events behind a cursor; a stream that cannot be served yet says so and is opened again (3.10)."""
    found: list[Frame] = []

    async def served() -> bool:
        stream = await open_stream(url, "s", cursor)
        try:
            [first] = await stream.take(1)
            if first.type == "stream_error":
                assert first.data["errorKind"] == "log_unavailable"
                return False
            rest = [] if first.type == "replay_complete" else await frames_until(stream, "replay_complete")
            found.extend([first, *rest][:-1])
            return True
        finally:
            stream.close()

    await eventually(served, "a stream is served", 60)
    return found


def numbers_of(frames: list[Frame], *, degraded: bool) -> list[int]:
    return [frame.data["n"] for frame in frames if frame.type == "t" and (frame.id is None) is degraded]


@pytest.fixture
async def two(nats_cluster: Cluster, tmp_path: Path) -> AsyncIterator[list[GatewayProcess]]:
    """Two instances on a cluster of three, with three replicas of everything."""
    async with AsyncExitStack() as stack:
        instances = []
        for name in ("one", "two"):
            flags = (*QUICK, "--replicas", "3")
            urls = ",".join(nats_cluster.urls)
            instances.append(await stack.enter_async_context(gateway(tmp_path / name, *flags, nats_url=urls)))
        yield instances


async def test_without_a_quorum_publishers_are_refused_at_once_and_live_readers_live_on(
    two: list[GatewayProcess], nats_cluster: Cluster
) -> None:
    here, there = (instance.url for instance in two)
    readers = [await open_stream(url, "s") for url in (here, there)]
    ids = dict(zip(await publish(here, "s", [event(n) for n in range(1, 6)]), range(1, 6), strict=True))
    for reader in readers:
        assert numbers_of(await reader.take(5), degraded=False) == [1, 2, 3, 4, 5]
    victims = nats_cluster.nodes[1:]
    for node in victims:
        await node.kill()
    for instance in two:
        await instance.wait_status("/readyz", 200)

    answers = await until_refused(here, 100)
    assert set(answers.values()) <= {503, 504}
    began = time.monotonic()
    for number in range(200, 210):
        status, answer = await send(here, event(number))
        assert (status, answer["code"]) == (503, "log_unavailable")
    assert time.monotonic() - began < 2.0

    async def also_there() -> bool:
        return bool((await get(there, "/healthz")).json["logDegraded"])

    await eventually(also_there, "the other instance has noticed by itself", 30)
    for url in (here, there):
        assert (await get(url, "/readyz")).status == 200
        assert await total(url, "ringmere_log_degraded", shard="0") == 1
    for number in range(300, 310):
        url = (here, there)[number % 2]
        assert await send(url, event(number), ALLOW) == (202, {"id": None, "degraded": True})
    status, answer = await send(here, [event(310), event(311)], ALLOW)
    assert (status, answer["results"]) == (202, [{"id": None, "degraded": True}] * 2)
    assert (await send(here, event(312), {**ALLOW, "Expected-Last-Event-Id": "5"}))[0] == 503

    seen = [await frames_until(reader, "log_degraded") for reader in readers]
    for reader, before in zip(readers, seen, strict=True):
        assert numbers_of(before, degraded=True) == []
        live = numbers_of(await reader.take(12), degraded=True)
        # Two instances send; each one's own order holds.
        assert sorted(live) == list(range(300, 312))
        for part in ([n for n in live if n % 2 == 0 or n > 309], [n for n in live if n % 2 and n < 310]):
            assert part == sorted(part)

    await asyncio.gather(*(node.start() for node in victims))
    for reader, before in zip(readers, seen, strict=True):
        rest = await frames_until(reader, "log_restored")
        assert numbers_of(rest, degraded=True) == []
        assert rest[-1].data["since"] == before[-1].data["since"]
    for url in (here, there):
        assert await total(url, "ringmere_log_degraded") == 0
        assert await total(url, "ringmere_breaker_transitions_total", state="closed") >= 1
    assert (
        await total(here, "ringmere_degraded_events_total") + await total(there, "ringmere_degraded_events_total") == 12
    )
    last = await until_stored(there, 400)

    # By cursor: all that was acknowledged, perhaps what was unconfirmed, nothing that was refused or live only.
    replays = [[(frame.id, frame.data["n"]) for frame in await replay_of(url, 0)] for url in (here, there)]
    assert replays[0] == replays[1]
    stored = [number for _, number in replays[0]]
    assert stored[:5] == list(ids.values())
    assert replays[0][-1] == (last, 400)
    unconfirmed = {number for number, status in answers.items() if status == 504}
    assert set(stored[5:]) <= unconfirmed | {400}
    assert all(stored.count(number) == 1 for number in unconfirmed & set(stored))
    for reader in readers:
        reader.close()


# A full disk.


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs tmpfs")


@linux_only
async def test_a_full_disk_turns_into_503_and_after_room_and_a_restart_it_stores_by_itself(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "32m") as disk:
        async with (
            # More than there is: the operator has told the server a lie about its disk.
            running_server(disk / "nats", jetstream="max_file_store: 4G") as server,
            gateway(tmp_path, *QUICK, "--max-bytes", "1GiB", nats_url=server.url) as instance,
        ):
            reader = await open_stream(instance.url, "s")
            ids = await publish(instance.url, "s", [event(n) for n in range(1, 6)])
            assert numbers_of(await reader.take(5), degraded=False) == [1, 2, 3, 4, 5]
            fill_up(disk / "ballast")
            answers = await until_refused(instance.url, 100, size=5000)
            stored = [number for number, status in answers.items() if status == 201]
            assert set(answers.values()) <= {201, 503, 504}
            assert list(answers.values())[-1] in (503, 504)
            status, answer = await send(instance.url, event(200))
            assert (status, answer["code"]) == (503, "log_unavailable")
            assert (await send(instance.url, event(300), ALLOW))[0] == 202
            frames = await frames_until(reader, "log_degraded") + await reader.take(1)
            assert numbers_of(frames, degraded=False) == stored
            assert numbers_of(frames, degraded=True) == [300]

            (disk / "ballast").unlink()
            # A single server that could not write stays broken: room does not bring it back.
            async with connected(server) as connection:
                with pytest.raises(LogUnavailable):
                    await connection.request(event_subject(0, "s"), b"{}")
            assert await total(instance.url, "ringmere_log_degraded", shard="0") == 1
            await server.kill()
            await server.start()
            assert (await frames_until(reader, "log_restored"))[-1].type == "log_restored"
            last = await until_stored(instance.url, 400)
            frames = await replay_of(instance.url, ids[0])
            may_be = [number for number, status in answers.items() if status == 504]
            seen = numbers_of(frames, degraded=False)
            assert [number for number in seen if number not in may_be] == [2, 3, 4, 5, *stored, 400]
            assert frames[-1].id == last
            reader.close()


@linux_only
async def test_max_bytes_keeps_a_disk_from_filling_up(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "192m") as disk:
        async with (
            running_server(disk / "nats") as server,
            gateway(tmp_path, *QUICK, "--max-bytes", "24MiB", "--head-ttl", "0", nats_url=server.url) as instance,
        ):
            for first in range(0, 800, 20):
                status, answer = await send(instance.url, [event(first + n, 300_000) for n in range(20)])
                assert status == 201, answer
            assert await total(instance.url, "ringmere_log_degraded") == 0
            async with connected(server) as connection:
                state = (await api(connection, f"STREAM.INFO.{stream_name(0)}"))["state"]
            assert state["bytes"] <= 24 * 1024**2
            assert state["last_seq"] == 800
            assert os.statvfs(disk).f_blocks * os.statvfs(disk).f_frsize < 800 * 300_000


async def test_a_recovered_log_holds_one_message_of_no_session_for_each_probe_that_succeeded(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with gateway(tmp_path, *QUICK, nats_url=nats_server.url) as instance, connected(nats_server) as connection:
        await publish(instance.url, "s", [event(1)])
        config = (await api(connection, f"STREAM.INFO.{stream_name(0)}"))["config"]
        await api(connection, f"STREAM.UPDATE.{stream_name(0)}", {**config, "subjects": ["elsewhere"]})
        await until_refused(instance.url, 100)
        await api(connection, f"STREAM.UPDATE.{stream_name(0)}", config)
        await until_stored(instance.url, 2)
        info = await api(connection, f"STREAM.INFO.{stream_name(0)}", {"subjects_filter": ">"})
        assert info["state"]["subjects"] == {event_subject(0, "s"): 2, event_subject(0, PROBE): 1}
        listed = (await get(instance.url, "/sessions")).json
        assert [row["sessionId"] for row in listed["sessions"]] == ["s"]
        assert json.dumps(listed).count(PROBE) == 0
