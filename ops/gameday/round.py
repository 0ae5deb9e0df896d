"""One fault from its beginning to its end, under load, with the judge's word on what readers got."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ops.gameday import runbook
from ops.gameday.drills import Drill
from ops.gameday.runbook import Evidence
from ops.gameday.scaled import scaled
from ops.gameday.site import Site
from ops.gameday.watch import GamedayError

from ringmere.verify.plan import Plan
from ringmere.verify.report import Fault, Report
from ringmere.verify.trial import Trial

FIRES_WITHIN = 120.0
ENDS_WITHIN = 180.0
SHOWN_WITHIN = 60.0
SETTLED = 3.0
"""Seconds in which an alert that should not fire has its chance, beside one that does."""
RATE = 100.0
"""Events a second, over all sessions."""
LONG = 3600.0
"""Seconds that the load would last; the end of the fault ends it."""
LINES = 3
"""Lines of one output that the record keeps."""
WIDTH = 220


@dataclass
class Course:
    """What happened, times in seconds since the fault was put in."""

    began: float = 0.0
    ended: float = 0.0
    over: float = 0.0
    shown: list[dict[str, Any]] | None = None


async def hold(drill: Drill, factor: float, seed: int = 1) -> dict[str, Any]:
    """Put a fault in and return what happened. Raises :class:`GamedayError` when it is not as it should be."""
    async with Site(drill.needs, factor) as site:
        course = Course(shown=[])
        plan = Plan(
            prefix="gameday", sessions=10, readers=40, rate=RATE, duration=LONG, heartbeat=3.0, max_silence=LONG,
            seed=seed, allow_resync=True,
        )  # fmt: skip

        async def breaker(_: asyncio.Event) -> Sequence[Fault]:
            await _go_through(drill, site, course)
            return [Fault(course.began, drill.title, course.ended)]

        report = await Trial(plan, site.fleet.addresses, breaker).run()
        fired = site.watch.ever("firing")
        trouble = site.fleet.trouble() + report.problems()
        if fired != drill.expected:
            trouble.append(f"{sorted(fired)} fired, expected {sorted(drill.expected)}")
        if report.findings.resyncs and not drill.resyncs:
            trouble.append(f"readers were told to resync: {dict(report.findings.resyncs)}")
        return _written(drill, site, course, report, trouble)


async def _go_through(drill: Drill, site: Site, course: Course) -> None:
    watch = site.watch
    await site.seen_and_quiet()
    watch.forget()
    course.began = time.monotonic()
    async with drill.put_in(site):
        await watch.until(lambda: drill.fires <= watch.firing, f"{sorted(drill.fires)} fire", FIRES_WITHIN)
        await asyncio.sleep(SETTLED)
        await _look(drill, site, course, drill.fires | (frozenset() if drill.fires else {e.book for e in drill.shows}))
        course.ended = time.monotonic() - course.began
    if drill.follows:
        await watch.until(lambda: drill.follows <= watch.ever("firing"), f"{drill.follows} follow", FIRES_WITHIN)
        await _look(drill, site, course, drill.follows)
    await watch.until(lambda: not watch.stirring, "nothing fires any more", ENDS_WITHIN)
    course.over = time.monotonic() - course.began


async def _look(drill: Drill, site: Site, course: Course, books: frozenset[str] | set[str]) -> None:
    """Go through what the runbooks of ``books`` must show now."""
    for evidence in drill.shows:
        if evidence.book not in books:
            continue
        step = runbook.step_of(evidence)
        deadline = time.monotonic() + SHOWN_WITHIN
        while not (lines := _matching(output := await _output(step, site), evidence)):
            if time.monotonic() > deadline:
                raise GamedayError(f"{evidence.book}: {step.text!r} does not show {evidence.shows!r}:\n{output}")
            await asyncio.sleep(0.5)
        assert course.shown is not None
        course.shown.append({"book": evidence.book, "kind": step.kind, "step": step.text, "lines": lines})


async def _output(step: runbook.Step, site: Site) -> str:
    if step.kind == "sh":
        output = await runbook.run(step.text, site.door, site.environment(), site.names)
        return output.replace(str(site.fleet.directory), "…")
    if step.kind == "promql":
        rows = await site.watch.query(scaled(step.text, site.factor))
        return "\n".join(f"{_labels(labels)} {_number(value)}" for labels, value in rows)
    logs = [gateway.log_file for gateway in site.fleet.gateways]
    return "\n".join([await asyncio.to_thread(runbook.log_lines, log, step.text) for log in logs])


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _labels(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items() if name != "__name__") + "}"


def _matching(output: str, evidence: Evidence) -> list[str]:
    lines = [line.rstrip() for line in output.splitlines() if re.search(evidence.shows, line)]
    return [line if len(line) <= WIDTH else f"{line[:WIDTH]} …" for line in lines[:LINES]]


def _written(drill: Drill, site: Site, course: Course, report: Report, trouble: list[str]) -> dict[str, Any]:
    found = report.as_object()
    keys = ("sent", "acknowledged", "unconfirmed", "notStored", "due", "delivered", "lost", "toldLost", "duplicated",
            "outOfOrder", "resyncs", "evictions", "reconnects", "longestSilence")  # fmt: skip
    return {
        "name": drill.name,
        "factor": site.factor,
        "changes": [[round(at - course.began, 1), alert, state] for at, alert, state in site.watch.changes],
        "ended": round(course.ended, 1),
        "over": round(course.over, 1),
        "shown": course.shown,
        "readers": {key: found[key] for key in keys},
        "trouble": trouble,
    }
