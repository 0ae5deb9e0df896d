"""Traces of real gateways on a real NATS, taken by a real OTLP/HTTP collector."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ringmere.embedded import EmbeddedServer, free_port
from ringmere.log.api import message_at
from ringmere.log.shards import stream_name
from support.collector import Collector, attributes_of, collector
from support.gateway import GatewayProcess, clean_env, gateway
from support.nats import append, connected, eventually

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "congo=t61rcWkgMzE"}


def tracing(to: Collector, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": to.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100", **more}


class Talk:
    """Short ways to publish and to read."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http = http
        self.url = url

    async def publish(self, session: str, data: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
        event = {"type": "t", "data": data}
        async with self.http.post(f"{self.url}/session/{session}/events", json=event, headers=headers) as answer:
            assert answer.status in (200, 201), await answer.text()
            return dict(await answer.json())

    async def read(self, session: str, query: str = "", **headers: str) -> aiohttp.ClientResponse:
        answer = await self.http.get(f"{self.url}/session/{session}/events{query}", headers=headers)
        assert answer.status == 200
        return answer


@pytest.mark.parametrize("tail", ["republish", "consumer"])
async def test_a_trace_goes_from_the_request_over_nats_to_the_delivery_of_another_gateway(
    nats_server: EmbeddedServer, tmp_path: Path, tail: str
) -> None:
    async with (
        collector() as taken,
        gateway(tmp_path, "--traces", "otlp", "--tail", tail, nats_url=nats_server.url, env=tracing(taken)) as one,
        gateway(tmp_path, "--traces", "otlp", "--tail", tail, nats_url=nats_server.url,
                env=tracing(taken, OTEL_SERVICE_NAME="two")) as two,
        aiohttp.ClientSession() as http,
    ):  # fmt: skip
        stream = await Talk(http, two.url).read("s")
        answer = await Talk(http, one.url).publish("s", {"n": 1}, HEADERS)
        assert await stream.content.readuntil(b"serverTimestamp")
        stream.close()
        await eventually(lambda: bool(taken.named("deliver")) and bool(taken.named("publish")), "both spans", 30)
        [publish], [deliver] = taken.named("publish"), taken.named("deliver")
        assert (publish.trace_id.hex(), publish.parent_span_id.hex()) == (TRACE, PARENT)
        assert attributes_of(publish.attributes)["ringmere.outcome.stored"] == 1
        [link] = deliver.links
        assert (link.trace_id, link.span_id) == (publish.trace_id, publish.span_id)
        assert deliver.trace_id != publish.trace_id
        assert not deliver.parent_span_id
        assert attributes_of(deliver.attributes)["ringmere.event.id"] == answer["id"]
        assert {each["service.name"] for each in taken.resources} == {"ringmere", "two"}
        async with connected(nats_server) as connection:
            stored = await message_at(connection, stream_name(0), 1)
        assert stored is not None
        assert f"traceparent: 00-{TRACE}-{publish.span_id.hex()}-01\r\ntracestate: congo=t61rcWkgMzE\r\n".encode() in (
            stored.headers
        )


async def test_a_native_publisher_gives_its_own_context(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    async with (
        collector() as taken,
        gateway(tmp_path, "--traces", "otlp", nats_url=nats_server.url, env=tracing(taken)) as one,
        aiohttp.ClientSession() as http,
        connected(nats_server) as connection,
    ):
        stream = await Talk(http, one.url).read("s")
        for value in ("garbage", f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-{PARENT}-01"):
            await append(connection, "ringmere.events.0.s", b'{"type":"t","data":1}', {"Traceparent": value})
        await append(connection, "ringmere.events.0.s", b'{"type":"t","data":"end"}')
        assert await stream.content.readuntil(b'"end"')
        stream.close()
        await eventually(lambda: bool(taken.named("deliver")), "a delivery", 30)
        [deliver] = taken.named("deliver")
        assert deliver.links[0].span_id.hex() == PARENT
        assert attributes_of(deliver.attributes)["ringmere.event.id"] == 3
        assert taken.named("publish") == []


async def test_replays_verdicts_and_a_retry_are_spans_of_the_traces_they_were_asked_in(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with (
        collector() as taken,
        gateway(tmp_path, "--traces", "otlp", "--ring-size", "5", nats_url=nats_server.url, env=tracing(taken)) as one,
        aiohttp.ClientSession() as http,
    ):
        talk = Talk(http, one.url)
        for number in range(1, 11):
            await talk.publish("s", number, {"Idempotency-Key": f"k{number}", **HEADERS})
        again = await talk.publish("s", 10, {"Idempotency-Key": "k10", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
        assert (again["id"], again["duplicate"]) == (10, True)
        stream = await talk.read("s", **{"Last-Event-ID": "2"}, **HEADERS)
        assert await stream.content.readuntil(b"replay_complete")
        stream.close()
        await eventually(lambda: bool(taken.named("replay")), "a replay", 30)
        [replay], [resync] = taken.named("replay"), taken.named("resync")
        for span in (replay, resync):
            assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        found = attributes_of(replay.attributes)
        assert (found["ringmere.verdict"], found["ringmere.events"]) == ("ring_evicted", 5)
        assert found["ringmere.stream.id"] == stream.headers["X-Stream-Id"]
        await eventually(lambda: len(taken.named("publish")) == 11, "all publishes", 30)
        retry = taken.named("publish")[-1]
        assert (retry.trace_id.hex(), attributes_of(retry.attributes)["ringmere.outcome.duplicate"]) == ("a" * 32, 1)
        opened = [json.loads(line) for line in one.output.splitlines() if '"stream_opened"' in line]
        assert [(line["stream"], line["trace"]) for line in opened] == [(stream.headers["X-Stream-Id"], TRACE)]


async def test_off_by_default_no_header_is_stored(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    async with (
        collector() as taken,
        gateway(tmp_path, nats_url=nats_server.url, env=tracing(taken)) as one,
        aiohttp.ClientSession() as http,
        connected(nats_server) as connection,
    ):
        await Talk(http, one.url).publish("s", 1, HEADERS)
        stored = await message_at(connection, stream_name(0), 1)
        assert stored is not None
        assert b"trace" not in stored.headers
        assert await one.stop() == 0
        assert taken.requests == 0


def test_without_traces_nothing_of_opentelemetry_is_imported() -> None:
    program = (
        "import sys, ringmere.serve, ringmere.workers.worker\n"
        "from ringmere.telemetry import Telemetry\n"
        "Telemetry()\n"
        "assert 'ringmere.telemetry.metrics' in sys.modules\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=clean_env(), check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_without_the_extra_the_start_is_refused_in_one_line(
    nats_server: EmbeddedServer, tmp_path: Path, workers: str
) -> None:
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("raise ImportError('not installed here')\n")
    env = clean_env()
    env["PYTHONPATH"] = f"{tmp_path}:{env.get('PYTHONPATH', '')}"
    flags = ["--listen", "127.0.0.1:0", "--nats-url", nats_server.url, "--traces", "otlp", "--workers", workers]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ringmere", "serve", *flags,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=env,
    )  # fmt: skip
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    [line] = [line for line in err.decode().splitlines() if "otel" in line]
    assert "--traces otlp needs the extra otel: pip install 'ringmere[otel]'" in line
    assert "Traceback" not in err.decode()


async def test_the_last_spans_leave_before_the_process_ends_also_of_workers(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    patient = {"OTEL_BSP_SCHEDULE_DELAY": "600000"}
    async with (
        collector() as taken,
        gateway(tmp_path, "--traces", "otlp", "--workers", "2", nats_url=nats_server.url,
                env=tracing(taken) | patient) as one,
    ):  # fmt: skip
        async with aiohttp.ClientSession() as http:
            await Talk(http, one.url).publish("s", 1, HEADERS)
        assert taken.spans == []
        assert await one.stop() == 0
        assert [span.trace_id.hex() for span in taken.named("publish")] == [TRACE]


async def _publish_quickly(one: GatewayProcess, count: int) -> float:
    """Publish one by one; return the longest wait for an answer."""
    longest = 0.0
    async with aiohttp.ClientSession() as http:
        for number in range(count):
            begin = time.monotonic()
            await Talk(http, one.url).publish("s", number, HEADERS)
            longest = max(longest, time.monotonic() - begin)
    return longest


@pytest.mark.parametrize("trouble", ["away", "refuses", "hangs"])
async def test_a_collector_in_trouble_costs_spans_and_one_line_never_a_publish_or_the_end(
    nats_server: EmbeddedServer, tmp_path: Path, trouble: str
) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with collector() as taken:
        taken.status = 400
        sink = await asyncio.start_server(hang, "127.0.0.1", 0)
        port = free_port() if trouble == "away" else sink.sockets[0].getsockname()[1]
        env = tracing(taken, OTEL_EXPORTER_OTLP_TIMEOUT="1")
        if trouble != "refuses":
            env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        async with gateway(tmp_path, "--traces", "otlp", nats_url=nats_server.url, env=env) as one:
            await _publish_quickly(one, 20)
            await one.wait_for(lambda: "traces_not_exported" in one.output, 30, "the line")
            assert await _publish_quickly(one, 20) < 1.0
            begin = time.monotonic()
            assert await one.stop() == 0
            assert time.monotonic() - begin < 15
            lines = [json.loads(line) for line in one.output.splitlines() if line.startswith("{")]
            said = [line for line in lines if line["event"] == "traces_not_exported"]
            assert len(said) == 1
            assert said[0]["level"] == "warning"
            assert said[0]["spans"] >= 1
            assert said[0]["reason"]
            assert [line for line in lines if line["logger"].startswith("opentelemetry")] == []
        sink.close()
