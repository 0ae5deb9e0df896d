"""The snapshots of a log in memory: the rules of the real ones, without a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringmere.core.errors import SnapshotTooLarge
from ringmere.core.session import check_session_id
from ringmere.core.snapshot import SnapshotDraft
from ringmere.log.basis import check_basis, refuse_older
from ringmere.log.port import Snapshot

if TYPE_CHECKING:
    from ringmere.log.memory import MemoryLog

NS = 1_000_000_000


class MemorySnapshots:
    """One instance's way to the snapshots of its store; ``max_bytes`` is what a test sets it to."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.max_bytes = log.max_event_bytes

    async def read(self, session: str) -> Snapshot | None:
        """Return the session's snapshot."""
        await self._log.enter("snapshot", check_session_id(session))
        return self._known(session)

    async def put(self, session: str, draft: SnapshotDraft) -> bool:
        """Store a snapshot."""
        await self._log.enter("put_snapshot", check_session_id(session))
        if len(draft.state) > self.max_bytes:
            raise SnapshotTooLarge(len(draft.state), self.max_bytes)
        await check_basis(self._log, session, draft.last_event_id)
        refuse_older(self._known(session), draft)
        store = self._log.store
        existed = session in store.snapshots
        birth = self._log.epochs(session).birth
        store.snapshots[session] = (birth, Snapshot(*draft, store.clock()))
        return existed

    async def drop(self, session: str) -> None:
        """Remove a session's snapshot."""
        await self._log.enter("drop_snapshot", check_session_id(session))
        self._log.store.snapshots.pop(session, None)

    def _known(self, session: str) -> Snapshot | None:
        store, table = self._log.store, self._log.epochs(session)
        birth, found = store.snapshots.get(session, ("", None))
        if found is None or birth != table.birth or not table.known(found.last_event_id):
            return None
        age = max(store.log_ttl, store.head_ttl) if store.log_ttl and store.head_ttl else 0
        return None if age and found.updated_ns <= store.clock() - int(age * NS) else found
