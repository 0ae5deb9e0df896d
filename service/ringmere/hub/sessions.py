"""Sessions and their readers as people and dashboards read them (contract 10.4)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ringmere.core.errors import SessionNotFound
from ringmere.hub.laggards import describe_place, describe_reader, position_of
from ringmere.log.port import Head, Log, SessionState, Stored

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.hub import Hub
    from ringmere.hub.lifetime import Lifetime

PIPELINE = 16
"""Sessions of a page described at once."""
FIRST_PAGE = 1
"""Bytes asked for when only the first message is of interest: a page has at least one."""
MS = 1_000_000
"""Nanoseconds of a millisecond."""


class SessionList(NamedTuple):
    """A page of sessions as contract 10.4 has them; ``next`` is the next page's ``after``."""

    sessions: list[dict[str, Any]]
    next: str | None


async def describe_session(log: Log, state: SessionState) -> dict[str, Any]:
    """Return the public form of a session's state; a fence is neither counted nor named (contract 1.5)."""
    id_of = log.epochs(state.session).id_of
    fenced = state.stored > log.ring_size
    first = (await _first(log, state)).seq if fenced else state.first
    return {
        "sessionId": state.session,
        "firstEventId": id_of(first),
        "lastEventId": id_of(state.last),
        "events": state.stored - fenced,
        "closed": state.closed,
        "lastEventAt": state.last_time_ns // MS,
    }


async def _first(log: Log, state: SessionState) -> Stored:
    """Return the session's first message that is no fence; its last one when all others went meanwhile."""
    start = state.first + (state.stored > log.ring_size)
    page = await log.page(state.session, start, FIRST_PAGE)
    return page.messages[0] if page.messages else Stored(state.last, state.last_time_ns, b"")


async def list_sessions(log: Log, prefix: str, after: str, limit: int) -> SessionList:
    """Return a page of sessions in order of their ids."""
    page = await log.sessions(prefix, after, limit)
    rows: list[dict[str, Any]] = []
    for start in range(0, len(page.sessions), PIPELINE):
        part = page.sessions[start : start + PIPELINE]
        rows += await asyncio.gather(*(describe_session(log, state) for state in part))
    return SessionList(rows, page.next)


async def show_session(hub: Hub, session: str, channel: Channel | None) -> dict[str, Any]:
    """Return one session's state, what its snapshot reaches to, and its readers here; raises ``SessionNotFound``.

    A session whose log has expired is still known by its head, its snapshot, or a reader.
    """
    state, found = await asyncio.gather(hub.log.session(session), hub.snapshots.look(session))
    head = await hub.log.head(session) if state is None else None
    readers = describe_readers(channel) if channel is not None else []
    if state is None and head is None and found is None and not readers:
        raise SessionNotFound(f"session {session} is unknown")
    row = _expired(hub.log, session, head) if state is None else await describe_session(hub.log, state)
    if state is not None:
        row["firstEventAt"] = (await _first(hub.log, state)).time_ns // MS
    if row["lastEventAt"] is not None:
        row["idleSeconds"] = round(max(0, hub.clock() // MS - row["lastEventAt"]) / 1000, 3)
    if found is not None:
        updated_at = found.snapshot.updated_ns // MS
        row["snapshot"] = {"lastEventId": found.id, "final": found.final, "updatedAt": updated_at}
    return {**row, "evictions": channel.evictions if channel is not None else 0, "readers": readers}


def _expired(log: Log, session: str, head: Head | None) -> dict[str, Any]:
    return {
        "sessionId": session,
        "firstEventId": None,
        "lastEventId": log.epochs(session).id_of(head.seq) if head is not None else None,
        "events": 0,
        "closed": head is not None and head.terminal,
        "lastEventAt": head.time_ns // MS if head is not None else None,
    }


def describe_readers(channel: Channel) -> list[dict[str, Any]]:
    """Return the readers of a session on this instance, the one that lags most first."""
    rows = [_row(channel, reader, position_of(reader)) for reader in channel.members]
    for attachment in channel.attached.all:
        row = _row(channel, attachment.many, attachment.reached)
        rows.append({**row, "sessions": len(attachment.many.attachments)})
    return sorted(rows, key=lambda row: (row["positionId"], -row["backlogEvents"]))


def _row(channel: Channel, reader: Lifetime, position: int) -> dict[str, Any]:
    opened_at = time.time_ns() // MS - round(reader.age * 1000)
    return {**describe_reader(reader), **describe_place(channel, position), "openedAt": opened_at}
