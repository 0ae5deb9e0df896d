"""Contact sheets: every panel of every dashboard is drawn, whatever Prometheus answers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from ops.prometheus.contact_sheet import BOARDS, DPI, INCHES_WIDE, Series, draw, filled_in, legend, shown

from support.prometheus import panels


def answer(expr: str) -> list[Series]:
    """Return two series with every label that a legend may name, one of them with gaps and no number."""
    times = [1000.0 + 2 * n for n in range(20)]
    labels = {"instance": "a:1", "reason": "x", "le": "0.5", "version": "1"}
    return [
        Series(labels, times, [math.nan, *map(float, range(1, 20))]),
        Series({**labels, "le": "+Inf"}, times[5:9], [5.0] * 4),
    ]


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_drawn_with_data_and_without(board: Path, tmp_path: Path) -> None:
    target = tmp_path / "sheet.png"
    described = json.loads(board.read_text())
    assert draw(described, answer, target) == []
    head = target.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert int.from_bytes(head[16:20]) == round(INCHES_WIDE * DPI)
    titles = [panel["title"] for name, panel in panels() if name == board.stem]
    assert draw(described, lambda expr: [], target) == titles
    nothing = Series({"instance": "a:1", "reason": "x", "le": "+Inf"}, [1000.0, 1002.0], [math.nan, math.nan])
    assert draw(described, lambda expr: [nothing], target) == []


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0004, "s", "400 µs"),
        (0.25, "s", "250 ms"),
        (90.0, "s", "90 s"),
        (600.0, "s", "10 min"),
        (0.017, "percentunit", "1.7 %"),
        (1536.0, "bytes", "1.5 KiB"),
        (12_000.0, "cps", "12K c/s"),
        (950.0, "short", "950"),
        (math.nan, "s", "NaN"),
    ],
)
def test_a_value_has_its_unit(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_every_unit_of_a_panel_can_be_shown() -> None:
    for _, panel in panels():
        assert shown(1.0, panel["fieldConfig"]["defaults"]["unit"])


def test_a_legend_is_filled_in() -> None:
    assert legend("{{site}}, all", {"site": "east"}) == "east, all"
    assert legend(None, {"site": "east"}) == "{site=east}"


def test_no_variable_of_grafana_is_left_in_an_expression() -> None:
    for _, panel in panels():
        assert not [target for target in panel["targets"] if "$" in filled_in(target["expr"])]
