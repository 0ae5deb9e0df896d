"""Alerts fire when they should and only then, name what is counted, and each has its runbook."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringmere.http.app import ROUTES
from ringmere.settings import rows as settings
from ringmere.telemetry import logs
from ringmere.telemetry.table import rows, values
from support.commandline import parse
from support.prometheus import ALERTS, NAMES, PROMQL, PROMTOOL, ROOT, RUNBOOKS, alerts, needs_prometheus

CASES = ALERTS.parent / "alerts_test.yml"
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
BOOKS = sorted(RUNBOOKS.glob("Ringmere*.md"))
MONITORING = {"http://127.0.0.1:8222/healthz"}
"""Pages of a NATS server's monitoring."""
METRICS = {row.name for row in rows()}
SERIES = METRICS | {f"{row.name}_{end}" for row in rows() if row.buckets for end in ("bucket", "count", "sum")}
MATCHER = re.compile(r"(ringmere_\w+)\{([^}]*)\}")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)


def cases() -> dict[str, list[bool]]:
    """Return for each alert of the unit tests whether it is to fire, case by case."""
    found: dict[str, list[bool]] = {}
    for test in yaml.safe_load(CASES.read_text())["tests"]:
        for rule in test["alert_rule_test"]:
            found.setdefault(rule["alertname"], []).append(bool(rule["exp_alerts"]))
    return found


@needs_prometheus
def test_the_rules_and_the_example_configuration_are_valid() -> None:
    for done in (promtool("check", "rules", ALERTS), promtool("check", "config", ALERTS.parent / "prometheus.yml")):
        assert done.returncode == 0, done.stderr


@needs_prometheus
def test_each_alert_fires_when_it_should_and_does_not_when_it_should_not() -> None:
    done = promtool("test", "rules", CASES)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
@pytest.mark.parametrize("expr", ["vector(1) < 0", "vector(1)"], ids=["never", "always"])
def test_the_cases_notice_each_alert_that_never_or_always_fires(tmp_path: Path, expr: str) -> None:
    rules = yaml.safe_load(ALERTS.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["expr"] = expr
    (tmp_path / ALERTS.name).write_text(yaml.safe_dump(rules))
    shutil.copy(CASES, tmp_path)
    done = promtool("test", "rules", tmp_path / CASES.name)
    assert done.returncode != 0
    assert set(re.findall(r"alertname: ?(\w+)", done.stdout + done.stderr)) == set(cases())


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert {name: set(expected) for name, expected in cases().items()} == {
        rule["alert"]: {True, False} for rule in alerts()
    }


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_what_it_means_and_where_its_runbook_is(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"ops/runbooks/{rule['alert']}.md"
    assert (ROOT / rule["annotations"]["runbook_url"]).is_file()


def test_each_runbook_has_its_alert() -> None:
    assert {book.stem for book in BOOKS} == {rule["alert"] for rule in alerts()}


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_runbook_has_its_four_parts_and_none_is_empty(book: Path) -> None:
    title, *parts = re.split(r"^#+ (.*)$", book.read_text(), flags=re.MULTILINE)[1:]
    assert title == book.stem
    assert parts[1::2] == HEADINGS
    assert all(len(text.split()) >= 10 for text in parts[2::2])
    assert "```sh" in parts[6]
    assert "```promql" in parts[6]


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_runbook_names_routes_commands_and_settings_that_exist(book: Path) -> None:
    text = book.read_text()
    routes = [re.escape(path).replace(r"\{id\}", "[^/]+") for _, path, _ in ROUTES]
    for line in "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines():
        if not (words := shlex.split(line)):
            continue
        if words[0] == "curl":
            path = re.sub(r"^http://127.0.0.1:8080", "", next(word for word in words if word.startswith("http")))
            path = path.partition("?")[0]
            assert path in MONITORING or any(re.fullmatch(route, path) for route in routes), line
        elif words[0] == "ringmere":
            parse(words)
        else:
            assert words[0] in {"nats", "chronyc"}, line
    flags = {row.flag for row in settings()}
    assert set(re.findall(r"`(--[a-z-]+)`", text)) <= flags


def test_the_log_lines_that_runbooks_name_are_written() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "service").rglob("*.py"))
    for book in BOOKS:
        for name in re.findall(r"`(\w+_\w+)`(?= (?:in the log lines|says that|and `))", book.read_text()):
            assert f"``{name}``" in str(logs.__doc__) or f'"{name}"' in sources, f"{book.stem}: {name}"


def asked() -> list[tuple[str, str]]:
    """Return every expression of alerts and runbooks with where it stands."""
    return [(rule["alert"], rule["expr"]) for rule in alerts()] + [
        (f"{book.stem}.md", expr) for book in BOOKS for expr in PROMQL.findall(book.read_text())
    ]


@pytest.mark.parametrize(("where", "expr"), asked())
def test_alerts_and_runbooks_ask_for_what_is_counted(where: str, expr: str) -> None:
    assert set(NAMES.findall(expr)) <= SERIES
    known = values()
    for name, matchers in MATCHER.findall(expr):
        for label, operator, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', matchers):
            for one in value.split("|") if operator == "=~" else [value]:
                assert one in (*known[name, label], "other"), f"{where}: {name} {label}={one}"
