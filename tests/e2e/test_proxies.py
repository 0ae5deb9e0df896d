"""The shipped proxies, each in front of two instances that share a log."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Origin

from ringmere.client.backoff import Backoff
from ringmere.client.items import Control, Event
from ringmere.client.publish import Publisher
from ringmere.client.stream import Stream, follow
from ringmere.embedded import EmbeddedServer
from ringmere.log.shards import stream_name
from ringmere.settings import Settings
from support.gateway import GatewayProcess, gateway
from support.nats import api, connected, eventually
from support.proxies import NAMES, NGINX_WORKERS, Proxy, needs_proxies, proxy, silences
from support.raw_http import fetch
from support.relay import Relay, relay
from support.talk import get, numbers, open_stream, port_of, publish, total
from support.versions import CLIENT, reading

pytestmark = needs_proxies

VERSIONS = [(name, version) for name in NAMES for version in ("1.1", "2", "3") if version < "3" or name == "caddy"]
TEN_MINUTES = 600
FASTER = 30
"""How much faster time goes where a test waits for silence: ten minutes are twenty seconds."""
AT_ONCE = Backoff(retry=0.1, first=0.1, widest=0.5)


@dataclass
class House:
    """Two instances and what each reaches NATS through."""

    instances: list[GatewayProcess]
    relays: list[Relay]

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.instances]

    async def readers(self) -> list[int]:
        """Return how many readers each instance has."""
        return [int(await total(url, "ringmere_subscribers")) for url in self.urls]

    async def holder(self) -> int:
        """Return which instance has the one reader, once there is one."""

        async def held() -> bool:
            return sum(await self.readers()) == 1

        await eventually(held, "one reader")
        return (await self.readers()).index(1)


@pytest.fixture
async def house(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[House]:
    """Two instances that believe the proxies, which have another address than their clients."""
    flags = ("--trusted-proxy", "127.0.0.1", "--retry-ms", "100", "--heartbeat", "1", "--evict-grace", "30")
    async with AsyncExitStack() as stack:
        relays = [await stack.enter_async_context(relay(nats_server.url)) for _ in range(2)]
        starts = [
            gateway(tmp_path / each.url[-5:], *flags, nats_url=each.url.replace("http", "nats")) for each in relays
        ]
        yield House(await asyncio.gather(*(stack.enter_async_context(each) for each in starts)), relays)


@pytest.fixture(params=NAMES)
async def front(request: pytest.FixtureRequest, house: House, tmp_path: Path) -> AsyncIterator[Proxy]:
    """Each of the proxies before the instances."""
    async with proxy(request.param, tmp_path, house.urls) as running:
        yield running


async def data_of(stream: Stream, count: int) -> list[Any]:
    """Return the data of the next events; frames of the gateway itself are passed over."""
    found: list[Any] = []
    async with asyncio.timeout(30):
        async for item in stream:
            assert not isinstance(item, Control) or item.type != "state_resync_required"
            if isinstance(item, Event):
                found.append(item.data["n"])
                if len(found) == count:
                    break
    return found


async def send(url: str, first: int, count: int) -> None:
    """Publish numbers, again where it is not known whether one was stored, as any publisher should."""
    async with Publisher(url, backoff=AT_ONCE) as to:
        for event in numbers(count, first):
            await to.publish("s", event)


async def test_prx_1_events_pass_each_proxy_as_they_come_over_each_version_of_http(front: Proxy, house: House) -> None:
    page = await get(front.url, "/openapi.json", **{"Accept-Encoding": "gzip"})
    assert page.headers["content-encoding"] == "gzip"
    for version in (version for name, version in VERSIONS if name == front.name):
        session = f"v{version[0]}"
        async with reading(front, version, session, headers={"Accept-Encoding": "gzip"}) as stream:
            assert stream.headers["content-type"] == "text/event-stream"
            assert "content-encoding" not in stream.headers
            for number in range(1, 4):
                # The next is published only when the one before is here: nothing can be waiting for a buffer to fill.
                [id_] = await publish(front.url, session, numbers(1, number))
                event = await stream.next()
                assert (event["id"], event["data"]) == (id_, {"n": number})
            assert sum(await house.readers()) == 1

        async def left() -> bool:
            return sum(await house.readers()) == 0

        # HAProxy notices it with the next heartbeats, the others at once.
        await eventually(left, "a reader that has gone has gone from its instance", 30)


async def test_a_websocket_passes_each_proxy_and_its_pings_keep_it_where_nothing_else_does(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        fronts = await in_front(stack, nats_server, tmp_path, "500ms", FASTER)
        sockets = []
        for front in fronts.values():
            for url, trust in ((front.url, None), (front.secure, front.trust)):
                target = f"{url.replace('http', 'ws')}/session/s/ws"
                opening = connect(target, ssl=trust, proxy=None, ping_interval=None, origin=Origin(url))
                sockets.append(await stack.enter_async_context(opening))
                assert json.loads(await sockets[-1].recv())["type"] == "stream_opened"
        # Longer than any of them waits in silence.
        await asyncio.sleep(1.2 * max(max(silences(name).values()) for name in NAMES) / FASTER)
        [id_] = await publish(fronts["nginx"].url, "s", numbers(1))
        async with asyncio.timeout(30):
            assert [json.loads(await socket.recv())["id"] for socket in sockets] == [id_] * len(sockets)


async def test_prx_2_ten_minutes_of_silence_pass_each_proxy_as_heartbeats_do(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    beat = Settings().heartbeat
    for name in NAMES:
        assert 3 * beat <= min(silences(name).values()) <= max(silences(name).values()) < TEN_MINUTES / 5
    async with AsyncExitStack() as stack:
        fronts = await in_front(stack, nats_server, tmp_path, f"{beat / FASTER}s", FASTER)
        opened = [reading(fronts[name], version, "s") for name, version in VERSIONS]
        streams = [await stack.enter_async_context(each) for each in opened]
        await asyncio.gather(*(stream.beats(round(TEN_MINUTES / beat)) for stream in streams))
        [id_] = await publish(fronts["nginx"].url, "s", numbers(1))
        assert [(await stream.next())["id"] for stream in streams] == [id_] * len(streams)


async def test_prx_2_without_heartbeats_each_proxy_does_cut_a_quiet_stream(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        fronts = await in_front(stack, nats_server, tmp_path, "1h", 2 * FASTER)
        for name, version in VERSIONS:
            async with reading(fronts[name], version, "s") as stream:
                with pytest.raises((httpx.HTTPError, ConnectionResetError, StopAsyncIteration)):
                    await stream.next()


async def in_front(
    stack: AsyncExitStack, nats: EmbeddedServer, place: Path, heartbeat: str, faster: float
) -> dict[str, Proxy]:
    """Start all proxies, impatient, before the same two instances with this heartbeat."""
    starts = [gateway(place, "--heartbeat", heartbeat, nats_url=nats.url) for _ in range(2)]
    urls = [(await stack.enter_async_context(each)).url for each in starts]
    return {name: await stack.enter_async_context(proxy(name, place, urls, faster=faster)) for name in NAMES}


async def test_a_killed_instance_costs_its_reader_a_resume_at_the_other_one(front: Proxy, house: House) -> None:
    states: list[Any] = []
    async with follow(front.url, "s", "start", backoff=AT_ONCE, on_state=states.append) as stream:
        await send(front.url, 1, 3)
        assert await data_of(stream, 3) == [1, 2, 3]
        await house.instances[await house.holder()].kill()
        await send(front.url, 4, 3)
        assert await data_of(stream, 3) == [4, 5, 6]
    assert len(states) > 1


async def test_an_instance_that_ends_says_goodbye_through_each_proxy_and_the_other_goes_on(
    front: Proxy, house: House
) -> None:
    [id_] = await publish(front.url, "s", numbers(1))
    async with reading(front, "2", "s", "?from=start") as stream:
        assert (await stream.next())["id"] == id_
        ending = house.instances[await house.holder()]
        ending.signal(signal.SIGTERM)
        goodbye = await stream.next()
        while goodbye["type"] == "replay_complete":
            goodbye = await stream.next()
        assert goodbye["type"] == "server_draining"
        assert await stream.ended()
    async with follow(front.url, "s", id_, backoff=AT_ONCE) as stream_again:
        await send(front.url, 2, 2)
        assert await data_of(stream_again, 2) == [2, 3]
    assert await ending.wait() == 0


@pytest.mark.parametrize("front", ["haproxy", "caddy"], indirect=True)
async def test_an_instance_that_is_not_ready_gets_no_new_stream_and_keeps_those_it_has(
    front: Proxy, house: House
) -> None:
    async with reading(front, "1.1", "s") as stream:
        away = await house.holder()
        house.relays[away].target = "nats://127.0.0.1:1"
        house.relays[away].cut()
        await house.instances[away].wait_status("/readyz", 503)

        async def passed_over() -> bool:
            # More than one: the instance with fewer readers would get the second one.
            others = [await open_stream(front.url, "s") for _ in range(4)]
            readers = await house.readers()
            for other in others:
                other.close()
            return readers[away] == 1 and readers[1 - away] >= 4

        await eventually(passed_over, "new streams go to the other instance", 30)
        house.relays[away].target = house.relays[1 - away].target
        await send(front.url, 1, 1)
        assert (await stream.next())["data"] == {"n": 1}


async def test_a_reader_is_shown_with_its_own_address_and_not_with_one_it_makes_up(front: Proxy, house: House) -> None:
    for version in ("1.1", "2"):
        for made_up in ({}, {"X-Forwarded-For": "203.0.113.9"}, {"X-Forwarded-For": "203.0.113.9, 127.0.0.1"}):
            session = f"s{version[0]}-{len(''.join(made_up.values()))}"
            async with reading(front, version, session, headers=made_up):
                shown = [(await get(url, f"/session/{session}")) for url in house.urls]
                [reader] = [row for answer in shown if answer.status == 200 for row in answer.json["readers"]]
                assert reader["client"] == CLIENT
                opened = {"event": "stream_opened", "stream": reader["streamId"], "client": CLIENT}
                assert any(opened.items() <= line.items() for line in logged(house.instances))


def logged(instances: Sequence[GatewayProcess]) -> list[dict[str, Any]]:
    """Return what instances have logged as JSON."""
    lines = [line for each in instances for line in each.output.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


async def test_what_an_instance_takes_passes_each_proxy_and_what_it_does_not_it_refuses_itself(front: Proxy) -> None:
    largest = batch_of(Settings().request_bytes)
    headers = {"Content-Type": "application/json"}
    port = port_of(front.url)
    answer = await fetch(port, "POST", "/session/s/events", headers, largest)
    assert answer.status == 201
    assert len(answer.json["results"]) == 9
    answer = await fetch(port, "POST", "/session/s/events", headers, largest + b" ")
    assert (answer.status, answer.code) == (413, "event_too_large")
    for target, more in (("/session/s?" + "x" * 8000, {}), ("/session/s", {"Authorization": "x" * 8000})):
        answer = await fetch(port, "GET", target, more)
        assert (answer.status, answer.json["events"]) == (200, 9)


async def test_nginx_keeps_its_connections_to_the_instances(house: House, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        between = [await stack.enter_async_context(relay(url)) for url in house.urls]
        front = await stack.enter_async_context(proxy("nginx", tmp_path, [each.url for each in between]))
        before = sum(each.connections for each in between)
        for number in range(1, 41):
            await publish(front.url, "s", numbers(1, number))
        assert sum(each.connections for each in between) - before <= len(between) * NGINX_WORKERS
        assert sum("POST" in head for each in between for head in each.asked) == 40


def batch_of(size: int) -> bytes:
    """Return a batch of nine events that is so many bytes."""
    rest = [{"type": "t", "data": "x" * 930_000} for _ in range(8)]
    used = len(json.dumps([*rest, {"type": "t", "data": ""}]))
    return json.dumps([*rest, {"type": "t", "data": "x" * (size - used)}]).encode()


async def test_a_publish_whose_instance_is_killed_is_not_sent_again_by_any_proxy(
    front: Proxy, house: House, nats_server: EmbeddedServer
) -> None:
    # A relay remembers what looks like a request: so it shows which instance has sent the event to NATS.
    body = json.dumps({"type": "t", "data": "GET / HTTP/1.1"}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
    for each in house.relays:
        each.muted = True
    asked = asyncio.create_task(fetch(port_of(front.url), "POST", "/session/s/events", headers, body))
    async with connected(nats_server) as connection:
        await eventually(lambda: stored(connection), "the event is stored")
    [sender] = [number for number, each in enumerate(house.relays) if each.asked]
    await house.instances[sender].kill()
    assert (await asked).status == 502
    other = house.relays[1 - sender]
    other.muted = False
    other.cut()
    await house.instances[1 - sender].wait_status("/readyz", 200)
    assert other.asked == []
    again = await fetch(port_of(front.url), "POST", "/session/s/events", headers, body)
    assert (again.status, again.json["duplicate"]) == (200, True)
    assert (await get(front.url, "/session/s")).json["events"] == 1


async def stored(connection: Any) -> bool:
    """Say whether anything is in the log."""
    info = await api(connection, f"STREAM.INFO.{stream_name(0)}")
    return bool(info["state"]["messages"])


async def test_a_slow_reader_behind_each_proxy_is_evicted_and_told_and_loses_nothing(
    front: Proxy, house: House
) -> None:
    slow = await open_stream(front.url, "s", query="?maxQueued=16")
    slow.connection.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    published: list[int] = []
    at = house.urls[await house.holder()]
    while not await total(at, "ringmere_evictions_total"):
        assert len(published) < 200, "a hundred megabytes are held for one reader"
        published += await publish(at, "s", [{"type": "t", "data": "x" * 500_000}] * 4)
    frames = await slow.all()
    assert frames[-1].type == "client_evicted"
    seen = [frame.id for frame in frames if frame.id is not None]
    again = await open_stream(front.url, "s", seen[-1])
    rest = [frame.id for frame in await again.take(len(published) - len(seen))]
    assert seen + rest == published
    again.close()
