"""``ringmere bench``: put load on running gateways, and measure what comes through."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated

import typer

from ringmere.cli.flags import DEFAULT_SERVER, Json
from ringmere.cli.values import duration_of, positive, size_of
from ringmere.cli.watch import print_report, watched
from ringmere.process import Stop, loop_factory, raise_file_limit
from ringmere.verify.bench import Bench
from ringmere.verify.figures import Figures
from ringmere.verify.load import LoadPlan


def bench(
    server: Annotated[
        list[str] | None,
        typer.Option("--server", envvar="RINGMERE_SERVER", metavar="URL", help="A gateway; may be repeated."),
    ] = None,
    sessions: Annotated[int, typer.Option("--sessions", min=1, max=100_000, help="Sessions.")] = 1,
    readers: Annotated[int, typer.Option("--readers", min=0, max=100_000, help="Readers of all sessions.")] = 10,
    rate: Annotated[
        float, typer.Option("--rate", min=0, max=1e6, help="Events per second, over all sessions; 0: flat out.")
    ] = 100.0,
    duration: Annotated[str, typer.Option("--duration", metavar="DURATION", help="How long to publish.")] = "10s",
    size: Annotated[str, typer.Option("--size", metavar="SIZE", help="Size of an event's data.")] = "200",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Events of one request.")] = 1,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, max=10_000, help="Requests under way at once, at most.")
    ] = 16,
    as_json: Json = False,
) -> int:
    """Publish and follow at running gateways, and say how much and how fast.

    In sessions of its own (`bench-…`), which it closes. Ends with 0, or with 1 when anything failed. It measures;
    `ringmere verify` proves.
    """
    plan = LoadPlan(
        sessions=sessions,
        readers=readers,
        rate=rate,
        duration=positive("--duration", duration_of("--duration", duration, 0.0)),
        size=size_of("--size", size),
        batch=batch,
        in_flight=in_flight,
        prefix=f"bench-{secrets.token_hex(4)}",
    )
    factory, _ = loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        figures = runner.run(_run(plan, server or [DEFAULT_SERVER], as_json))
    print_report(figures, as_json, "ok: nothing failed")
    return 0 if figures.good else 1


async def _run(plan: LoadPlan, servers: list[str], as_json: bool) -> Figures:
    raise_file_limit()
    stop = Stop()
    stop.listen()
    run = Bench(plan, servers)
    return await watched(run, stop, as_json, run.progress)
