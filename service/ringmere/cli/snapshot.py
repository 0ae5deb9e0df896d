"""``ringmere snapshot``: the stored state of a session."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ringmere.cli.flags import DEFAULT_SERVER, Json, Server
from ringmere.client.snapshot import drop_snapshot, get_snapshot, put_snapshot
from ringmere.core.errors import InvalidSnapshot, SnapshotNotFound
from ringmere.core.strict_json import load

app = typer.Typer(help="The stored state of a session.", no_args_is_help=True)

Session = Annotated[str, typer.Argument(help="The session.")]


@app.command("get")
def get(session: Session, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Print the stored state; with --json all that is known of it."""
    found = asyncio.run(get_snapshot(server, session))
    if found is None:
        raise SnapshotNotFound(f"session {session} has no snapshot")
    typer.echo(json.dumps(found._asdict() if as_json else found.state, ensure_ascii=False))
    if not as_json:
        final = ", final" if found.final else ""
        print(f"ringmere: covers everything up to {found.last_event_id}{final}", file=sys.stderr)


@app.command("put")
def put(
    session: Session,
    last_event_id: Annotated[
        int, typer.Option("--last-event-id", min=0, help="The last event that the state covers; 0 is none.")
    ],
    file: Annotated[Path | None, typer.Option("--file", help="Where the state is, as JSON; else stdin.")] = None,
    final: Annotated[bool, typer.Option("--final", help="Nothing is to come behind it.")] = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Store a state, as JSON from a file or stdin."""
    body = sys.stdin.buffer.read() if file is None else file.read_bytes()
    if not body.strip():
        raise InvalidSnapshot("there is no state: it is read from --file or stdin")
    asyncio.run(put_snapshot(server, session, last_event_id, load(body), final=final))


@app.command("rm")
def rm(session: Session, server: Server = DEFAULT_SERVER) -> None:
    """Remove the stored state, if there is one."""
    asyncio.run(drop_snapshot(server, session))
