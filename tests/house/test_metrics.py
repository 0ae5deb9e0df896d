"""The page of metrics is what is counted, and nothing is counted that the page does not have."""

from __future__ import annotations

import re
from pathlib import Path

from ringmere.telemetry.table import markdown, rows

ROOT = Path(__file__).resolve().parents[2]
MADE_BY_HAND = re.compile(r"\b(gauge|counter)\(\s*\"(ringmere_\w+)\"")


def test_the_page_of_metrics_is_as_it_is_generated() -> None:
    text = (ROOT / "service" / "METRICS.md").read_text()
    assert text == markdown(), "put the output of `python -m ringmere.telemetry.table` into service/METRICS.md"


def test_every_metric_made_outside_the_registry_is_on_the_page() -> None:
    known = {row.name for row in rows()}
    for path in (ROOT / "service").rglob("*.py"):
        for kind, name in MADE_BY_HAND.findall(path.read_text()):
            assert (f"{name}_total" if kind == "counter" else name) in known, path.name


def test_every_metric_says_what_it_is_in_a_sentence() -> None:
    for row in rows():
        assert re.fullmatch(r"[A-Z1].*\.", row.text), row.name
        assert row.unit, row.name
