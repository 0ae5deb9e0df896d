"""What the docs name exists: routes, commands, flags, targets, files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmere.http.app import ROUTES
from ringmere.http.page import FILES
from ringmere.settings import rows as settings
from ringmere.telemetry.table import rows as metrics
from support.commandline import flags, parse

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL = ROOT / "service" / "PROTOCOL.md"
README = (ROOT / "README.md").read_text()
MANUAL = sorted((ROOT / "service" / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("service/*.md")), *MANUAL]
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


@pytest.mark.parametrize(
    "words",
    [c for page in (ROOT / "README.md", *MANUAL) for c in commands(page.read_text()) if c[0] == "ringmere"],
    ids=" ".join,
)
def test_a_command_in_the_readme_or_the_manual_is_one_that_the_program_takes(words: list[str]) -> None:
    parse(words)


def test_a_command_that_the_program_does_not_take_is_noticed() -> None:
    for line in (
        "dance",
        "doctor --colour",
        "publish",
        "epoch bump",
        "bench --sessions many",
        "doctor --health --nats-url x",
    ):
        with pytest.raises(Exception, match=r"."):
            parse(["ringmere", *line.split()])


@pytest.mark.parametrize("page", [ROOT / "README.md", *MANUAL], ids=lambda page: page.stem)
def test_each_make_target_that_a_page_names_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE))
    assert named <= targets
    assert named or page in MANUAL


@pytest.mark.parametrize("page", MANUAL, ids=lambda page: page.stem)
def test_the_manual_names_flags_variables_metrics_and_routes_that_exist(page: Path) -> None:
    """Flags are looked for in sentences; those of a command are held to its own parser, or to the script itself."""
    text = page.read_text()
    sentences = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    here = {flag for quoted in re.findall(r"`([^`]+)`", sentences) for flag in re.findall(r"(?<!\S)--[a-z-]+", quoted)}
    foreign = {"--no-deps", "--build", "--wait", "--signal"}
    scripts = set(re.findall(r"--[a-z-]+", "".join(path.read_text() for path in (ROOT / "ops").rglob("*.py"))))
    assert here - flags() - foreign - scripts == set()
    variables = {f"RINGMERE_{row.name.upper()}" for row in settings()}
    streams = r"(?:KV_)?RINGMERE_(?:HEAD_)?(?:\d|EPOCHS|PURGES|SNAPSHOTS|CONTROL)"
    assert set(re.findall(r"(?<!\w)(?:KV_)?RINGMERE_\w+", re.sub(streams, "", text))) <= variables
    series = {re.sub(r"_(?:bucket|sum|count)$", "", name) for name in re.findall(r"\bringmere_[a-z_]+", text)}
    assert series <= {row.name for row in metrics()}
    assert set(re.findall(r"`(GET|HEAD|POST|PUT|DELETE) (/[^`?]*)`", text)) <= API


@pytest.mark.parametrize("page", MANUAL, ids=lambda page: page.stem)
def test_each_script_that_the_manual_runs_exists_and_has_the_flags(page: Path) -> None:
    for words in commands(page.read_text()):
        if words[0] != "python":
            continue
        script = ROOT / (words[2].replace(".", "/") + ".py" if words[1] == "-m" else words[1])
        if not script.exists():
            script = script.with_suffix("") / "__main__.py"
        assert {word for word in words[2:] if word.startswith("--")} <= set(
            re.findall(r"--[a-z-]+", script.read_text())
        )


def test_the_readme_leads_to_each_page_of_the_manual() -> None:
    assert MANUAL
    for page in MANUAL:
        assert f"(service/docs/{page.name})" in README, page.name


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_link_to_a_file_leads_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text()):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(file), f"{page.name}: {target}#{anchor}"
