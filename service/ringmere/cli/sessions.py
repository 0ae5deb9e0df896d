"""``ringmere sessions``: what the log keeps, and who reads it."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ringmere.cli.clock import date_and_time
from ringmere.cli.flags import DEFAULT_SERVER, Json, Server
from ringmere.cli.purge import close, purge
from ringmere.client.sessions import list_sessions, show_session

app = typer.Typer(help="What the log keeps, and who reads it.", no_args_is_help=True)


@app.command("ls")
def ls(
    prefix: Annotated[str, typer.Option("--prefix", help="Only ids that begin like this.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 1000,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """List the sessions that have events stored, by ascending id."""
    found = asyncio.run(_take(server, prefix, limit))
    if as_json:
        for session in found:
            typer.echo(json.dumps(session))
        return
    table = _table("session", "events", "first id", "last id", "closed", "last event")
    for session in found:
        table.add_row(
            session["sessionId"],
            str(session["events"]),
            str(session["firstEventId"]),
            str(session["lastEventId"]),
            "yes" if session["closed"] else "",
            date_and_time(session["lastEventAt"]),
        )
    Console(soft_wrap=True).print(table)


@app.command()
def show(
    session: Annotated[str, typer.Argument(help="The session.")],
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Show one session: its log, and its readers on the instance that answers."""
    state = asyncio.run(show_session(server, session))
    if as_json:
        typer.echo(json.dumps(state))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    readers = state.pop("readers", [])
    for name, value in state.items():
        table.add_row(name, _shown(name, value))
    console = Console(soft_wrap=True)
    console.print(table)
    if readers:
        console.print()
        console.print(_readers(readers))


app.command()(close)
app.command()(purge)


async def _take(server: str, prefix: str, limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for session in list_sessions(server, prefix):
        found.append(session)
        if len(found) >= limit:
            break
    return found


def _shown(name: str, value: Any) -> str:
    if name.endswith("At"):
        return date_and_time(value)
    return value if isinstance(value, str) else json.dumps(value)


def _readers(readers: list[dict[str, Any]]) -> Table:
    """Return a table of who reads, narrow enough for a terminal; ``--json`` has all there is."""
    table = _table("stream", "client", "state", "last id", "behind", "queued", "age")
    for reader in readers:
        behind = "?" if reader.get("behindEvents") is None else reader["behindEvents"]
        table.add_row(
            str(reader["streamId"])[:8],
            reader.get("client") or "",
            f"{reader['state']}, warned" if reader.get("warned") else reader["state"],
            str(reader["positionId"]),
            f"{behind} / {reader.get('behindSeconds', 0):.1f} s",
            f"{reader['backlogEvents']}/{reader.get('maxQueued', '')}",
            f"{reader['ageSeconds']:.0f} s",
        )
    return table


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title)
    return table
