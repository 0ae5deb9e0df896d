"""What the docs name exists: routes, commands, flags, targets, files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ringmere.cli.app import app
from ringmere.http.app import ROUTES
from ringmere.http.page import FILES

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL = ROOT / "service" / "PROTOCOL.md"
README = (ROOT / "README.md").read_text()
API = {(method, path) for method, path, _ in ROUTES if path not in FILES}


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each shell command in the text's fenced blocks."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("#"):
                yield shlex.split(line)


def test_the_readme_names_each_route_and_no_other() -> None:
    assert set(re.findall(r"`(GET|HEAD|POST|PUT|DELETE) (/[^`?]*)`", README)) == API


@pytest.mark.skipif(not PROTOCOL.exists(), reason="there is no PROTOCOL.md")
def test_the_protocol_page_names_each_route() -> None:
    text = PROTOCOL.read_text()
    assert {path for _, path in API if path not in text} == set()


@pytest.mark.parametrize("words", [c for c in commands(README) if c[0] == "ringmere"], ids=" ".join)
def test_a_command_in_the_readme_has_the_flags_it_is_given(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known


def test_each_make_target_in_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"make ([a-z]+)", README)) - {"it"}
    assert named
    assert named <= targets


def test_each_link_to_a_file_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *ROOT.glob("service/*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
