"""``ringmere settings``: every setting, its value here and now, and where that comes from."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ringmere.cli.flags import Json
from ringmere.settings import load
from ringmere.settings.show import effective, markdown


def settings(
    as_json: Json = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="The README's table.")] = False,
) -> None:
    """Show every setting: its value, where it comes from, and what it may be.

    Flags of `ringmere serve` win over variables, variables over defaults.
    """
    if as_markdown:
        typer.echo(markdown())
        return
    loaded = load({}, os.environ)
    for wrong, meant in loaded.misspelt.items():
        print(f"ringmere: {wrong} is no setting; did you mean {meant}?", file=sys.stderr)
    if as_json:
        for item in effective(loaded):
            typer.echo(json.dumps(item, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("setting", "value", "from", "allowed", "meaning"):
        table.add_column(title, overflow="fold")
    group = ""
    for item in effective(loaded):
        if item["group"] != group:
            group = item["group"]
            table.add_row(f"[bold]{group}[/bold]", end_section=False)
        name = item["flag"] or item["variable"]
        table.add_row(name, item["value"], item["source"], item["allowed"], item["help"])
    Console().print(table)
