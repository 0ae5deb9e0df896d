"""What the docs name exists: routes, commands, flags, targets, files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmere.http.app import ROUTES
from ringmere.http.page import FILES
from support.commandline import parse

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
def test_a_command_in_the_readme_is_one_that_the_program_takes(words: list[str]) -> None:
    parse(words)


def test_a_command_that_the_program_does_not_take_is_noticed() -> None:
    for line in (
        "dance",
        "doctor --colour",
        "tail",
        "epoch bump",
        "bench --sessions many",
        "doctor --health --nats-url x",
    ):
        with pytest.raises(Exception, match=r"."):
            parse(["ringmere", *line.split()])


def test_each_make_target_in_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    assert named
    assert named <= targets


def test_each_link_to_a_file_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *ROOT.glob("service/*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
