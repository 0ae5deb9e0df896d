"""``ringmere verify`` as a command: exit codes, reports, installations of its own, faults."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from support.bad_gateway import Vice, bad_gateway
from support.command import Done, ringmere, running
from support.nats import eventually

QUICK = ("--sessions", "2", "--readers", "4", "--rate", "120", "--duration", "2s", "--drop-every", "500ms")


async def verify(*arguments: str, deadline: float = 90.0) -> Done:
    return await ringmere("verify", *arguments, "--json", deadline=deadline)


def report_of(done: Done) -> dict[str, Any]:
    assert done.out, done.err
    [report] = done.lines
    return dict(report)


def left_over() -> set[Path]:
    """Return the directories that installations have in the temporary directory."""
    return set(Path(tempfile.gettempdir()).glob("ringmere-verify-*"))


@pytest.mark.parametrize(
    ("vice", "words"),
    [("drops", "lost"), ("doubles", "duplicated"), ("swaps", "out of order"), ("stalls", "a silence of")],
)
async def test_a_bad_gateway_ends_it_with_1_and_is_named(vice: Vice, words: str) -> None:
    async with bad_gateway(vice) as gateway:
        calm = ("--drop-every", "0") if vice == "stalls" else ()
        done = await verify("--server", gateway.url, *QUICK, *calm, "--max-silence", "2s")
    report = report_of(done)
    assert done.code == 1
    assert report["ok"] is False
    assert any(words in problem for problem in report["problems"])


async def test_a_good_gateway_ends_it_with_0_and_people_get_a_table() -> None:
    async with bad_gateway("none") as gateway:
        done = await ringmere("verify", "--server", gateway.url, *QUICK, "--seed", "7")
    assert done.code == 0, done.out
    assert "seed 7" in done.out
    assert "0 lost · 0 duplicated · 0 out of order" in done.out
    assert "nothing lost, nothing twice, all in order" in done.out
    assert done.err == ""


async def test_it_starts_an_installation_of_its_own_finds_it_good_and_removes_it() -> None:
    before = left_over()
    done = await verify(*QUICK)
    report = report_of(done)
    assert (done.code, report["problems"]) == (0, [])
    assert report["delivered"] == report["due"] > 0
    assert report["drops"] > 0
    assert left_over() <= before


async def test_killed_gateways_cost_reconnects_and_nothing_else() -> None:
    done = await verify(*QUICK, "--duration", "7s", "--kill-gateway", "3s", "--max-silence", "30s")
    report = report_of(done)
    assert (done.code, report["problems"]) == (0, [])
    assert report["delivered"] == report["due"] > 0
    assert report["reconnects"] > 0
    assert [fault["what"] for fault in report["faults"]][:2] == ["gateway 1 killed", "gateway 2 killed"]


async def test_killed_nats_costs_waiting_and_nothing_else() -> None:
    done = await verify(*QUICK, "--duration", "5s", "--kill-nats", "2s", "--max-silence", "30s")
    report = report_of(done)
    assert (done.code, report["problems"]) == (0, [])
    assert report["delivered"] == report["due"] > 0
    assert report["retries"] > 0
    assert {fault["what"] for fault in report["faults"]} == {"NATS killed"}


async def test_ctrl_c_ends_the_publishing_and_the_report_comes_all_the_same() -> None:
    async with bad_gateway("none") as gateway:
        arguments = ("--server", gateway.url, *QUICK, "--duration", "10m", "--json")
        async with running("verify", *arguments) as process:
            await eventually(lambda: any(len(log.events) > 20 for log in gateway.logs.values()), "events")
            process.send_signal(signal.SIGINT)
            out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, err
    assert b'"ok": true' in out


async def test_an_address_that_is_no_gateway_ends_it_with_1_and_one_line() -> None:
    async with bad_gateway("none") as gateway:
        done = await verify("--server", f"{gateway.url}/elsewhere", *QUICK)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert "4 of 4 readers got no stream: http_404" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--server", "http://x", "--embedded"), "exclude each other"),
        (("--server", "http://x", "--kill-gateway", "5s"), "faults are for gateways of its own"),
        (("--server", "http://x", "--cluster", "3"), "for gateways of its own"),
        (("--cluster", "2"), "--cluster is 1 or 3"),
        (("--replicas", "3"), "--cluster 3"),
        (("--duration", "5s", "--kill-nats", "10s"), "does not happen within"),
        (("--sessions", "5", "--readers", "4"), "as many readers"),
        (("--rate", "1", "--sessions", "20", "--max-silence", "2s"), "--max-silence"),
        (("--duration", "soon"), "'soon' is not a duration"),
        (("--duration", "0"), "must be above 0"),
        (("--size", "100MiB"), "at most"),
    ],
)
async def test_what_cannot_work_ends_it_with_2_and_one_line(arguments: tuple[str, ...], words: str) -> None:
    done = await verify(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert words in done.err
