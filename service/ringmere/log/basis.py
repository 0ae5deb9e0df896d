"""What a snapshot leans on: the log that its last event must be of, and what it may replace (contract 10.1)."""

from __future__ import annotations

from typing import Protocol

from ringmere.core.cursor import EpochTable, SubjectBounds, split_id
from ringmere.core.errors import NewerSnapshot, UnknownEventId
from ringmere.core.snapshot import SnapshotDraft, covers
from ringmere.log.port import Head, Snapshot


class Basis(Protocol):
    """The part of a log that a snapshot leans on."""

    def epochs(self, session: str) -> EpochTable:
        """Return the current epoch table of the session's stream."""

    async def contains(self, session: str, seq: int) -> bool:
        """Leader read: is ``seq`` stored on this session's subject?"""

    async def bounds(self, session: str) -> SubjectBounds:
        """Leader read of the subject's and the stream's bounds."""

    async def head(self, session: str) -> Head | None:
        """Return what is known of a session whose messages may have expired."""


async def check_basis(log: Basis, session: str, public_id: int) -> None:
    """Raise :class:`UnknownEventId` unless a state of the session can cover everything up to that id."""
    table, sequence = log.epochs(session), split_id(public_id)[1]
    # Bounds from before a miss may show a first that has been evicted since (contract 4.4).
    present = await log.contains(session, sequence)
    bounds = await log.bounds(session)
    head = await log.head(session) if bounds.stored == 0 else None
    if not covers(public_id, table, bounds, head.seq if head is not None else 0, present=present):
        raise UnknownEventId(f"{public_id} is no event of session {session} that a state can cover")


def refuse_older(current: Snapshot | None, draft: SnapshotDraft) -> None:
    """Raise :class:`NewerSnapshot` when the stored snapshot covers more than a new one would (contract 10.1)."""
    if current is not None and current.last_event_id > draft.last_event_id:
        raise NewerSnapshot(current.last_event_id)
