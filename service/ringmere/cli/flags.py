"""Options made from the table of settings, and those that all client commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ringmere.settings.kinds import SWITCH
from ringmere.settings.show import choice, default
from ringmere.settings.table import GROUPS, Row, rows

_ACTS = ("reconcile", "first_epoch", "reader", "breaker_failures", "breaker_window", "breaker_pause")
"""Settings of the log that say what an instance does, not what the log is."""
DEFAULT_SERVER = "http://127.0.0.1:8080"

Server = Annotated[
    str, typer.Option("--server", envvar="RINGMERE_SERVER", metavar="URL", help="The gateway to talk to.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines instead of text for people.")]


def with_settings(command: Callable[..., Any], wanted: Callable[[Row], bool] = lambda _: True) -> Callable[..., Any]:
    """Return ``command`` as one that has a flag for each ``wanted`` setting beside its own options.

    It is called with the texts of the settings that were given, by name, and its own options by keyword.
    """
    chosen = [row for row in rows() if row.flag is not None and wanted(row)]
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    def call(**given: Any) -> Any:
        flags = {row.name: given.pop(row.name) for row in chosen}
        return command(flags, **given)

    call.__doc__ = command.__doc__
    call.__signature__ = inspect.Signature([*own, *map(_parameter, chosen)])  # type: ignore[attr-defined]
    return call


def of_the_log(row: Row) -> bool:
    """Say whether a setting tells where the log is, or what it looks like."""
    return row.group == "nats" or row.name in ("embedded", "data_dir") or (row.group == "log" and row.name not in _ACTS)


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
