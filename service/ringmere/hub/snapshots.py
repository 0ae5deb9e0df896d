"""Stored states on their way through the hub: written, read for all who ask at once, made a frame (contract 10.1)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from ringmere.core.cursor import split_id
from ringmere.core.errors import LogUnavailable, RingmereError, SnapshotNotFound, UnknownEventId
from ringmere.core.frames import chunked
from ringmere.core.limits import MAX_LOOKS
from ringmere.core.snapshot import SnapshotDraft
from ringmere.hub.notices import session_snapshot
from ringmere.log.port import Snapshot

if TYPE_CHECKING:
    from ringmere.hub.hub import Hub


class Found:
    """A snapshot that was read, and its frame, made once for all readers of that read."""

    __slots__ = ("_made", "snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._made: dict[tuple[bool, bool], bytes] = {}

    @property
    def id(self) -> int:
        """The id that its state reaches to."""
        return self.snapshot.last_event_id

    @property
    def position(self) -> int:
        """The sequence that its state reaches to."""
        return split_id(self.id)[1]

    @property
    def final(self) -> bool:
        """Whether nothing is to come behind it."""
        return self.snapshot.final

    def frame(self, *, last: bool, framed: bool) -> bytes:
        """Return the ``session_snapshot`` frame, as a chunk if ``framed``; ``last``: the stream ends with it."""
        key = (last, framed)
        if key not in self._made:
            raw = self._made.get((last, False)) or session_snapshot(self.id, self.snapshot.state, final=last)
            self._made[last, False] = raw
            self._made[key] = chunked(raw) if framed else raw
        return self._made[key]


class Snapshots:
    """The way to stored states. No snapshot is kept: who asks gets what is stored then, or later."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._slots = asyncio.Semaphore(hub.limits.snapshot_reads)
        self._next: dict[str, asyncio.Task[Found | None]] = {}
        """Reads that have not begun: whoever asks now is served by them."""
        self._now: dict[str, asyncio.Task[Found | None]] = {}
        self._looks: OrderedDict[str, tuple[float, int | None]] = OrderedDict()

    async def put(self, session: str, draft: SnapshotDraft, birth: str | None = None) -> bool:
        """Store a snapshot; return whether it has replaced one. Raises as :meth:`ringmere.log.port.Snapshots.put`.

        ``birth`` is that of the log that the writer has followed, if it says so (contract 1.3).
        """
        outcome = "stored"
        try:
            if birth is not None and birth != self._hub.log.epochs(session).birth:
                raise UnknownEventId("the state was made of another log")
            return await self._hub.log.snapshots.put(session, draft)
        except RingmereError as error:
            outcome = error.code
            raise
        finally:
            self._hub.observer.snapshot_written(session, outcome, len(draft.state))

    async def get(self, session: str) -> Snapshot:
        """Return a session's snapshot. Raises ``SnapshotNotFound`` and ``LogUnavailable``."""
        found = await self.read(session)
        if found is None:
            raise SnapshotNotFound(f"session {session} has no snapshot")
        return found.snapshot

    async def drop(self, session: str) -> None:
        """Remove a session's snapshot, if there is one. Raises ``LogUnavailable``."""
        await self._hub.log.snapshots.drop(session)
        self._hub.observer.snapshot_written(session, "removed", 0)

    async def read(self, session: str) -> Found | None:
        """Return a session's snapshot as it is stored now; one read serves all who ask before it begins.

        A read under way serves nobody else: it may have missed what the next one to ask has just written.
        Raises ``LogUnavailable``.
        """
        task = self._next.get(session)
        if task is None:
            task = self._next[session] = asyncio.create_task(self._read(session))
            task.add_done_callback(_look_at)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise LogUnavailable("the hub has ended") from None
            raise

    async def _read(self, session: str) -> Found | None:
        while (before := self._now.get(session)) is not None:
            await asyncio.wait([before])
        async with self._slots:
            task = self._now[session] = self._next.pop(session)
            try:
                snapshot = await self._hub.log.snapshots.read(session)
            finally:
                if self._now.get(session) is task:
                    del self._now[session]
        return None if snapshot is None else Found(snapshot)

    async def look(self, session: str) -> Found | None:
        """Do the same for whom a snapshot is no more than a help: soon, and without one when it cannot be read."""
        found = None
        try:
            async with asyncio.timeout(self._hub.limits.snapshot_wait):
                found = await self.read(session)
        except (LogUnavailable, TimeoutError):
            self._hub.observer.snapshot_missed(session)
        self._looks.pop(session, None)
        self._looks[session] = (asyncio.get_running_loop().time(), found.id if found is not None else None)
        if len(self._looks) > MAX_LOOKS:
            self._looks.popitem(last=False)
        return found

    def seen(self, session: str) -> int | None:
        """Return the id that a snapshot reaches to that :meth:`look` has seen a moment ago, None without one."""
        at, public_id = self._looks.get(session, (0.0, None))
        fresh = asyncio.get_running_loop().time() - at <= self._hub.limits.bounds_age
        return public_id if fresh else None

    def stop(self) -> None:
        """End the reads under way."""
        for task in (*self._next.values(), *self._now.values()):
            task.cancel()


def _look_at(task: asyncio.Task[Found | None]) -> None:
    """Take note of a failed read: those who still wait raise it, and nobody may be waiting any more."""
    if not task.cancelled():
        task.exception()
