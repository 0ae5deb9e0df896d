"""The diagnosis of a runbook, run as it stands there: shell commands, questions to Prometheus, log lines."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

RUNBOOKS = Path(__file__).resolve().parents[1] / "runbooks"
USUAL_DOOR, USUAL_MONITOR = "http://127.0.0.1:8080", "http://127.0.0.1:8222"
"""Where the runbooks' examples expect the instance, and the monitoring of its NATS server."""
PATIENCE = 90.0
"""Seconds that one command may take."""
_BLOCK = re.compile(r"```(sh|promql)\n(.*?)```", re.DOTALL)
_LOG_NAME = re.compile(r"`([a-z_]+)`(?= (?:in the log lines|says that|and `))")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Step(NamedTuple):
    """One thing that a diagnosis says to do: ``kind`` is ``sh``, ``promql`` or ``log``; ``text`` stands in the book."""

    kind: str
    text: str


class Evidence(NamedTuple):
    """What a runbook must show: the step of ``book`` whose text begins with ``step``, and a pattern of its output."""

    book: str
    step: str
    shows: str


def diagnosis(book: str) -> list[Step]:
    """Return the steps of a runbook's diagnosis, in order; log lines last."""
    text = (RUNBOOKS / f"{book}.md").read_text()
    part = text.split("## Diagnosis", 1)[1].split("## Mitigation", 1)[0]
    steps = []
    for kind, block in _BLOCK.findall(part):
        steps += [Step(kind, line) for line in (block.splitlines() if kind == "sh" else [block]) if line.strip()]
    told = [Step("log", name) for name in dict.fromkeys(_LOG_NAME.findall(_BLOCK.sub("", part)))]
    return [Step(kind, text.strip()) for kind, text in [*steps, *told]]


def step_of(evidence: Evidence) -> Step:
    """Return the step that an evidence names. Raises ``LookupError`` when the runbook has no such step, or several."""
    found = [step for step in diagnosis(evidence.book) if step.text.startswith(evidence.step)]
    if len(found) != 1:
        raise LookupError(f"{evidence.book} has {len(found)} steps that begin with {evidence.step!r}")
    return found[0]


async def run(command: str, door: str, env: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Run a command of a runbook at the instance ``door``; return all it prints.

    ``names`` says what stands for what in the book: addresses, SESSION.
    """
    for name, value in names.items():
        command = command.replace(name, value)
    words = shlex.split(command)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**_clean(), **env, "PATH": path, "RINGMERE_SERVER": door, "COLUMNS": "160"},
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode(errors="replace")


def log_lines(log: Path, name: str) -> str:
    """Return the lines of an instance's log that have a name, as they were written."""
    lines = _COLOURS.sub("", log.read_text(errors="replace")).splitlines()
    return "\n".join(line for line in lines if re.search(rf"\b{name}\b", line))


def _clean() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("RINGMERE_", "NATS_"))}
