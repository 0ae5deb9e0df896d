"""Draw every panel of every dashboard as Grafana would lay it out: a PNG for each, to be looked at.

    python -m ops.prometheus.contact_sheet [--out DIR] [--seconds 150] [--prometheus URL --minutes 60]

Without ``--prometheus`` it starts an installation of its own in a temporary directory, loads it with readers
that are slow, away for too long or come and go, restarts a gateway and freezes NATS for a moment. It needs
``prometheus``, and matplotlib (the extra ``dev`` has it). Nothing of what it runs is left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker
from ops.prometheus.loaded import SCRAPE_EVERY, loaded_prometheus

BOARDS = sorted((Path(__file__).resolve().parents[2] / "grafana" / "dashboards").glob("*.json"))
COLUMNS = 24
INCHES_WIDE, INCHES_A_ROW = 19.2, 0.36
DPI = 75
"""About what Grafana shows in a window 1440 pixels wide."""
RATE_INTERVAL = 8 * SCRAPE_EVERY
COLOURS = {"green": "#56a64b", "yellow": "#f2cc0c", "red": "#e02f44", "blue": "#3274d9", "orange": "#ff780a"}
SCALES: dict[str, tuple[float, tuple[str, ...]]] = {
    "short": (1000.0, ("", " K", " Mil", " Bil")),
    "none": (1000.0, ("",)),
    "bytes": (1024.0, (" B", " KiB", " MiB", " GiB")),
    "Bps": (1000.0, (" B/s", " kB/s", " MB/s", " GB/s")),
    "cps": (1000.0, (" c/s", "K c/s", "M c/s")),
    "cpm": (1000.0, (" c/m", "K c/m", "M c/m")),
}
SMALL = ((1.0, 1.0, " s"), (1e-3, 1e-3, " ms"), (0.0, 1e-6, " µs"))

Range = Callable[[str], list["Series"]]


class Series(NamedTuple):
    """One line of a panel: its labels, and its values at times (seconds since 1970)."""

    labels: dict[str, str]
    times: list[float]
    values: list[float]


def shown(value: float, unit: str) -> str:
    """Return a value as Grafana shows it in a unit."""
    if value != value:
        return "NaN"
    if unit == "percentunit" or unit == "percent":
        return f"{value * (100 if unit == 'percentunit' else 1):.3g} %"
    if unit == "s":
        if value >= 120:
            return f"{value / 60:.3g} min"
        floor = next(row for row in SMALL if value >= row[0] or row[0] == 0.0)
        return f"{value / floor[1]:.3g}{floor[2]}"
    base, names = SCALES[unit]
    at = 0
    while abs(value) >= base and at + 1 < len(names):
        value, at = value / base, at + 1
    return f"{value:.3g}{names[at]}" if abs(value) < 1000 else f"{value:,.0f}{names[at]}"


def legend(template: str | None, labels: dict[str, str]) -> str:
    """Return the name of a line: the template filled in, or all labels where there is none."""
    if not template:
        return "{" + ", ".join(f"{name}={value}" for name, value in labels.items()) + "}"
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], "-"), template)


def filled_in(expr: str) -> str:
    """Put values in the place of Grafana's variables."""
    return re.sub(
        r"\$(datacentre|job|instance|nats_job)\b", ".*", expr.replace("$__rate_interval", f"{RATE_INTERVAL}s")
    )


def ask(url: str, begin: float, end: float, step: float) -> Range:
    """Return a function that asks the Prometheus at ``url`` for a span of time."""

    def query(expr: str) -> list[Series]:
        parameters = {"query": filled_in(expr), "start": f"{begin}", "end": f"{end}", "step": f"{step}"}
        with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(parameters)}") as answer:
            rows = json.load(answer)["data"]["result"]
        return [
            Series(row["metric"], [float(at) for at, _ in row["values"]], [float(value) for _, value in row["values"]])
            for row in rows
        ]

    return query


