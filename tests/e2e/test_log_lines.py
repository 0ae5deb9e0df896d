"""What a real gateway writes to its log, at the lowest level, and above all what it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp

from ringmere.embedded import EmbeddedServer
from support.gateway import GatewayProcess, gateway
from support.nats import append, connected, eventually, running_server

MARKER = "Zq7payloadZq7"
TOKEN = "Zq7tokenZq7"
JSON = {"Content-Type": "application/json"}


def lines(one: GatewayProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in one.output.splitlines() if line.startswith("{")]


def named(one: GatewayProcess, name: str) -> list[dict[str, Any]]:
    return [line for line in lines(one) if line["event"] == name]


async def test_nothing_of_an_event_is_in_the_log_however_it_is_wrong(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    good = json.dumps({"type": "t", "data": MARKER, "promptId": MARKER, "_meta": {"a": MARKER}})
    bodies = [good, f'{{"type":"t","data":"{MARKER}"', f'{{"type":"t","data":{{"{MARKER}":1,"{MARKER}":2}}}}',
              f'{{"type":"{MARKER}\\n","data":1}}', f'{{"type":"t","data":NaN,"{MARKER}":1}}',
              f'[{good},{{"type":"t","{MARKER}":1}}]', f'{{"type":"t","data":"{MARKER * 100_000}"}}']  # fmt: skip
    async with (
        gateway(tmp_path, "--log-level", "debug", nats_url=nats_server.url) as one,
        aiohttp.ClientSession() as http,
        connected(nats_server) as connection,
    ):
        url = f"{one.url}/session/s/events"
        stream = await http.get(url, params={"maxQueued": "16"})
        statuses = set()
        for body in bodies:
            async with http.post(url, data=body, headers={**JSON, "Idempotency-Key": MARKER}) as answer:
                statuses.add(answer.status)
        assert {201, 400, 413, 422} <= statuses
        for payload in (
            MARKER.encode(),
            f'{{"type":"t","data":"{MARKER}","a":1,"a":2}}'.encode(),
            b"\xff" + good.encode(),
        ):
            await append(connection, "ringmere.events.0.s", payload, {"X-Own": MARKER})
        await eventually(lambda: bool(named(one, "message_skipped")), "a skipped message is said", 30)
        async with http.get(url, headers={"Last-Event-ID": MARKER}) as answer:
            assert answer.headers["X-Cursor-Ignored"] == "malformed"
        stream.close()
        await eventually(lambda: len(named(one, "stream_closed")) == 2, "both ends are said", 30)
        assert await one.stop() == 0
        assert {line["level"] for line in lines(one)} >= {"info", "warning"}
        assert MARKER not in one.output


async def test_obs_4_no_token_of_a_request_or_of_nats_is_in_the_log(tmp_path: Path) -> None:
    extra = f'authorization {{ user: "ringmere", password: "{TOKEN}" }}'
    async with running_server(tmp_path / "nats", extra=extra) as server:
        with_password = server.url.replace("://", f"://ringmere:{TOKEN}@")
        async with (
            gateway(tmp_path, "--log-level", "debug", nats_url=with_password) as one,
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}", "Cookie": f"t={TOKEN}"}) as http,
        ):
            url = f"{one.url}/session/s/events?access_token={TOKEN}&token={TOKEN}"
            stream = await http.get(url)
            for path in (url, f"{one.url}/no/{TOKEN}?token={TOKEN}", f"{one.url}/session/{TOKEN}%0a/events?t={TOKEN}"):
                async with http.post(path, data="broken", headers=JSON) as answer:
                    assert answer.status in (400, 404, 405)
            stream.close()
            await eventually(lambda: bool(named(one, "stream_closed")), "the end is said", 30)
            await server.kill()
            await eventually(lambda: bool(named(one, "log_lost")), "the loss is said", 30)
            await one.stop()
            assert TOKEN not in one.output


async def test_a_stream_is_one_line_at_its_begin_and_one_at_its_end_with_what_came_of_it(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with gateway(tmp_path, nats_url=nats_server.url) as one, aiohttp.ClientSession() as http:
        url = f"{one.url}/session/s/events"
        for number in range(4):
            await http.post(url, json={"type": "t", "data": number})
        stream = await http.get(url, headers={"Last-Event-ID": "1"})
        await stream.content.readuntil(b"replay_complete")
        await http.post(url, json={"type": "session_closed", "data": {}})
        body = await stream.read()
        assert b"session_closed" in body
        await eventually(lambda: bool(named(one, "stream_closed")), "the end is said", 30)
        [opened], [closed] = named(one, "stream_opened"), named(one, "stream_closed")
        assert opened["stream"] == closed["stream"] == stream.headers["X-Stream-Id"]
        assert (opened["session"], opened["cursor"], opened["client"]) == ("s", 1, "127.0.0.1")
        assert (closed["reason"], closed["events"], closed["replayed"], closed["lag"]) == ("session_closed", 4, 3, 0)
        assert 4 * 60 < closed["bytes"] < 4 * 200
        assert closed["seconds"] >= 0
