"""``ringmere doctor``: is everything in order that an instance depends on, and what to do about what is not."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ringmere.cli import health
from ringmere.cli.flags import Json, of_the_log, with_settings
from ringmere.cli.reach import reach

if TYPE_CHECKING:
    from ringmere.log.findings import Finding
    from ringmere.log.jetstream import LogSettings
    from ringmere.log.options import ConnectOptions

DEADLINE = 60.0
"""Seconds for the whole look at the log, so that a NATS that hardly answers does not hold anybody up."""
COLOURS = {"ok": "green", "warn": "yellow", "bad": "bold red"}


def register(app: typer.Typer) -> None:
    """Add the command, with a flag for each setting that tells of the log, to ``app``."""
    app.command("doctor")(with_settings(doctor, of_the_log))


def doctor(
    flags: Mapping[str, Any],
    *,
    server: Annotated[
        list[str] | None, typer.Option("--server", metavar="URL", help="A gateway to look at as well; may be repeated.")
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Store no message and make no consumer: less is proven.")
    ] = False,
    health_check: Annotated[
        bool, typer.Option("--health", help="Only ask one instance for /readyz, quickly: a container's health check.")
    ] = False,
    live: Annotated[bool, typer.Option("--live", help="With --health: ask for /livez instead.")] = False,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="TEXT", help="With --health: where the instance listens.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Check everything an instance depends on, and say what to do.

    Give it the flags, or the variables, that `ringmere serve` gets. Ends with 0 when nothing is bad, with 1 when
    something is, with 2 when an instance would refuse to start.
    """
    if health_check:
        return health.check(server[0] if server else None, listen, os.environ, live=live, as_json=as_json)
    settings, options = reach(flags)
    # They need the NATS client, which no other client command should wait for.
    from ringmere.log.findings import exit_code
    from ringmere.settings.derive import log_settings

    found = asyncio.run(_show(_findings(log_settings(settings), options, server or [], not read_only), as_json))
    if not as_json:
        counted = Counter(finding.level for finding in found)
        Console(soft_wrap=True).print(", ".join(f"{counted[level]} {level}" for level in COLOURS))
    return exit_code(found)


async def _findings(
    settings: LogSettings, options: ConnectOptions, servers: Sequence[str], store: bool
) -> AsyncIterator[Finding]:
    from ringmere.cli.instances import examine_gateways
    from ringmere.core.errors import LogRefused, LogUnavailable
    from ringmere.log.connect import Connection
    from ringmere.log.examine import Examination, within
    from ringmere.log.findings import bad, ok

    told: dict[int, str] = {}
    try:
        connection = await Connection.open(options)
    except LogRefused as error:
        todo = "correct address, credentials or certificates; they are looked for as by `ringmere serve`"
        yield bad("connection", options.addresses(), str(error), todo, final=True)
    except LogUnavailable as error:
        todo = "start NATS, correct the address, or open the way: an instance waits for it"
        yield bad("connection", options.addresses(), str(error), todo)
    else:
        try:
            yield ok("connection", options.addresses(), "connected")
            examination = Examination(connection, settings, store=store)
            async for finding in within(DEADLINE, examination.run()):
                yield finding
            told = examination.tokens
        finally:
            await connection.close()
    async for finding in examine_gateways(servers, settings.shards, told, version("ringmere")):
        yield finding


async def _show(findings: AsyncIterator[Finding], as_json: bool) -> list[Finding]:
    console = Console(soft_wrap=True)
    found = []
    async for finding in findings:
        found.append(finding)
        if as_json:
            print(json.dumps(finding.as_object(), ensure_ascii=False), flush=True)
        else:
            _print(console, finding)
    return found


def _print(console: Console, finding: Finding) -> None:
    line = Text(f"{finding.level:<4}", style=COLOURS[finding.level])
    line.append(f"  {finding.code:<15}  ", style="dim")
    line.append(f"{finding.about}: {finding.text}", style="default")
    console.print(line, highlight=False)
    if finding.todo:
        console.print(Text(f"      → {finding.todo}"), highlight=False)
