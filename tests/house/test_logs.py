"""The page of log lines is what the package writes, in both directions; runbooks name lines that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "service" / "ringmere"
PAGE = ROOT / "service" / "LOGS.md"
LOGGERS = {"logger", "_log"}
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
OWN = {"_info": "info", "_warning": "warning", "_limited": "warning"}
"""Methods of the log observer that write a line of their first argument."""
LIMITED = "_limited"


class Line(NamedTuple):
    """A line as the code or the page has it."""

    level: str
    fields: frozenset[str]
    limited: bool


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Give every call that writes a line: where, by which method, and the call."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of, method = node.func.value, node.func.attr
                name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
                own = name == "self" and method in OWN and path.name == "logs.py"
                if own or (name in LOGGERS and method in LEVELS):
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", method, node


def written() -> dict[str, Line]:
    """Return all lines of the package."""
    found: dict[str, Line] = {}
    for where, method, call in calls():
        event = call.args[0]
        if where.startswith("telemetry/logs.py") and isinstance(event, ast.Name):
            continue  # the observer's own methods, which pass a line on
        assert isinstance(event, ast.Constant), f"{where}: the name of a line is a literal"
        assert all(field.arg for field in call.keywords), f"{where}: the fields of a line are written out"
        fields = {str(field.arg) for field in call.keywords}
        level = {**LEVELS, **OWN}[method]
        known = found.get(str(event.value), Line(level, frozenset(), False))
        assert known.level == level, f"{where}: one name, one level"
        found[str(event.value)] = Line(level, known.fields | fields, known.limited or method == LIMITED)
    return found


def documented() -> dict[str, Line]:
    """Return all lines of the page."""
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `")
    ]
    names = [row[0].strip("`") for row in rows]
    assert names == list(dict.fromkeys(names)), "one row a line"
    return {
        name: Line(level, frozenset(re.findall(r"`(\w+)`", fields)), limit == "1/s")
        for name, (_, level, _, fields, limit) in zip(names, rows, strict=True)
    }


def test_the_page_and_the_package_know_the_same_lines() -> None:
    assert set(documented()) == set(written())


@pytest.mark.parametrize("name", sorted(documented()))
def test_a_line_has_the_level_the_fields_and_the_limit_of_its_row(name: str) -> None:
    assert written()[name] == documented()[name]


def test_no_module_has_a_logger_of_another_name() -> None:
    for path in PACKAGE.rglob("*.py"):
        for name in re.findall(r"^\s*([\w.]+)(?:: [^=]+)? = .*\bget_logger\(", path.read_text(), re.MULTILINE):
            assert name.rpartition(".")[2] in LOGGERS, path


def runbooks() -> list[Path]:
    return sorted((ROOT / "ops" / "runbooks").glob("*.md"))


@pytest.mark.parametrize("path", runbooks(), ids=lambda path: path.stem)
def test_a_runbook_names_lines_that_exist(path: Path) -> None:
    """What a runbook says is "in the log lines" is, and so is what its commands search the log for."""
    text = " ".join(path.read_text().split())
    named = [
        word
        for sentence in re.split(r"(?<=[.:)]) ", text)
        if "in the log lines" in sentence
        for word in re.findall(r"`([a-z_]+)`", sentence)
    ]
    named += re.findall(r"\.event == [\"\\]+(\w+)", text)
    assert set(named) <= set(documented())


def test_runbooks_do_name_lines() -> None:
    """Else the test above would hold nothing."""
    assert sum("in the log lines" in path.read_text() for path in runbooks()) >= 5
