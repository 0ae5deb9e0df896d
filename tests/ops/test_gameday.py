"""The game day: its faults, runbooks and record belong together, and it notices an alert that should not fire."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from ops.gameday.drills import DRILLS, Drill
from ops.gameday.first_day import commands, one
from ops.gameday.record import MARK, RECORD, short
from ops.gameday.round import hold
from ops.gameday.runbook import Evidence, diagnosis, step_of
from ops.gameday.scaled import SHIPPED, alerts, configuration, rules, scaled

from support.prometheus import BOARDS, needs_prometheus

FACTOR = 15.0
"""Less of a hurry than in the record: other tests run beside."""
RANGE = re.compile(r"\[[^\]]*\]")
DRILL = {drill.name: drill for drill in DRILLS}
HEAD, _, WRITTEN = RECORD.read_text().partition(MARK)


def part(title: str) -> str:
    """Return the record's section of a fault."""
    return WRITTEN.split(f"\n### {title}\n", 1)[1].split("\n### ", 1)[0]


def fired(text: str) -> set[str]:
    """Return the alerts that a section's table of times says fired."""
    return set(re.findall(r"^\| (\w+) \| [^|]+ \| \d[^|]* \| [^|]+ \|$", text, re.MULTILINE))


# -- what is put in -----------------------------------------------------------------------------------------


def test_every_alert_fires_in_one_of_the_faults() -> None:
    assert set().union(*(drill.expected for drill in DRILLS)) == {rule["alert"] for rule in alerts()}


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_each_alert_of_a_fault_has_its_runbook_asked_for_what_stands_there(drill: Drill) -> None:
    for evidence in drill.shows:
        assert step_of(evidence).text
        re.compile(evidence.shows)
    asked = {evidence.book for evidence in drill.shows}
    # Publishes fail for another alert's reason; that one's runbook is the one that shows it.
    assert drill.expected - asked <= {"RingmerePublishFailing", "RingmereResyncsHigh"}
    assert asked


def test_the_runbook_of_each_alert_is_asked_in_one_of_the_faults() -> None:
    assert {evidence.book for drill in DRILLS for evidence in drill.shows} == {rule["alert"] for rule in alerts()}


def test_a_step_that_a_runbook_does_not_have_is_noticed() -> None:
    with pytest.raises(LookupError, match="has 0 steps"):
        step_of(Evidence("RingmereDown", "ringmere dance", "x"))
    assert {step.kind for step in diagnosis("RingmereLogDegraded")} == {"sh", "promql", "log"}


# -- shorter times ------------------------------------------------------------------------------------------


def test_times_of_alerts_are_shorter_and_nothing_else_is_changed() -> None:
    for shipped, quick in zip(alerts(), rules(20.0)["groups"][0]["rules"], strict=True):
        assert RANGE.sub("[]", quick["expr"]) == RANGE.sub("[]", shipped["expr"])
        assert all(each.endswith("ms]") for each in RANGE.findall(quick["expr"]))
        rest = {"expr": "", "for": ""}
        assert {**quick, **rest} == {**shipped, **rest}
        assert ("for" in quick) == ("for" in shipped)
    assert scaled("rate(x[5m]) + y[15m] - z[1h]", 20.0) == "rate(x[15000ms]) + y[45000ms] - z[180000ms]"
    assert scaled("x > 268435456", 20.0) == "x > 268435456"


def test_the_interval_of_scrapes_is_shorter_by_the_same_factor(tmp_path: Any) -> None:
    quick = configuration(20.0, tmp_path / "alerts.yml", ["127.0.0.1:1"])
    assert "scrape_interval: 10s" in SHIPPED.read_text()
    assert set(quick["global"].values()) == {"500ms"}
    assert [job["job_name"] for job in quick["scrape_configs"]] == ["ringmere"]


# -- the record ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_the_record_says_of_each_fault_what_was_expected_of_it(drill: Drill) -> None:
    text = part(drill.title)
    assert fired(text) == drill.expected
    others = {short(rule["alert"]) for rule in alerts() if rule["alert"] not in drill.expected}
    [told] = re.findall(r"^Did not fire: (.*)\.$", text, re.MULTILINE)
    assert set(told.split(", ")) == others
    assert " 0 lost, 0 twice, 0 out of order;" in text
    for evidence in drill.shows:
        [output] = re.findall(rf"{re.escape(' '.join(step_of(evidence).text.split()))}\n(.*?)```", text, re.DOTALL)
        assert re.search(evidence.shows, output, re.MULTILINE), evidence


def test_the_record_has_every_alert_and_where_it_fired() -> None:
    table = dict(re.findall(r"^\| (Ringmere\w+) \| ([^|]+) \|$", WRITTEN, re.MULTILINE))
    assert table == {
        rule["alert"]: "; ".join(drill.title for drill in DRILLS if rule["alert"] in drill.expected)
        for rule in alerts()
    }


def test_the_record_tells_what_the_readmes_commands_led_to() -> None:
    assert "## From nothing to a filled dashboard" in WRITTEN
    for board in BOARDS:
        assert re.search(rf"^\| {board.stem} \| \d+ \| \d+ \| ", WRITTEN, re.MULTILINE)


def test_the_readme_has_the_commands_that_lead_to_dashboards() -> None:
    stream, watch = commands("Sixty seconds to a stream"), commands("Watch it")
    for beginning in ("make run", "curl -N", "curl http://127.0.0.1:8080", "ringmere publish demo --file"):
        assert one(stream, beginning)
    for beginning in ("prometheus --config.file=ops/prometheus/prometheus.yml", "ringmere bench "):
        assert one(watch, beginning)


# -- for real -----------------------------------------------------------------------------------------------


@needs_prometheus
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["slow-readers", "gateway-frozen"])
async def test_a_fault_is_told_by_its_alert_alone_shown_by_its_runbook_and_over_when_it_ends(name: str) -> None:
    found = await hold(DRILL[name], FACTOR)
    assert found["trouble"] == []
    assert {one["step"] for one in found["shown"]} == {step_of(evidence).text for evidence in DRILL[name].shows}
    assert found["readers"]["delivered"] == found["readers"]["due"] > 0


@needs_prometheus
@pytest.mark.timeout(300)
async def test_an_alert_that_should_not_fire_is_noticed() -> None:
    unexpected = dataclasses.replace(DRILL["foreign-publisher"], fires=frozenset(), shows=())
    found = await hold(unexpected, 60.0)
    assert any("RingmereSkippedMessages" in line for line in found["trouble"])