def draw(board: dict[str, Any], query: Range, target: Path) -> list[str]:
    """Draw a dashboard; return the titles of panels without data."""
    panels = board["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(INCHES_WIDE, height * INCHES_A_ROW), dpi=DPI, facecolor="#f4f5f5")
    empty = []
    for panel in panels:
        at = panel["gridPos"]
        if panel["type"] == "row":
            figure.text(0.006, 1 - (at["y"] + 0.75) / height, panel["title"], fontsize=13, weight="bold")
            continue
        found = [(target, each) for target in panel["targets"] for each in query(target["expr"])]
        if not any(each.values for _, each in found):
            empty.append(panel["title"])
        wide, high = at["w"] / COLUMNS, at["h"] / height
        left, bottom = at["x"] / COLUMNS, 1 - (at["y"] + at["h"]) / height
        inner = (left + 0.032, bottom + 0.24 * high, wide - 0.04, 0.62 * high)
        if panel["type"] == "stat":
            inner = (left + 0.006, bottom + 0.08 * high, wide - 0.012, 0.76 * high)
        figure.text(left + 0.006, bottom + 0.9 * high, panel["title"], fontsize=10, weight="bold")
        DRAWERS[panel["type"]](figure, inner, panel, found)
    figure.savefig(target)
    plt.close(figure)
    return empty


def _timeseries(figure: Any, inner: tuple[float, ...], panel: dict[str, Any], found: list[tuple[Any, Series]]) -> None:
    axes = figure.add_axes(inner, facecolor="white")
    defaults = panel["fieldConfig"]["defaults"]
    custom = defaults["custom"]
    names = [legend(target.get("legendFormat"), each.labels) for target, each in found]
    if custom["stacking"]["mode"] == "normal" and found:
        _stacked(axes, [each for _, each in found], names)
    else:
        for (_, each), name in zip(found, names, strict=True):
            axes.plot(each.times, each.values, linewidth=1, label=name)
            axes.fill_between(each.times, each.values, alpha=custom["fillOpacity"] / 300)
    if not found:
        axes.text(0.5, 0.5, "No data", transform=axes.transAxes, ha="center", color="#8e8e8e")
    # A scale of logarithms has no place for what was never above 0, or never a number.
    positive = any(value > 0 for _, each in found for value in each.values)
    if custom.get("scaleDistribution", {}).get("type") == "log" and positive:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(ticker.LogLocator(10, subs=(1, 2, 5), numticks=6))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    else:
        highest = max((value for _, each in found for value in each.values if value == value), default=0.0)
        soft = custom.get("axisSoftMax", 0)
        axes.set_ylim(bottom=defaults.get("min"), top=soft if highest < soft else None)
        axes.yaxis.set_major_locator(_locator(defaults, axes.get_ylim()[1]))
    _dress(axes, defaults["unit"])
    if names:
        columns = max(1, min(6, int(260 * inner[2] / (max(map(len, names)) + 6))))
        axes.legend(
            loc="upper left", bbox_to_anchor=(0, -0.12), ncols=columns, fontsize=7, frameon=False, handlelength=1,
            columnspacing=1, labelspacing=0.2, borderpad=0,
        )  # fmt: skip


def _locator(defaults: dict[str, Any], top: float) -> Any:
    """Return what chooses the marks of the axis: whole numbers, or powers of two for bytes."""
    if defaults["unit"] == "bytes" and top > 0:
        return ticker.MultipleLocator(2.0 ** math.ceil(math.log2(top / 4)))
    return ticker.MaxNLocator(4, integer=defaults.get("decimals") == 0)


def _stacked(axes: Any, rows: list[Series], names: list[str]) -> None:
    times = sorted({at for each in rows for at in each.times})
    filled = [[dict(zip(each.times, each.values, strict=True)).get(at, 0.0) for at in times] for each in rows]
    axes.stackplot(times, np.nan_to_num(filled), labels=names, alpha=0.4)


def _dress(axes: Any, unit: str) -> None:
    axes.tick_params(labelsize=7, length=2)
    axes.grid(color="#e6e6e6", linewidth=0.6)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.yaxis.set_major_formatter(lambda value, _: shown(value, unit))
    axes.xaxis.set_major_locator(plt.MaxNLocator(4))
    axes.xaxis.set_major_formatter(lambda value, _: time.strftime("%H:%M:%S", time.localtime(value)))


def _stat(figure: Any, inner: tuple[float, ...], panel: dict[str, Any], found: list[tuple[Any, Series]]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    last = next((each.values[-1] for _, each in found if each.values and each.values[-1] == each.values[-1]), None)
    axes = figure.add_axes(inner)
    axes.set_xticks([])
    axes.set_yticks([])
    text = defaults.get("noValue", "-") if last is None else shown(last, defaults["unit"])
    for mapping in defaults.get("mappings", []):
        if last is not None and mapping["type"] == "value":
            text = mapping["options"].get(f"{last:g}", {}).get("text", text)
    colour = "#8e8e8e"
    for step in defaults["thresholds"]["steps"] if last is not None else []:
        if step["value"] is None or last >= step["value"]:
            colour = COLOURS.get(step["color"], step["color"])
    axes.set_facecolor(colour)
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=22, color="white")


def _heatmap(figure: Any, inner: tuple[float, ...], panel: dict[str, Any], found: list[tuple[Any, Series]]) -> None:
    axes = figure.add_axes(inner, facecolor="white")
    rows = sorted((each for _, each in found), key=lambda each: float(each.labels["le"].replace("+Inf", "inf")))
    if rows:
        times = sorted({at for each in rows for at in each.times})
        counts = np.array(
            [[dict(zip(each.times, each.values, strict=True)).get(at, 0.0) for at in times] for each in rows]
        )
        alone = np.diff(counts, axis=0, prepend=0)
        axes.pcolormesh(times, range(len(rows)), np.ma.masked_less_equal(alone, 0), cmap="YlOrRd", shading="nearest")
        axes.set_yticks(range(len(rows)), [each.labels["le"] for each in rows])
    axes.tick_params(labelsize=6, length=2)
    axes.xaxis.set_major_formatter(lambda value, _: time.strftime("%H:%M:%S", time.localtime(value)))


DRAWERS = {"timeseries": _timeseries, "stat": _stat, "heatmap": _heatmap}


def sheets(query: Range, out: Path) -> None:
    """Draw all dashboards into a directory, and say which panels are empty."""
    out.mkdir(parents=True, exist_ok=True)
    for path in BOARDS:
        target = out / f"{path.stem}.png"
        empty = draw(json.loads(path.read_text()), query, target)
        print(f"{target} ({target.stat().st_size // 1024} KiB)" + (f", no data: {', '.join(empty)}" if empty else ""))


async def _of_its_own(seconds: float, out: Path) -> None:
    async with loaded_prometheus(seconds) as (url, began):
        await asyncio.to_thread(sheets, ask(url, began, time.time(), SCRAPE_EVERY), out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(".data/contact-sheets"))
    parser.add_argument("--seconds", type=float, default=150.0, help="how long its own installation is loaded")
    parser.add_argument("--prometheus", help="draw what this one has instead")
    parser.add_argument("--minutes", type=float, default=60.0, help="how far back, with --prometheus")
    options = parser.parse_args()
    if options.prometheus:
        end = time.time()
        step = max(SCRAPE_EVERY, options.minutes * 60 / 200)
        sheets(ask(options.prometheus.rstrip("/"), end - options.minutes * 60, end, step), options.out)
    else:
        asyncio.run(_of_its_own(options.seconds, options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
