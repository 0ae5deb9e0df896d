"""From nothing to dashboards with data, by the commands of the README and nothing else, timed.

    python -m ops.gameday --first-day

takes a fresh clone of this repository into a temporary directory and types there what the README says, with its own
ports (8080 and 9090, which must be free). What comes from package registries is timed apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ops.gameday.watch import GamedayError

ROOT = Path(__file__).resolve().parents[2]
GATEWAY, PROMETHEUS = "http://127.0.0.1:8080", "http://127.0.0.1:9090"
INSTALLED_WITHIN, STEP_WITHIN = 600.0, 120.0
LOADED_FOR = 150.0
"""Seconds that dashboards are looked at: the load of the README, and what comes of its end."""
OWN = ("overview", "session-delivery")
"""Dashboards of an instance's own metrics."""
RATE_INTERVAL = "1m"
"""What Grafana takes rates over when its data source was told nothing (four times 15 s)."""
_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def commands(heading: str) -> list[str]:
    """Return the commands of the README's section, one a line of its shell blocks, as they are written."""
    text = (ROOT / "README.md").read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = "\n".join(_BLOCK.findall(text)).replace("\\\n", " ")
    return [line.strip() for line in blocks.splitlines() if line.strip()]


def one(found: list[str], beginning: str) -> str:
    """Return the command that begins like that. Raises :class:`GamedayError` when the README has none."""
    for command in found:
        if command.startswith(beginning):
            return command
    raise GamedayError(f"the README has no command that begins with {beginning!r}")


class Typist:
    """Types commands in the clone at ``place``; ``steps`` are what was typed and how many seconds each took."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.steps: list[tuple[str, str, float]] = []
        self._left: list[subprocess.Popen[bytes]] = []
        self._outputs = 0

    def begin(self, command: str) -> Path:
        """Start a command that goes on; return the file that it prints to."""
        self._outputs += 1
        output = self.place.parent / f"output-{self._outputs}"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                command, shell=True, cwd=self.place, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                start_new_session=True, env=self._environment(),
            )  # fmt: skip
        self._left.append(process)
        return output

    def run(self, command: str) -> str:
        """Run a command to its end; return what it printed. Raises :class:`GamedayError` when it fails."""
        done = subprocess.run(
            command, shell=True, cwd=self.place, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=STEP_WITHIN, check=False, env=self._environment(),
        )  # fmt: skip
        if done.returncode:
            raise GamedayError(f"{command!r} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def timed(self, what: str, command: str) -> Iterator[None]:
        """Time a step."""
        began = time.monotonic()
        yield
        self.steps.append((what, command, time.monotonic() - began))
        print(f"  {self.steps[-1][2]:6.1f} s  {what}", flush=True)

    def stop(self) -> None:
        """End all that goes on, the last one first."""
        for process in reversed(self._left):
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                    break

    def _environment(self) -> dict[str, str]:
        """``source .venv/bin/activate``, in a shell that knows nothing of another environment."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RINGMERE_", "NATS_", "PYTHON"))}
        kept.pop("VIRTUAL_ENV", None)
        mine = str(Path(sys.prefix) / "bin")
        path = [each for each in kept["PATH"].split(os.pathsep) if each != mine]
        return {**kept, "PATH": os.pathsep.join([str(self.place / ".venv" / "bin"), *path])}


def wait(condition: Callable[[], bool], what: str, within: float = STEP_WITHIN) -> None:
    """Wait until ``condition()`` holds. Raises :class:`GamedayError`."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise GamedayError(f"not within {within:g} s: {what}")
        time.sleep(0.1)


def status(url: str) -> int:
    """Return the status of a GET, 0 when nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def first_day() -> dict[str, Any]:
    """Follow the README in a fresh clone; return the steps and what the dashboards then had."""
    for port in (8080, 9090):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise GamedayError(f"port {port} is taken: the README's commands cannot be typed as they are")
    with tempfile.TemporaryDirectory() as directory:
        typist = Typist(Path(directory) / "ringmere")
        try:
            _stream(typist)
            boards = _watch(typist)
        finally:
            typist.stop()
        left = typist.run("git status --short")
    return {"steps": typist.steps, "boards": boards, "left": left.splitlines()}


