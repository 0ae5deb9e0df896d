"""Commands that run for a while: a line that says where they are, signals that end them, a report at the end."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ringmere.process import Stop

LOOK = 0.25
"""Seconds between two looks at what runs."""

Result = TypeVar("Result", covariant=True)


class Round(Protocol[Result]):
    """What can be watched; setting ``stop`` ends it early, and in order."""

    stop: asyncio.Event

    async def run(self) -> Result:
        """Run to the end."""


class Told(Protocol):
    """A report that says of itself whether it is good."""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""

    def problems(self) -> list[str]:
        """Return what is wrong, a phrase each."""

    def lines(self) -> Sequence[tuple[str, str]]:
        """Return a label and a text each, for people."""

    def as_object(self) -> dict[str, Any]:
        """Return one JSON object."""


async def watched(what: Round[Result], stop: Stop, as_json: bool, progress: Callable[[], str]) -> Result:
    """Run it; show where it is on a terminal. One signal ends it in order, a second at once."""
    running = asyncio.create_task(what.run())
    console = Console(stderr=True)
    live = Live(console=console, transient=True, auto_refresh=False)
    shown = console.is_terminal and not as_json
    if shown:
        live.start()
    try:
        while not running.done():
            if stop.asked.is_set():
                what.stop.set()
            if stop.now.is_set():
                running.cancel()
            if shown:
                live.update(Text(progress(), overflow="ellipsis", no_wrap=True), refresh=True)
            await asyncio.wait({running}, timeout=LOOK)
    finally:
        if shown:
            live.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return running.result()


def print_report(report: Told, as_json: bool, praise: str) -> None:
    """Print a report as one JSON object, or as a table whose last row is the verdict: ``praise`` or what is wrong."""
    if as_json:
        print(json.dumps(report.as_object()))
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, text in report.lines():
        table.add_row(label, Text(text))
    verdict = praise if report.good else "; ".join(report.problems())
    table.add_row("verdict", Text(verdict, style="bold green" if report.good else "bold red"))
    Console(soft_wrap=not sys.stdout.isatty()).print(table)
