"""Whole rounds at gateways that are bad in one way each: a judge that never finds anything proves nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ringmere.verify.plan import Plan
from ringmere.verify.report import Fault, Report
from ringmere.verify.trial import Trial, TrialFailed
from support.bad_gateway import Vice, bad_gateway
from support.doors import running

PLAN = Plan(
    sessions=2, readers=4, rate=120.0, duration=1.5, size=20, drop_every=0.5, max_silence=2.0, seed=1, prefix="s",
    patience=1.0, settle=3.0,
)  # fmt: skip


async def round_at(vice: Vice, plan: Plan = PLAN) -> Report:
    async with bad_gateway(vice) as gateway:
        return await Trial(plan, [gateway.url]).run()


async def test_the_gateway_of_these_tests_is_good_without_a_vice() -> None:
    report = await round_at("none")
    assert report.problems() == []
    found = report.findings
    assert found.acknowledged == found.sent > 100
    assert found.delivered == found.due == 2 * found.sent
    assert found.drops > 0


@pytest.mark.parametrize(
    ("vice", "count", "words"),
    [
        ("drops", "lost", "lost"),
        ("doubles", "duplicated", "duplicated"),
        ("swaps", "out_of_order", "out of order"),
        ("forgets", "lost", "lost"),
        ("renumbers", "misnumbered", "another id"),
        ("alters", "altered", "altered"),
        ("stores twice", "duplicated", "duplicated"),
        ("stores what it refuses", "unknown", "never stored"),
        ("refuses", "refused", "refused for good"),
        ("forgets cursors", "lost", "lost"),
    ],
)
async def test_a_vice_is_found_and_named(vice: Vice, count: str, words: str) -> None:
    report = await round_at(vice)
    assert not report.good
    assert getattr(report.findings, count) > 0
    assert any(words in problem for problem in report.problems())


async def test_a_stall_is_found_as_a_silence() -> None:
    report = await round_at("stalls", replace(PLAN, drop_every=0.0))
    [problem] = report.problems()
    assert "a silence of 2." in problem


async def test_a_stream_that_never_speaks_is_a_silence_to_the_end() -> None:
    report = await round_at("never speaks", replace(PLAN, drop_every=0.0, settle=1.0))
    assert report.findings.silence > 2.0
    assert report.findings.lost == report.findings.due


async def test_a_verdict_without_need_is_a_resync_and_acceptable_only_when_allowed() -> None:
    report = await round_at("resyncs")
    assert [problem for problem in report.problems() if "resyncs (ring_evicted" in problem] == report.problems() != []
    assert (await round_at("resyncs", replace(PLAN, allow_resync=True))).good


async def test_ringmere_itself_is_good_with_readers_that_drop_all_the_time() -> None:
    async with running(ring_size=5000) as gateway:
        plan = replace(PLAN, sessions=3, readers=12, rate=300.0, drop_every=0.2)
        report = await Trial(plan, [f"http://127.0.0.1:{gateway.port}"]).run()
    assert report.problems() == []
    assert report.findings.delivered == report.findings.due > 1000
    assert report.findings.drops > 12


async def test_a_ring_that_is_too_small_for_the_readers_is_told_and_not_lost() -> None:
    async with running(ring_size=1) as gateway:
        plan = replace(PLAN, rate=1000.0, drop_every=0.2, allow_resync=True)
        report = await Trial(plan, [f"http://127.0.0.1:{gateway.port}"]).run()
    assert report.findings.resyncs["ring_evicted"] > 0
    assert report.findings.told > 0
    assert (report.findings.lost, report.findings.duplicated, report.findings.out_of_order) == (0, 0, 0)


async def test_without_a_gateway_the_round_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmere.verify.trial.CONNECT_DEADLINE", 0.3)
    with pytest.raises(TrialFailed, match="4 of 4 readers got no stream: no gateway answers"):
        await Trial(PLAN, ["http://127.0.0.1:9"]).run()


async def test_a_gateway_without_its_log_does_not_count_as_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmere.verify.trial.CONNECT_DEADLINE", 1.0)
    async with running() as gateway:
        gateway.log.disconnect()
        with pytest.raises(TrialFailed, match="they were told log_unavailable"):
            await Trial(PLAN, [f"http://127.0.0.1:{gateway.port}"]).run()


async def test_a_final_refusal_is_told_at_once() -> None:
    async with running(require_session=True) as gateway:
        with pytest.raises(TrialFailed, match="session_not_found"):
            await Trial(PLAN, [f"http://127.0.0.1:{gateway.port}"]).run()


async def test_stop_ends_the_publishing_early_and_the_round_in_order() -> None:
    async with bad_gateway("none") as gateway:
        trial = Trial(replace(PLAN, duration=600.0), [gateway.url])
        running_trial = asyncio.create_task(trial.run())
        while trial.progress().acknowledged < 20:
            assert not running_trial.done()
            await asyncio.sleep(0.01)
        assert trial.progress().phase == "publishing"
        trial.stop.set()
        report = await asyncio.wait_for(running_trial, 20)
    assert report.good
    assert report.seconds < 60


async def test_a_breaker_runs_beside_and_its_faults_are_timed_from_the_first_event() -> None:
    async def breaker(over: asyncio.Event) -> list[Fault]:
        at = asyncio.get_running_loop().time()
        await over.wait()
        return [Fault(at, "nothing broken", 0.0)]

    async with bad_gateway("none") as gateway:
        report = await Trial(PLAN, [gateway.url], breaker).run()
    [fault] = report.faults
    assert fault.what == "nothing broken"
    assert -0.1 <= fault.at < 1.0


async def test_a_breaker_that_fails_ends_the_round_with_its_error() -> None:
    async def breaker(over: asyncio.Event) -> list[Fault]:
        raise RuntimeError("it cannot be mended")

    async with bad_gateway("none") as gateway:
        with pytest.raises(RuntimeError, match="cannot be mended"):
            await asyncio.wait_for(Trial(replace(PLAN, duration=600.0), [gateway.url], breaker).run(), 20)
