"""The systemd unit: what systemd says of it, and the service under its filter, its user and its read-only system."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ringmere.embedded import free_port
from ringmere.settings import load, rows
from ringmere.settings.kinds import DURATION
from support.jail import PATH, inside, jailed, needs_jail, placed, system
from support.manager import Manager, manager
from support.talk import get, numbers, open_stream, publish
from support.unit import PLACE, ROOT, UNIT, service

LONG = 60.0
HIGHEST_EXPOSURE = 15
"""Tenths of what `systemd-analyze security` may find: 0 is a service that can do nothing, 100 one that can do all."""
SOCKET = f"@ringmere-{secrets.token_hex(8)}"
"""A name that is no file: the service sees none of the test's directories."""
NOBODY = (61234, 61234)
"""A user that no file belongs to, like those that systemd makes up."""
STATE = "/var/lib/ringmere"
PROGRAM = Path(sys.executable).with_name("ringmere")
SETTINGS = service()
EXAMPLE = (PLACE / "ringmere.env.example").read_text()
ROWS = {row.variable: row for row in rows()}
ANALYZE = shutil.which("systemd-analyze")

pytestmark = pytest.mark.timeout(300)
needs_systemd = pytest.mark.skipif(
    ANALYZE is None and os.environ.get("CI") != "true", reason="there is no systemd-analyze; .ci/run installs it"
)


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run([ANALYZE, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit as it would be where the program is the one of this test."""
    copy = tmp_path / UNIT.name
    copy.write_text(
        UNIT.read_text().replace("/opt/ringmere/bin/ringmere", str(Path(sys.executable).parent / "ringmere"))
    )
    return copy


@needs_systemd
def test_systemd_knows_every_line(installed: Path) -> None:
    done = analyze("verify", "--man=no", installed)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_systemd_finds_it_well_fenced(installed: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={HIGHEST_EXPOSURE}", installed)
    assert done.returncode == 0, done.stdout


def test_the_end_has_time_for_goodbyes_and_reaches_only_the_main_process() -> None:
    grace = ROWS["RINGMERE_DRAIN_GRACE"].default
    assert DURATION.parse(SETTINGS["TimeoutStopSec"][0]) >= grace + 10
    assert SETTINGS["KillMode"] == ["mixed"]


def test_it_is_started_again_unless_it_says_that_this_cannot_help() -> None:
    assert SETTINGS["Restart"] == ["on-failure"]
    assert SETTINGS["RestartPreventExitStatus"] == ["2"]
    assert "StartLimitIntervalSec=0" in UNIT.read_text().splitlines()
    assert SETTINGS["TimeoutStartSec"] == ["infinity"]


def examples() -> dict[str, str]:
    return dict(re.findall(r"^#?([A-Z_]+)=(.*)$", EXAMPLE, re.MULTILINE))


def test_every_variable_of_the_example_is_a_setting() -> None:
    assert set(examples()) <= set(ROWS)
    assert SETTINGS["EnvironmentFile"] == ["-/etc/ringmere/ringmere.env"]


def test_what_is_commented_out_in_the_example_is_the_default_and_what_is_not_can_be_loaded() -> None:
    for name, value in re.findall(r"^#([A-Z_]+)=(.+)$", EXAMPLE, re.MULTILINE):
        row = ROWS[name]
        assert row.default is None or row.kind.parse(value) == row.default or name == "RINGMERE_NATS_USER", name
    given = dict(re.findall(r"^([A-Z_]+)=(.*)$", EXAMPLE, re.MULTILINE))
    assert load({}, given).misspelt == {}


def environ(**more: str) -> dict[str, str]:
    """Return what systemd gives the service, from the unit's own lines."""
    words = [word for value in SETTINGS["Environment"] for word in value.split()]
    own = dict(word.replace("%S/ringmere", STATE).split("=", 1) for word in words)
    return {"PATH": PATH, **own, **more}


class Unit:
    """The service as systemd would run it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, url: str) -> None:
        self.process = process
        self.log = log
        self.url = url

    async def signal(self, number: signal.Signals) -> None:
        """Send a signal to the main process alone, as ``KillMode=mixed`` does."""
        os.kill(await inside(self.process), number)

    async def ended(self) -> int:
        """Return the exit code."""
        return await asyncio.wait_for(self.process.wait(), LONG)


def confined(tmp_path: Path, command: Sequence[str], variables: dict[str, str]) -> list[str]:
    """Return what runs a command under the unit's filter, as its user, on a system that it cannot change."""
    state = tmp_path / "state"
    if not state.exists():
        state.mkdir(mode=0o700)
        os.chown(state, *NOBODY)
    flags = [
        *system(Path(sys.prefix), ROOT / "service", ROOT / "tests", PLACE),
        *placed(state, "/var/lib/ringmere", writable=True),
    ]
    words = [sys.executable, "-m", "support.unit", str(UNIT), *command]
    variables = {**variables, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'service'}"}
    return jailed(words, flags, variables, NOBODY, STATE)


@asynccontextmanager
async def running(tmp_path: Path, systemd: Manager, **more: str) -> AsyncIterator[Unit]:
    """Run the unit's ExecStart until the block ends."""
    [line] = SETTINGS["ExecStart"]
    _, *arguments = line.split()
    listen = f"127.0.0.1:{free_port()}"
    variables = environ(RINGMERE_LISTEN=listen, RINGMERE_DRAIN_GRACE="1s", **systemd.env, **more)
    log = tmp_path / "log"
    with log.open("ab") as sink:
        process = await asyncio.create_subprocess_exec(
            *confined(tmp_path, [str(PROGRAM), *arguments], variables),
            stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink,
        )  # fmt: skip
    try:
        yield Unit(process, log, f"http://{listen}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@needs_jail
@needs_systemd
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_it_serves_says_so_and_ends_in_order_within_the_fences_of_the_unit(tmp_path: Path, workers: str) -> None:
    with manager(SOCKET) as systemd:
        watchdog = int(DURATION.parse(SETTINGS["WatchdogSec"][0]) * 1e6)
        more = {"RINGMERE_EMBEDDED": "true", "RINGMERE_WORKERS": workers, "WATCHDOG_USEC": str(watchdog)}
        async with running(tmp_path, systemd, **more) as unit:
            try:
                assert (await systemd.wait_for("READY"))["STATUS"].startswith(f"serving on {unit.url}")
            except AssertionError as error:
                raise AssertionError(unit.log.read_text()) from error
            assert systemd.said("WATCHDOG")
            assert "uvloop" in unit.log.read_text()
            [id_] = await publish(unit.url, "s", numbers(1))
            stream = await open_stream(unit.url, "s", query="?from=start")
            assert [frame.id for frame in await stream.take(1)] == [id_]
            assert (await get(unit.url, "/metrics")).status == 200
            await unit.signal(signal.SIGTERM)
            assert (await stream.all())[-1].type == "server_draining"
            assert await unit.ended() == 0
            assert systemd.said("STOPPING")
        # Nothing that it needs was kept from it.
        assert not re.search(r"[Nn]ot permitted|denied|file_limit_kept|Read-only", unit.log.read_text())
        assert (tmp_path / "state" / "jetstream").is_dir()


@needs_jail
@needs_systemd
async def test_a_setting_that_cannot_work_ends_with_the_code_that_is_not_started_again(tmp_path: Path) -> None:
    with manager(SOCKET) as systemd:
        async with running(tmp_path, systemd, RINGMERE_REPLICAS="seven") as unit:
            assert await unit.ended() == int(SETTINGS["RestartPreventExitStatus"][0])
            assert "RINGMERE_REPLICAS" in unit.log.read_text()


@needs_jail
@needs_systemd
@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)", "PermissionError"),
        ("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "Address family not supported"),
        ("import os; os.setpriority(os.PRIO_PROCESS, 0, 5)", "PermissionError"),
        ("import os; os.chroot('.')", "PermissionError"),
        ("open('/etc/mine', 'w')", "Read-only file system"),
    ],
    ids=["code", "family", "resources", "privileged", "files"],
)
async def test_the_fences_hold(tmp_path: Path, code: str, refused: str) -> None:
    variables = environ()
    for words in (["-c", "print('free')"], ["-c", code]):
        process = await asyncio.create_subprocess_exec(
            *confined(tmp_path, [sys.executable, *words], variables),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), LONG)
        if words[1] == code:
            assert process.returncode == 1
            assert refused in out.decode()
        else:
            assert (process.returncode, out) == (0, b"free\n")
