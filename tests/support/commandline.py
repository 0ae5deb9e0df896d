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
