"""What lies where, how large a module may grow, and words that are left behind by accident."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 320
TOP = {
    ".ci", ".dockerignore", ".env.example", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "README.md",
    "docker-compose.yml", "grafana", "ops", "pyproject.toml", "service", "tests",
}  # fmt: skip
MADE = {
    ".env", ".git", ".venv", ".data", ".tmp", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis",
    ".import_linter_cache", "build", "dist", "node_modules", "__pycache__",
}  # fmt: skip
"""What tools make and git ignores."""
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".c", ".js", ".html", ".css", ".conf", ".json", ""}
LEFT_BEHIND = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|home|Users|tmp)/\w")
EMPTY_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "manager.py", "misc.py", "common.py"}


def files(*tops: str) -> Iterator[Path]:
    for top in tops:
        path = ROOT / top
        for found in [path] if path.is_file() else sorted(path.rglob("*")):
            inside = found.relative_to(ROOT)
            if found.is_file() and not MADE.intersection(inside.parts) and found.suffix in TEXT:
                yield found


def test_the_top_of_the_repository_holds_what_it_should_and_nothing_else() -> None:
    found = {path.name for path in ROOT.iterdir()}
    assert found - TOP - MADE == set()


@pytest.mark.parametrize("path", sorted((ROOT / "service").rglob("*.py")), ids=lambda path: path.stem)
def test_a_module_stays_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES
    assert path.name not in EMPTY_NAMES


def test_nothing_is_left_behind_in_any_text() -> None:
    found = []
    for path in files(*TOP - {"LICENSE"}):
        if path.name == "package-lock.json":
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if LEFT_BEHIND.search(line) or MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []


def test_tests_mirror_the_package() -> None:
    floors = {path.name for path in (ROOT / "service" / "ringmere").iterdir() if (path / "__init__.py").exists()}
    tests = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - MADE
    others = {"contract", "data", "e2e", "foreign", "house", "ops", "page", "support"}
    assert tests - others <= floors
