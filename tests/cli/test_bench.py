"""``ringmere bench``: load on real gateways, measured; what fails is told and ends it with 1."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from ringmere.embedded import EmbeddedServer, free_port
from support.bad_gateway import Vice, bad_gateway
from support.command import ringmere, running
from support.gateway import gateway


async def test_it_measures_two_gateways_at_a_rate_and_closes_its_sessions(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with (
        gateway(tmp_path / "a", nats_url=nats_server.url) as first,
        gateway(tmp_path / "b", nats_url=nats_server.url) as second,
    ):
        servers = ("--server", first.url, "--server", second.url)
        load = ("--sessions", "3", "--readers", "6", "--rate", "60", "--duration", "2s", "--json")
        done = await ringmere("bench", *servers, *load)
        assert done.code == 0, done.out
        [told] = done.lines
        assert (told["problems"], told["missing"], told["errors"]) == ([], 0, {})
        assert 60 <= told["events"] <= 125
        assert told["deliveries"] == 2 * told["events"]
        assert told["bytes"] > 200 * told["deliveries"]
        assert 0 < told["publishLatency"]["p50"] <= told["publishLatency"]["p99"] <= told["publishLatency"]["max"]
        assert 0 < told["deliveryLatency"]["p50"] <= told["deliveryLatency"]["max"]
        sessions = (await ringmere("sessions", "ls", "--prefix", "bench-", "--json", server=first.url)).lines
        assert [session["closed"] for session in sessions] == [True] * 3
        assert sum(session["events"] for session in sessions) == told["events"] + 3


async def test_flat_out_in_batches_it_sends_more_than_one_request_at_a_time(server: str) -> None:
    load = ("--rate", "0", "--batch", "10", "--in-flight", "4", "--readers", "2", "--duration", "1s")
    done = await ringmere("bench", "--server", server, *load)
    assert done.code == 0, done.out
    assert "flat out" in done.out
    assert "ok: nothing failed" in done.out


async def test_a_signal_ends_the_publishing_early_and_the_sums_are_told(server: str) -> None:
    async with running("bench", "--duration", "5m", "--json", server=server) as process:
        sessions: list[object] = []
        async with asyncio.timeout(30):
            while not sessions:
                sessions = (await ringmere("sessions", "ls", "--prefix", "bench-", "--json", server=server)).lines
                sessions = [each for each in sessions if not each["closed"]]  # type: ignore[index]
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err
    assert b'"ok": true' in out


@pytest.mark.parametrize(
    ("vice", "words"), [("drops", "deliveries missing"), ("doubles", "twice"), ("swaps", "out of order")]
)
async def test_a_gateway_that_loses_or_repeats_ends_it_with_1(vice: Vice, words: str) -> None:
    async with bad_gateway(vice) as bad:
        done = await ringmere("bench", "--server", bad.url, "--rate", "100", "--duration", "2s", "--json")
    assert done.code == 1
    [told] = done.lines
    assert any(words in problem for problem in told["problems"]), told["problems"]


async def test_without_a_gateway_it_fails_in_one_line() -> None:
    done = await ringmere("bench", "--server", f"http://127.0.0.1:{free_port()}", "--duration", "1s", deadline=90)
    assert (done.code, done.out) == (1, "")
    assert "no gateway answers" in done.err
    assert done.err.count("\n") == 1
