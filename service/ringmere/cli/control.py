"""``ringmere cancel``: ask for the end of a task."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated

import typer

from ringmere.cli.clock import date_and_time
from ringmere.cli.flags import DEFAULT_SERVER, Json, Server
from ringmere.client.caller import Caller
from ringmere.client.control import Cancellation
from ringmere.client.control import cancel as cancel_task
from ringmere.core.control import CancelFlag, describe_cancel

PATIENCE = 10.0
"""Seconds that tries go on before it is given up."""


def cancel(
    session: Annotated[str, typer.Argument(help="The session.")],
    task: Annotated[str, typer.Argument(help="The task.")],
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for the worker and the session.")] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Cancel a task of a session, wherever it runs or is to run; the rest of the session goes on."""
    done = asyncio.run(_cancel(server, session, task, reason))
    if as_json:
        typer.echo(json.dumps(describe_cancel(session, task, CancelFlag(*done))))
        return
    why = f": {done.reason}" if done.reason else ""
    typer.echo(f"{task} is cancelled since {date_and_time(done.requested_at)}{why}")


async def _cancel(server: str, session: str, task: str, reason: str | None) -> Cancellation:
    caller = Caller(server)
    try:
        return await cancel_task(caller, session, task, reason, time.monotonic() + PATIENCE)
    finally:
        await caller.aclose()
