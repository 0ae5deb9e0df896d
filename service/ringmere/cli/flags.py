"""Options made from the table of settings, and those that all client commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from ringmere.settings.kinds import SWITCH
from ringmere.settings.show import choice, default
from ringmere.settings.table import GROUPS, Row, rows

DEFAULT_SERVER = "http://127.0.0.1:8080"

Server = Annotated[
    str, typer.Option("--server", envvar="RINGMERE_SERVER", metavar="URL", help="The gateway to talk to.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines instead of text for people.")]


def with_settings(command: Callable[[Mapping[str, Any]], Any]) -> Callable[..., Any]:
    """Return ``command`` as one that has a flag for each setting; it is called with the texts that were given."""

    def call(**flags: Any) -> Any:
        return command(flags)

    call.__doc__ = command.__doc__
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(row) for row in rows() if row.flag is not None]
    )
    return call


def _parameter(row: Row) -> inspect.Parameter:
    kind: Any = bool if row.kind is SWITCH else list[str] if row.kind.many else str
    names = f"{row.flag}/--no-{row.name.replace('_', '-')}" if row.kind is SWITCH else str(row.flag)
    option = typer.Option(
        names,
        help=row.help if row.kind is SWITCH else f"{row.help} ({choice(row)}; default {default(row)})",
        metavar=None if row.kind is SWITCH else row.kind.name.upper(),
        rich_help_panel=GROUPS[row.group],
        show_default=False,
    )
    return inspect.Parameter(
        row.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )
