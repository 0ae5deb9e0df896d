"""What a log in memory knows across sessions and instances; a part of :class:`~ringmere.log.memory.MemoryLog`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ringmere.core.cursor import EpochTable
from ringmere.core.session import is_session_id
from ringmere.log.memory_flags import MemoryFlags
from ringmere.log.memory_store import MemoryStore
from ringmere.log.memory_tail import Live
from ringmere.log.port import Answerer, LogListener, NewsSink


class MemoryWatch:
    """A watch, or a served name, of one instance."""

    def __init__(self, leave: Callable[[MemoryWatch], None]) -> None:
        self._leave = leave

    def close(self) -> None:
        """End it."""
        self._leave(self)


class MemoryAcross:
    """News of all sessions, cancels, and questions between instances.

    ``lose_news`` is what a network can do to the first two.
    """

    store: MemoryStore
    connected: bool
    _listener: LogListener | None

    def __init__(self) -> None:
        self.lose_news = False
        self.cancels = MemoryFlags(self)
        self._watches: dict[MemoryWatch, tuple[Callable[[str], bool], NewsSink]] = {}

    async def enter(self, method: str, session: str) -> None:
        """Begin a call."""
        raise NotImplementedError

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return self.store.shards

    def table(self, shard: int) -> EpochTable:
        """Return the current epoch table of a shard."""
        return self.store.tables[shard]

    async def newest(self, shard: int) -> int:
        """Return the sequence that a shard's stream gave last."""
        await self.enter("newest", "")
        return self.store.stream(shard).tail

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the ids of sessions that have messages stored."""
        await self.enter("names", "")
        found = [
            session
            for shard in range(self.store.shards)
            for session in self.store.stream(shard).subjects
            if session.startswith(prefix) and is_session_id(session)
        ]
        return sorted(found)[:limit]

    async def watch(self, wanted: Callable[[str], bool], sink: NewsSink) -> MemoryWatch:
        """Tell of messages of wanted sessions as they are stored."""
        await self.enter("watch", "")
        watch = MemoryWatch(self._forget_watch)
        self._watches[watch] = (wanted, sink)
        return watch

    def _forget_watch(self, watch: MemoryWatch) -> None:
        self._watches.pop(watch, None)

    def tell_news(self, live: Live) -> None:
        """Tell whoever watches of a stored message."""
        if self.connected and not self.lose_news:
            for watch in self._watches:
                asyncio.get_running_loop().call_soon(self._tell, watch, live)

    def _tell(self, watch: MemoryWatch, live: Live) -> None:
        wanted, sink = self._watches.get(watch, (None, None))
        if wanted is not None and sink is not None and wanted(live.session):
            sink(live.session, live.message.seq)

    def cancel_noticed(self, session: str, task: str) -> None:
        """Pass on that a task is to end, unless it is lost on the way."""
        if self.connected and not self.lose_news and self._listener is not None:
            asyncio.get_running_loop().call_soon(self._listener.cancel_noticed, session, task)

    def tell_flags(self) -> None:
        """Tell of all flags, as a look for those that were missed does."""
        for session, task in self.store.flags.known():
            self.cancel_noticed(session, task)

    async def serve(self, name: str, answer: Answerer) -> MemoryWatch:
        """Answer what instances ask under a name."""
        await self.enter("serve", "")
        self.store.served[name] = answer

        def leave(_: MemoryWatch) -> None:
            self.store.served.pop(name, None)

        return MemoryWatch(leave)

    async def ask(self, name: str, request: bytes) -> bytes | None:
        """Ask whoever serves a name."""
        await self.enter("ask", "")
        answer = self.store.served.get(name)
        return None if answer is None else await answer(request)
