"""``ringmere verify``: prove, on real gateways, that nothing is lost, doubled or swapped, also while things break."""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ringmere.cli.flags import Json
from ringmere.cli.values import duration_of, positive, size_of
from ringmere.cli.watch import print_report, watched
from ringmere.core.errors import InvalidParameter
from ringmere.fleet.plan import CLUSTER, STALL, Faults, FleetPlan
from ringmere.process import Stop, loop_factory, raise_file_limit
from ringmere.verify.plan import Plan
from ringmere.verify.report import Report
from ringmere.verify.trial import Trial

OWN_HEARTBEAT = 3.0
USUAL_HEARTBEAT = 15.0
"""Seconds: what gateways of its own are told, and what others do unless they were told something else."""
USUAL_SILENCE = 10.0

_OWN = "Gateways of its own"
_FAULTS = "Faults (gateways of its own only)"


def verify(
    flags: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- FLAG …]", help="Further flags for the gateways of its own, as of `ringmere serve`."
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option("--server", metavar="URL", help="A gateway that exists; repeat it for more of the same log."),
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Start NATS and gateways; the default without --server.")
    ] = False,
    sessions: Annotated[int, typer.Option("--sessions", min=1, max=100_000, help="Sessions.")] = 10,
    readers: Annotated[int, typer.Option("--readers", min=1, max=100_000, help="Readers of all sessions.")] = 40,
    rate: Annotated[
        float, typer.Option("--rate", min=0.01, max=1e6, help="Events per second, over all sessions.")
    ] = 200.0,
    duration: Annotated[str, typer.Option("--duration", metavar="DURATION", help="How long to publish.")] = "60s",
    size: Annotated[str, typer.Option("--size", metavar="SIZE", help="Size of an event's data.")] = "200",
    drop_every: Annotated[
        str,
        typer.Option(
            "--drop-every", metavar="DURATION", help="About how often a reader drops its connection; 0: never."
        ),
    ] = "5s",
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of all random choices; shown in the report.")] = None,
    max_silence: Annotated[
        str | None,
        typer.Option(
            "--max-silence", metavar="DURATION", help="Longest time a reader may hear nothing (default 10s + stalls)."
        ),
    ] = None,
    heartbeat: Annotated[
        str | None, typer.Option("--heartbeat", metavar="DURATION", help="The gateways' heartbeat (3s; --server: 15s).")
    ] = None,
    allow_resync: Annotated[
        bool, typer.Option("--allow-resync", help="Losses that readers were told of are acceptable.")
    ] = False,
    gateways: Annotated[
        int | None, typer.Option("--gateways", min=1, max=16, help="Gateway processes (2).", rich_help_panel=_OWN)
    ] = None,
    cluster: Annotated[
        int | None, typer.Option("--cluster", help="1 or 3 NATS servers (1).", rich_help_panel=_OWN)
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", min=1, max=3, help="Copies of each stream (all servers).", rich_help_panel=_OWN),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep their directory, with all logs.", rich_help_panel=_OWN)
    ] = False,
    kill_gateway: Annotated[
        str | None,
        typer.Option("--kill-gateway", metavar="EVERY", help="kill -9 a gateway, in turn.", rich_help_panel=_FAULTS),
    ] = None,
    kill_nats: Annotated[
        str | None,
        typer.Option(
            "--kill-nats",
            metavar="EVERY",
            help="kill -9 NATS; in a cluster leader, a gateway's node, follower in turn.",
            rich_help_panel=_FAULTS,
        ),
    ] = None,
    stall_gateway: Annotated[
        str | None,
        typer.Option(
            "--stall-gateway", metavar="EVERY", help=f"Stop a gateway for {STALL:g} s.", rich_help_panel=_FAULTS
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Publish, follow, drop, resume; then say what was lost, doubled or swapped.

    Readers drop their connections at random and resume at another gateway. Ends with 0 when every acknowledged
    event reached every reader once and in order and nobody waited too long in silence, else with 1.
    """
    faults = Faults(
        duration_of("--kill-gateway", kill_gateway, 0.0),
        duration_of("--kill-nats", kill_nats, 0.0),
        duration_of("--stall-gateway", stall_gateway, 0.0),
    )
    seconds = positive("--duration", duration_of("--duration", duration, 0.0))
    own = _own(server, embedded, [gateways, cluster, replicas, keep or None, flags or None], faults)
    if own:
        _check_faults(faults, seconds)
    beat = duration_of("--heartbeat", heartbeat, OWN_HEARTBEAT if own else USUAL_HEARTBEAT)
    chosen_seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    plan = Plan(
        sessions=sessions,
        readers=readers,
        rate=rate,
        duration=seconds,
        size=size_of("--size", size),
        drop_every=duration_of("--drop-every", drop_every, 0.0),
        max_silence=duration_of("--max-silence", max_silence, USUAL_SILENCE + (STALL if faults.stall_gateway else 0.0)),
        heartbeat=positive("--heartbeat", beat),
        seed=chosen_seed,
        prefix=f"verify-{secrets.token_hex(4)}",
        allow_resync=allow_resync,
    )
    fleet = _fleet_plan(plan, gateways or 2, cluster or 1, replicas, flags or []) if own else None
    factory, _ = loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        report = runner.run(_run(plan, server or [], fleet, faults, keep, as_json))
    print_report(report, as_json, "ok: nothing lost, nothing twice, all in order")
    return 0 if report.good else 1


def _own(server: list[str] | None, embedded: bool, only_own: list[object], faults: Faults) -> bool:
    """Say whether to start gateways. Raises ``InvalidParameter`` for what does not go together."""
    if not server:
        return True
    if embedded:
        raise InvalidParameter("embedded_or_server", "--embedded and --server exclude each other")
    if faults.any():
        raise InvalidParameter("faults_need_own", "faults are for gateways of its own: leave out --server")
    if any(value is not None for value in only_own):
        raise InvalidParameter(
            "options_need_own", "--gateways, --cluster, --replicas, --keep and `-- FLAG` are for gateways of its own"
        )
    return False


def _check_faults(faults: Faults, seconds: float) -> None:
    """Refuse a fault that would never happen: a good end would prove nothing of it."""
    for flag, every in (
        ("--kill-gateway", faults.kill_gateway),
        ("--kill-nats", faults.kill_nats),
        ("--stall-gateway", faults.stall_gateway),
    ):
        if every and every >= seconds:
            raise InvalidParameter("fault_too_rare", f"{flag} {every:g}s does not happen within --duration")


def _fleet_plan(plan: Plan, gateways: int, nodes: int, replicas: int | None, flags: Sequence[str]) -> FleetPlan:
    if nodes not in (1, CLUSTER):
        raise InvalidParameter("invalid_cluster", f"--cluster is 1 or {CLUSTER}")
    if (replicas or 1) > nodes:
        raise InvalidParameter("too_many_replicas", f"--replicas {replicas} need as many servers: --cluster {CLUSTER}")
    # All readers of a session may have to live on the last gateway that is left.
    each = math.ceil(plan.readers / plan.sessions)
    return FleetPlan(gateways, nodes, replicas or nodes, plan.heartbeat, max(64, 2 * each), flags)


async def _run(
    plan: Plan, servers: list[str], fleet_plan: FleetPlan | None, faults: Faults, keep: bool, as_json: bool
) -> Report:
    raise_file_limit()
    stop = Stop()
    stop.listen()
    if fleet_plan is None:
        trial = Trial(plan, servers)
        return await watched(trial, stop, as_json, lambda: _progress(trial, ""))
    # They need the NATS client, which no other client command should wait for.
    from ringmere.fleet.faults import Saboteur
    from ringmere.fleet.fleet import Fleet

    fleet = Fleet(fleet_plan, keep)
    if keep:
        print(f"ringmere: logs and data stay in {fleet.directory}", file=sys.stderr)
    async with fleet:
        saboteur = Saboteur(fleet, faults)
        trial = Trial(plan, fleet.addresses, saboteur.run if faults.any() else None)
        report = await watched(trial, stop, as_json, lambda: _progress(trial, saboteur.latest))
        return report.with_trouble(fleet.trouble())


def _progress(trial: Trial, fault: str) -> str:
    now = trial.progress()
    line = f"{now.phase} {now.seconds:5.1f} s  {now.acknowledged} acknowledged of {now.sent}  "
    line += f"{now.delivered} delivered, {now.waiting} under way  {now.connections} connections"
    return f"{line}  last: {fault}" if fault else line
