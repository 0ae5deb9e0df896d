"""``ringmere sessions purge`` and ``close``: an end for one session, or for all with one prefix."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from ringmere.cli.flags import DEFAULT_SERVER, Json, Server
from ringmere.client.sessions import close_session, list_sessions, purge_session
from ringmere.core.errors import InvalidParameter, RingmereError
from ringmere.core.session import check_session_id

AT_ONCE = 4
"""Sessions that are purged at a time."""
SHOWN = 5
"""Ids that are shown of many before one is asked."""

Named = Annotated[list[str] | None, typer.Argument(metavar="SESSION…", help="The sessions.")]


def close(
    sessions: Annotated[list[str], typer.Argument(metavar="SESSION…", help="The sessions.")],
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> int:
    """Publish `session_closed` into each session: its streams end, and clients stop reconnecting."""
    for session in sessions:
        check_session_id(session)
    return asyncio.run(_each(sessions, lambda session: close_session(server, session), "closed", as_json))


def purge(
    sessions: Named = None,
    prefix: Annotated[str | None, typer.Option("--prefix", help="All stored sessions that begin like this.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which they are.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> int:
    """Remove all that is stored of sessions, for good: log, last event, snapshot. Their ids never come again.

    Ends with 1 when one of them could not be purged; the same command again is safe.
    """
    if bool(sessions) == (prefix is not None):
        raise InvalidParameter("which_sessions", "name sessions, or give --prefix: one of the two")
    if prefix == "":
        raise InvalidParameter("empty_prefix", "--prefix must not be empty: that would be every session")
    for session in sessions or [prefix or ""]:
        check_session_id(session)
    chosen = sessions or asyncio.run(_matching(server, prefix or ""))
    if prefix is not None:
        typer.echo(_summary(chosen, prefix), err=True)
    if dry_run:
        for session in chosen:
            typer.echo(json.dumps({"sessionId": session}) if as_json else session)
        return 0
    if chosen and not yes:
        _confirm(chosen)
    return asyncio.run(_each(chosen, lambda session: purge_session(server, session), "purged", as_json))


async def _matching(server: str, prefix: str) -> list[str]:
    return [session["sessionId"] async for session in list_sessions(server, prefix)]


def _summary(chosen: list[str], prefix: str) -> str:
    if not chosen:
        return f"no stored session begins with {prefix}"
    more = ", …" if len(chosen) > SHOWN else ""
    number = "1 session begins" if len(chosen) == 1 else f"{len(chosen)} sessions begin"
    return f"{number} with {prefix}: {', '.join(chosen[:SHOWN])}{more}"


def _confirm(chosen: list[str]) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidParameter("not_confirmed", "a purge cannot be taken back: confirm it with --yes")
    what = chosen[0] if len(chosen) == 1 else f"{len(chosen)} sessions"
    typer.confirm(f"Purge {what}? It cannot be taken back.", abort=True, err=True)


async def _each(sessions: list[str], act: Callable[[str], Awaitable[None]], word: str, as_json: bool) -> int:
    """Act on all sessions, a few at a time; say of each what came of it, and return the exit code."""
    waiting, failed = iter(sessions), 0

    async def some() -> None:
        nonlocal failed
        for session in waiting:
            try:
                await act(session)
            except RingmereError as error:
                failed += 1
                typer.echo(f"ringmere: {session} was not {word}: {error}", err=True)
            else:
                typer.echo(json.dumps({"sessionId": session, word: True}) if as_json else f"{word} {session}")

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return 1 if failed else 0
