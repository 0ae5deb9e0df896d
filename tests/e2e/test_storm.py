"""Everybody comes at once, or has to go at once: reconnect storms, and the drain of a full instance."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from e2e.conftest import Instance
from ringmere.core.limits import Limits
from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.port import Page
from support.doors import Gateway
from support.gateway import gateway
from support.raw_http import Stream, connect, request_bytes

SESSIONS = [f"storm-{number}" for number in range(20)]
READERS = 2000
ROOMY = Limits(max_subscribers=200)


async def follow(port: int, session: str, cursor: int) -> Stream:
    """Resume one reader."""
    connection = await connect(port)
    headers = {"Last-Event-ID": str(cursor)}
    await connection.send(request_bytes("GET", f"/session/{session}/events", headers))
    stream = Stream(connection, await connection.head())
    assert stream.answer.status == 200
    return stream


async def events_until(stream: Stream, count: int) -> list[int]:
    """Return the ids of the next ``count`` events; anything but a completion in between is a fault."""
    ids: list[int] = []
    while len(ids) < count:
        frame = await stream.frame()
        assert frame is not None, "the stream ended"
        if frame.type == "replay_complete":
            continue
        assert frame.type == "t", frame.raw
        assert frame.id is not None
        ids.append(frame.id)
    return ids


def count_pages(log: Any, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count range reads of a log by session."""
    reads: Counter[str] = Counter()
    page = log.page

    async def counted(session: str, start: int, max_bytes: int) -> Page:
        reads[session] += 1
        result: Page = await page(session, start, max_bytes)
        return result

    monkeypatch.setattr(log, "page", counted)
    return reads


async def test_2000_readers_that_resume_at_once_read_each_log_once_and_disturb_nobody(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their instance is gone; on another one, which has nothing in memory, they all get what they missed."""
    missed = 50
    async with instance(ROOMY) as first:
        at = {}
        for session in SESSIONS:
            answer = await first.post(session, [{"type": "t", "data": n} for n in range(100)])
            at[session] = answer.json["results"][-1]["id"]
    async with instance(ROOMY) as second:
        reads = count_pages(second.hub.log, monkeypatch)
        sent = {}
        for session in SESSIONS:
            answer = await second.post(session, [{"type": "t", "data": n} for n in range(missed)])
            sent[session] = [row["id"] for row in answer.json["results"]]
        bystander = await second.stream("bystander")
        traffic = asyncio.create_task(publish_steadily(second, "bystander", 200))
        streams = await asyncio.gather(
            *(follow(second.port, SESSIONS[n % len(SESSIONS)], at[SESSIONS[n % len(SESSIONS)]]) for n in range(READERS))
        )
        got = await asyncio.gather(*(events_until(stream, missed) for stream in streams))
        for number, ids in enumerate(got):
            assert ids == sent[SESSIONS[number % len(SESSIONS)]]
        assert reads == Counter(dict.fromkeys(SESSIONS, 1))
        assert await events_until(bystander, 200) == await traffic
        assert second.watcher.closed == []
        for stream in streams:
            stream.close()


async def publish_steadily(gateway: Gateway, session: str, count: int) -> list[int]:
    """Publish one event after the other."""
    return [(await gateway.publish(session, n))[0] for n in range(count)]


async def test_a_full_instance_drains_under_load_and_its_readers_are_complete_on_another(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """8.3: ends within the grace with code 0, goodbyes with times spread over the interval, nothing lost."""
    flags = ("--max-subscribers", "200", "--drain-grace", "4s")
    async with (
        gateway(tmp_path / "one", *flags, nats_url=nats_server.url) as old,
        gateway(tmp_path / "two", *flags, nats_url=nats_server.url) as new,
    ):
        connection = await Connection.open(ConnectOptions(servers=(nats_server.url,)))
        port = {process: urlsplit(process.url).port or 0 for process in (old, new)}
        sent: Counter[str] = Counter()
        running = True

        async def load() -> None:
            while running:
                for session in SESSIONS:
                    await connection.request(f"ringmere.events.0.{session}", b'{"type":"t","data":1}', timeout=10)
                    sent[session] += 1

        readers = [SESSIONS[n % len(SESSIONS)] for n in range(READERS)]
        streams: list[Stream] = []
        for start in range(0, READERS, 200):
            part = readers[start : start + 200]
            streams += await asyncio.gather(*(follow(port[old], session, 0) for session in part))
        publishing = asyncio.create_task(load())
        goodbyes = [asyncio.create_task(read_to_goodbye(stream)) for stream in streams]
        began = time.monotonic()
        old.signal(signal.SIGTERM)
        await old.wait_status("/readyz", 503, 5)
        ended = await asyncio.gather(*goodbyes)
        assert await old.wait(15) == 0
        assert time.monotonic() - began < 15
        running = False
        await publishing
        retries = [retry for _, retry in ended]
        assert max(Counter(retry // 300 for retry in retries).values()) < READERS / 4
        assert min(retries) < 900
        assert max(retries) > 2000
        for start in range(0, READERS, 200):
            part = range(start, start + 200)
            await asyncio.gather(*(complete(port[new], readers[n], ended[n][0], sent) for n in part))
        await connection.close()


async def read_to_goodbye(stream: Stream) -> tuple[list[int], int]:
    """Read a stream to its clean end; return its ids and the time it was told to come back in, in ms."""
    frames = await stream.all()
    last = frames[-1]
    assert last.type == "server_draining"
    assert last.retry == last.data["retryMs"]
    return [frame.id for frame in frames if frame.id is not None], last.retry


async def complete(port: int, session: str, ids: list[int], sent: Counter[str]) -> None:
    """Resume behind what a reader has; it must end up with everything, once and in order."""
    stream = await follow(port, session, ids[-1] if ids else 0)
    ids = ids + await events_until(stream, sent[session] - len(ids))
    assert len(ids) == sent[session]
    assert ids == sorted(set(ids))
    stream.close()
