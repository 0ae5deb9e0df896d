"""Command lines as docs write them, held to the parser that will read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer.main

from ringmere.cli import health
from ringmere.cli.app import app


def parse(words: Sequence[str]) -> None:
    """Parse ``ringmere …`` without running it; raises for a command, flag, argument or value that cannot be."""
    assert words[0] == "ringmere"
    if health.is_health_check(words[1:]):
        health.parse(words[2:])
        return
    command: Any = typer.main.get_command(app)
    rest = list(words[1:])
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context("ringmere", rest)


def flags() -> set[str]:
    """Return the flags of all commands."""
    found: set[str] = set()
    waiting: list[Any] = [typer.main.get_command(app)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        found.update(name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts))
    return found | {"--health", "--live"}
