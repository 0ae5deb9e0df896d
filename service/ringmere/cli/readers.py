"""``ringmere readers``: who is behind, and how far."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ringmere.cli.flags import DEFAULT_SERVER, Json, Server
from ringmere.client.readers import list_readers


def readers(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 20,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Show the readers that are furthest behind, of all sessions, on the instance that answers."""
    found = asyncio.run(list_readers(server, limit))
    if as_json:
        for row in found:
            typer.echo(json.dumps(row))
        return
    if not found:
        typer.echo("nobody is behind")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = {title: cell for title, cell in COLUMNS.items() if title != "worker" or "worker" in found[0]}
    for title in shown:
        table.add_column(title)
    for row in found:
        table.add_row(*(cell(row) for cell in shown.values()))
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPED
    console.print(table)


PIPED = 200
"""Columns of a line that no terminal shows, so that a row stays one line."""

COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "session": lambda row: str(row["sessionId"]),
    "behind": lambda row: f"{row['behindSeconds']:.1f} s" if "behindSeconds" in row else "",
    "events": lambda row: "?" if row.get("behindEvents") is None else str(row["behindEvents"]),
    "queued": lambda row: f"{row['backlogEvents']}/{row['maxQueued']}",
    "bytes": lambda row: str(row["backlogBytes"]),
    "warned": lambda row: "yes" if row["warned"] else "",
    "evicted before": lambda row: str(row.get("sessionEvictions", "")),
    "state": lambda row: str(row["state"]),
    "client": lambda row: row.get("client") or "",
    "worker": lambda row: str(row["worker"]),
}
