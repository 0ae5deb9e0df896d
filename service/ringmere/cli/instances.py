"""A look at running gateways, as part of ``ringmere doctor``: alive, ready, one version, one epoch."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from ringmere.cli.ask import Answer, ask
from ringmere.log.findings import Finding, bad, ok, warn
from ringmere.log.shards import shard_of


class Seen(NamedTuple):
    """What one gateway says of itself; ``tokens`` is its epoch token of each shard, None where it gives none."""

    server: str
    live: int
    ready: int
    health: dict[str, Any]
    tokens: dict[int, str | None]


async def examine_gateways(
    servers: Sequence[str], shards: int, told: Mapping[int, str], version: str
) -> AsyncIterator[Finding]:
    """Yield findings about ``servers``; ``told`` is what the log's own records say of the epochs, as far as known."""
    seen: list[Seen] = []
    for server in servers:
        try:
            found = await asyncio.to_thread(look_at, server, shards)
        except (OSError, ValueError) as error:
            yield bad("gateway_live", server, str(error), "start it, or correct the address")
            continue
        seen.append(found)
        for finding in gateway(found, version):
            yield finding
    if seen:
        for finding in epochs(seen, told):
            yield finding


def look_at(server: str, shards: int) -> Seen:
    """Ask one gateway. Raises ``OSError`` when it does not answer, ``ValueError`` when that is no URL."""
    live, ready, health = (ask(server, path) for path in ("/livez", "/readyz", "/healthz"))
    tokens = {
        shard: ask(server, f"/session/{session_in(shard, shards)}/events", "HEAD").headers.get("x-event-epoch")
        for shard in range(shards)
    }
    return Seen(server, live.status, ready.status, _object(health), tokens)


def session_in(shard: int, shards: int) -> str:
    """Return the id of a session that would live in ``shard``; nothing is ever published to it."""
    return next(name for number in itertools.count() if shard_of(name := f"doctor-{number}", shards) == shard)


def _object(answer: Answer) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def gateway(seen: Seen, version: str) -> list[Finding]:
    """Judge one gateway that has answered; ``version`` is this program's."""
    server = seen.server
    if seen.live != 200:
        return [bad("gateway_live", server, f"/livez is {seen.live}", "is that a gateway? look at its log lines")]
    findings = [ok("gateway_live", server, "alive"), _ready(seen)]
    theirs = seen.health.get("version")
    if theirs == version:
        return [*findings, ok("gateway_version", server, version)]
    text, todo = f"{theirs}, this program is {version}", "bring all instances to one version"
    return [*findings, warn("gateway_version", server, text, todo)]


def _ready(seen: Seen) -> Finding:
    degraded = seen.health.get("logDegraded")
    if seen.ready != 200:
        text = f"/readyz is {seen.ready} ({seen.health.get('status', 'unknown')})"
        todo = "draining: wait; unavailable: see what is said of the connection to NATS, here and in its log lines"
        return bad("gateway_ready", seen.server, text, todo)
    if degraded:
        text = f"ready, but shards {degraded} do not store"
        return bad(
            "gateway_ready", seen.server, text, "see what is said of storing, and ops/runbooks/RingmereLogDegraded.md"
        )
    return ok("gateway_ready", seen.server, "ready")


def epochs(seen: Sequence[Seen], told: Mapping[int, str]) -> list[Finding]:
    """Compare the epochs that gateways answer with, among each other and with the log's own record."""
    findings = []
    for shard in seen[0].tokens:
        tokens = {each.server: each.tokens[shard] for each in seen}
        different = {token for token in (*tokens.values(), *([told[shard]] if shard in told else [])) if token}
        about = f"shard {shard}"
        if len(different) > 1:
            rows = [f"{server}: {token}" for server, token in tokens.items()]
            if shard in told:
                rows.append(f"the log: {told[shard]}")
            todo = "run it again in some seconds; if the births differ these are two logs: see the addresses of NATS"
            findings.append(bad("gateway_epoch", about, "; ".join(rows), todo))
        elif not different or None in tokens.values():
            silent = [server for server, token in tokens.items() if token is None]
            text = f"no epoch from {', '.join(silent)}"
            findings.append(
                warn("gateway_epoch", about, text, "an instance that never saw the log has none: is it ready?")
            )
        else:
            findings.append(ok("gateway_epoch", about, f"{different.pop()} everywhere"))
    return findings
