"""Writes the record from what was kept of each fault: ``ops/runbooks/GAMEDAY.md`` below its mark."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops.gameday.drills import DRILLS, Drill
from ops.gameday.scaled import alerts

from ringmere import __version__
from ringmere.embedded import server_binary

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "ops" / "runbooks" / "GAMEDAY.md"
MARK = "<!-- from here on written by `python -m ops.gameday` -->\n"
FIRST_DAY = "first-day"
"""The name under which the first section's figures are kept."""


def circumstances() -> dict[str, str]:
    """Return when and with what a fault is put in."""
    return {
        "ringmere": f"{__version__}, revision {_said('git', '-C', str(ROOT), 'rev-parse', '--short', 'HEAD')}",
        "nats-server": _said(server_binary(), "--version").split()[-1],
        "prometheus": _said("prometheus", "--version").split()[2],
        "python": platform.python_version(),
    }


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).strip()


def write(kept: Path) -> None:
    """Put what is in the directory ``kept`` in the place of what stood below the mark."""
    found = {path.stem: json.loads(path.read_text()) for path in kept.glob("*.json")}
    head, _, _ = RECORD.read_text().partition(MARK)
    RECORD.write_text(head + MARK + "\n" + "\n".join(rendered(found)).rstrip() + "\n")


def rendered(found: Mapping[str, Any]) -> list[str]:
    """Return the lines of the record for what was found, by name of the fault."""
    lines = []
    if FIRST_DAY in found:
        lines += _first_day(found[FIRST_DAY])
    done = [(drill, found[drill.name]) for drill in DRILLS if drill.name in found]
    lines += _overview(done)
    for drill, what in done:
        lines += _fault(drill, what)
    return lines


def _made(what: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in what["versions"].items())
    return f"{what['date']} UTC; {versions}; load average {what['load']} at the begin"


def _first_day(what: Mapping[str, Any]) -> list[str]:
    lines = [
        "## From nothing to a filled dashboard, by the README alone", "", f"*{_made(what)}*", "",
        "| step | typed | s |", "| --- | --- | ---: |",
    ]  # fmt: skip
    lines += [f"| {name} | `{_cell(command)}` | {seconds:.1f} |" for name, command, seconds in what["steps"]]
    network = sum(seconds for name, _, seconds in what["steps"] if "network" in name)
    rest = sum(seconds for _, _, seconds in what["steps"]) - network
    lines += ["", f"In all {rest:.0f} s, and {network:.0f} s for packages.", ""]
    lines += ["| dashboard | panels | with data | without |", "| --- | ---: | ---: | --- |"]
    for name, board in what["boards"].items():
        empty = ", ".join(board["empty"]) or "–"
        lines.append(f"| {name} | {board['panels']} | {board['panels'] - len(board['empty'])} | {empty} |")
    left = ", ".join(what["left"]) or "nothing that git would see"
    return [*lines, "", f"It left in the clone: {left}.", ""]


def _overview(done: list[tuple[Drill, Any]]) -> list[str]:
    lines = ["## Faults", "", "| fault | alerts that fired | lost | twice | out of order | told to resync |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for drill, what in done:
        readers = what["readers"]
        counts = [readers["lost"], readers["duplicated"], readers["outOfOrder"], sum(readers["resyncs"].values())]
        fired = ", ".join(short(name) for name in _fired(what)) or "none"
        lines.append(f"| [{drill.title}](#{anchor(drill.title)}) | {fired} | " + " | ".join(map(str, counts)) + " |")
    lines += ["", "| alert | fired in |", "| --- | --- |"]
    for rule in alerts():
        where = [drill.title for drill, what in done if rule["alert"] in _fired(what)]
        lines.append(f"| {rule['alert']} | {'; '.join(where) or 'not covered'} |")
    return [*lines, ""]


def _fault(drill: Drill, what: Mapping[str, Any]) -> list[str]:
    lines = [
        f"### {drill.title}", "", f"*{_made(what)}; factor {what['factor']:g}*", "",
        f"- put in: {drill.injected}", f"- ended after {what['ended']:.0f} s: {drill.ended}", "",
    ]  # fmt: skip
    lines += _times(what)
    fired = _fired(what)
    for name in dict.fromkeys(one["book"] for one in what["shown"]):
        lines += [f"[{name}]({name}.md) says to ask, and is told:" if name in fired else
                  f"No alert fires; what [{name}]({name}.md) says to ask shows it all the same:", ""]  # fmt: skip
        for one in what["shown"]:
            if one["book"] == name:
                prompt = {"sh": "$ ", "promql": "promql> ", "log": "log lines: "}[one["kind"]]
                lines += ["```text", f"{prompt}{' '.join(one['step'].split())}", *one["lines"], "```", ""]
    return [*lines, _of_readers(what["readers"]), ""]


def _times(what: Mapping[str, Any]) -> list[str]:
    lines = ["| alert | pending s | firing s | over s |", "| --- | ---: | ---: | ---: |"]
    names = list(dict.fromkeys(alert for _, alert, _ in what["changes"]))
    for name in names:
        at = {state: [when for when, alert, now in what["changes"] if (alert, now) == (name, state)]
              for state in ("pending", "firing", "over")}  # fmt: skip
        lines.append(f"| {name} | " + " | ".join(_moments(at[state]) for state in at) + " |")
    if not names:
        lines = ["No alert stirred."]
    others = [short(rule["alert"]) for rule in alerts() if rule["alert"] not in _fired(what)]
    return [*lines, "", f"Did not fire: {', '.join(others)}.", ""]


def _moments(times: list[float]) -> str:
    return ", ".join(f"{time:.1f}" for time in times) or "–"


def _of_readers(readers: Mapping[str, Any]) -> str:
    resyncs = ", ".join(f"{count} {reason}" for reason, count in readers["resyncs"].items()) or "none"
    return (
        f"Readers: {readers['delivered']:,} of {readers['due']:,} deliveries; {readers['lost']} lost, "
        f"{readers['duplicated']} twice, {readers['outOfOrder']} out of order; resyncs: {resyncs} "
        f"({readers['toldLost']} events told as lost); longest silence {readers['longestSilence']:.1f} s. Publishers: "
        f"{readers['sent']:,} events, {readers['acknowledged']:,} acknowledged, {readers['notStored']} told "
        f"not stored, {readers['unconfirmed']} unconfirmed."
    )


def _fired(what: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(alert for _, alert, state in what["changes"] if state == "firing"))


def short(alert: str) -> str:
    """Return an alert's name without what all of them begin with."""
    return alert.removeprefix("Ringmere")


def anchor(title: str) -> str:
    """Return what a heading is linked by."""
    return "".join(char for char in title.lower().replace(" ", "-") if char.isalnum() or char == "-")


def _cell(command: str) -> str:
    return " ".join(command.split()).replace("|", "\\|")
