"""Sessions and their readers as people and dashboards read them (contract 10.4)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ringmere.core.errors import SessionNotFound
from ringmere.log.port import Log, SessionState

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.hub import Hub
    from ringmere.hub.lifetime import Lifetime

PIPELINE = 16
"""Sessions of a page described at once."""
FENCE_PAGE = 1
"""Bytes asked for when only the message behind the fence is of interest: a page has at least one message."""


class SessionList(NamedTuple):
    """A page of sessions as contract 10.4 has them; ``next`` is the next page's ``after``."""

    sessions: list[dict[str, Any]]
    next: str | None


async def describe_session(log: Log, state: SessionState) -> dict[str, Any]:
    """Return the public form of a session's state; a fence is neither counted nor named (contract 1.5)."""
    id_of = log.epochs(state.session).id_of
    fenced = state.stored > log.ring_size
    first = state.first
    if fenced:
        page = await log.page(state.session, state.first + 1, FENCE_PAGE)
        first = page.messages[0].seq if page.messages else state.last
    return {
        "sessionId": state.session,
        "firstEventId": id_of(first),
        "lastEventId": id_of(state.last),
        "events": state.stored - fenced,
        "closed": state.closed,
        "lastEventAt": state.last_time_ns // 1_000_000,
    }


async def list_sessions(log: Log, prefix: str, after: str, limit: int) -> SessionList:
    """Return a page of sessions in order of their ids."""
    page = await log.sessions(prefix, after, limit)
    rows: list[dict[str, Any]] = []
    for start in range(0, len(page.sessions), PIPELINE):
        part = page.sessions[start : start + PIPELINE]
        rows += await asyncio.gather(*(describe_session(log, state) for state in part))
    return SessionList(rows, page.next)


async def show_session(hub: Hub, session: str, channel: Channel | None) -> dict[str, Any]:
    """Return one session's state, what its snapshot reaches to, and its readers here; raises ``SessionNotFound``."""
    state = await hub.log.session(session)
    found = await hub.snapshots.look(session)
    readers = describe_readers(channel) if channel is not None else []
    if state is None and found is None and not readers:
        raise SessionNotFound(f"session {session} is unknown")
    row = await describe_session(hub.log, state) if state is not None else {"sessionId": session, "events": 0}
    if found is not None:
        updated_at = found.snapshot.updated_ns // 1_000_000
        row["snapshot"] = {"lastEventId": found.id, "final": found.final, "updatedAt": updated_at}
    return {**row, "readers": readers}


def describe_readers(channel: Channel) -> list[dict[str, Any]]:
    """Return the readers of a session on this instance, the one that lags most first."""
    rows = [_row(reader, channel.id_of(reader.reached)) for reader in channel.members]
    for attachment in channel.attached.all:
        row = _row(attachment.many, channel.id_of(attachment.reached))
        rows.append({**row, "sessions": len(attachment.many.attachments)})
    return sorted(rows, key=lambda row: (row["positionId"], -row["backlogEvents"]))


def _row(reader: Lifetime, position_id: int) -> dict[str, Any]:
    backlog = reader.backlog
    return {
        "streamId": reader.stream_id,
        "client": reader.client,
        "state": reader.state.value,
        "positionId": position_id,
        "backlogEvents": backlog.frames if backlog else 0,
        "backlogBytes": backlog.bytes if backlog else 0,
        "ageSeconds": round(reader.age, 1),
        "openedAt": time.time_ns() // 1_000_000 - round(reader.age * 1000),
    }
