"""``ringmere tail``: follow sessions in a terminal, through restarts and lost connections."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from ringmere.cli.clock import time_of_day
from ringmere.cli.flags import DEFAULT_SERVER, Json, Server
from ringmere.client.many import follow_many
from ringmere.client.stream import Connected, Control, Event, Stream, Waiting, follow
from ringmere.core.cursor import parse_cursor
from ringmere.core.errors import InvalidParameter

_HARMLESS = dict.fromkeys(range(127, 160), 65533)
"""JSON escapes control characters below 0x20; a terminal would obey these as well."""
_encode = msgspec.json.Encoder().encode


def tail(
    sessions: Annotated[list[str] | None, typer.Argument(help="The session to follow, or several.")] = None,
    match: Annotated[
        str | None, typer.Option("--match", metavar="PREFIX*", help="Follow all sessions whose id begins so.")
    ] = None,
    begin: Annotated[
        str, typer.Option("--from", metavar="start|live|ID", help="The whole ring, what comes, or behind an id.")
    ] = "live",
    count: Annotated[int, typer.Option("--count", min=0, help="End after this many events; 0 is never.")] = 0,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Follow a session until it is closed, or several on one connection.

    A lost connection is taken up again where it broke.
    """
    named = sessions or []
    many = match is not None or len(named) > 1
    printer: Callable[[Event | Control], None] = _json_line if as_json else _Lines(Console(soft_wrap=True), many=many)

    def stream() -> Stream:
        if many or not named:
            return follow_many(server, *named, match=match, from_=begin, on_state=_tell)
        return follow(server, named[0], _start(begin), on_state=_tell)

    try:
        asyncio.run(_follow(stream, count, printer))
    except KeyboardInterrupt:
        # The ordinary way to leave a stream that has no end.
        print(file=sys.stderr)


def _start(text: str) -> int | Literal["live", "start"]:
    if text == "live":
        return "live"
    if text == "start":
        return "start"
    cursor = parse_cursor(text)
    if cursor is None:
        raise InvalidParameter("invalid_from", f"--from: {text!r} is not start, live or an event id")
    return cursor


async def _follow(make: Callable[[], Stream], count: int, show: Callable[[Event | Control], None]) -> None:
    seen = 0
    async with make() as stream:
        async for item in stream:
            show(item)
            seen += isinstance(item, Event)
            if count and seen >= count:
                return


def _tell(state: Connected | Waiting) -> None:
    """Say on stderr what became of the connection, so that stdout holds frames only."""
    if isinstance(state, Waiting):
        print(f"ringmere: {state.cause}; next try in {state.delay:.1f} s", file=sys.stderr)
    elif state.attempt > 1:
        where = "live" if state.cursor is None else f"behind {state.cursor}"
        print(f"ringmere: connected again, {where}", file=sys.stderr)


def _json_line(item: Event | Control) -> None:
    sys.stdout.write(_encode(item.envelope).decode() + "\n")
    sys.stdout.flush()


class _Lines:
    """Prints one line an item: time, id, type, data, of ``many`` sessions with theirs; cut to the terminal's width."""

    def __init__(self, console: Console, *, many: bool = False) -> None:
        self._console = console
        self._many = many

    def __call__(self, item: Event | Control) -> None:
        line = Text()
        line.append(f"{time_of_day(_stamp(item.envelope))}  ", style="dim")
        if self._many:
            line.append(f"{item.session or '–':<16}  ", style="green")
        if isinstance(item, Event):
            line.append(f"{item.id:>8}  ", style="cyan")
            line.append(item.type, style="bold red" if item.terminal else "bold")
        else:
            line.append(f"{'–':>8}  {item.type}", style="yellow")
        line.append("  " + _encode(item.envelope.get("data")).decode().translate(_HARMLESS))
        if self._console.is_terminal:
            line.truncate(self._console.width, overflow="ellipsis")
        self._console.print(line, highlight=False)


def _stamp(envelope: dict[str, Any]) -> object:
    meta = envelope.get("_meta")
    return meta.get("serverTimestamp") if isinstance(meta, dict) else None