def _stream(typist: Typist) -> None:
    found = commands("Sixty seconds to a stream")
    with typist.timed("a fresh clone", "git clone"):
        subprocess.run(["git", "clone", "-q", str(ROOT), str(typist.place)], check=True)
    make = one(found, "make run")
    with typist.timed("packages from PyPI are in a virtual environment (network)", make):
        typist.begin(make)
        wait((typist.place / ".venv" / ".installed").exists, "packages are installed", INSTALLED_WITHIN)
    with typist.timed("the service is ready", make):
        wait(lambda: status(f"{GATEWAY}/readyz") == 200, "the service is ready")
    follow, publish = one(found, "curl -N"), one(found, f"curl {GATEWAY}")
    with typist.timed("an event published by curl is seen by a reader", publish):
        output = typist.begin(follow)
        typist.run(publish)
        wait(lambda: b"hello" in output.read_bytes(), "the reader sees it")
    tail, turn = one(found, "ringmere tail demo"), one(found, "ringmere publish demo --file")
    with typist.timed("the command line follows and publishes", tail):
        output = typist.begin(tail)
        typist.run(one(found, "ringmere publish demo --type"))
        wait(lambda: output.read_bytes().count(b"hello") == 2, "both events are shown")
    with typist.timed("an agent's turn is published at its own pace", turn):
        typist.run(turn)
    [resume] = [each for each in found if "last-event-id" in each]
    with typist.timed("a reader goes on behind event 1", resume):
        output = typist.begin(resume)
        wait(lambda: b"\nid: 2\n" in output.read_bytes(), "it gets event 2")
    if "demo" not in typist.run(one(found, "ringmere sessions ls")):
        raise GamedayError("the session is not listed")


def _watch(typist: Typist) -> dict[str, dict[str, Any]]:
    found = commands("Watch it")
    watch, load = one(found, "prometheus "), one(found, "ringmere bench ")
    with typist.timed("Prometheus has scraped it", watch):
        typist.begin(watch)
        wait(lambda: bool(asked('up{job="ringmere"} == 1')), "Prometheus has scraped the instance")
    typist.begin(load)
    began = time.monotonic()
    filled: dict[tuple[str, str], float] = {}
    while (at := time.monotonic() - began) < LOADED_FOR:
        for board, title in showing():
            filled.setdefault((board, title), at)
        time.sleep(1)
    last = max(when for (board, _), when in filled.items() if board in OWN)
    typist.steps.append(("the last panel of its own metrics has data, under a load", load, last))
    return {
        board: {"panels": len(titles), "empty": [title for title in titles if (board, title) not in filled]}
        for board, titles in all_titles().items()
    }


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each panel of each dashboard that shows something, with the dashboard's name."""
    for path in sorted((ROOT / "grafana" / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            if panel["type"] != "row":
                yield path.stem, panel


def all_titles() -> dict[str, list[str]]:
    """Return the titles of all panels by dashboard."""
    found: dict[str, list[str]] = {}
    for board, panel in panels():
        found.setdefault(board, []).append(panel["title"])
    return found


def showing() -> set[tuple[str, str]]:
    """Ask every expression of every dashboard; return which panels have data now, as dashboard and title."""
    return {
        (board, panel["title"]) for board, panel in panels() if any(asked(each["expr"]) for each in panel["targets"])
    }


def asked(expr: str) -> list[float]:
    """Return the values of an expression now, without those that are no number; nothing while nobody answers."""
    expr = re.sub(r"\$(datacentre|job|instance|nats_job)\b", ".*", expr.replace("$__rate_interval", RATE_INTERVAL))
    try:
        with urllib.request.urlopen(f"{PROMETHEUS}/api/v1/query?{urllib.parse.urlencode({'query': expr})}") as answer:
            result = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        # It has only just begun.
        return []
    except OSError:
        return []
    values = [float(row["value"][1]) for row in result]
    return [value for value in values if value == value]
