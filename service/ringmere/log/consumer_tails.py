"""The consumer tails of all shards: see :mod:`ringmere.log.consumer_tail`."""

from __future__ import annotations

from collections.abc import Callable

from ringmere.log.connect import Connection
from ringmere.log.consumer_tail import Failed, Seen, ShardTail
from ringmere.log.leader import Leader
from ringmere.log.places import Place
from ringmere.log.port import LiveSink, NewsSink, TraceSink
from ringmere.log.session_tail import SessionTail


class Watch:
    """A watch over all shards; ``leaves`` end it in each."""

    def __init__(self) -> None:
        self.leaves: list[Callable[[], None]] = []

    def close(self) -> None:
        """End it."""
        for leave in self.leaves:
            leave()


class ConsumerTails:
    """The consumer tail of all shards of an instance."""

    def __init__(
        self, connection: Connection, leader: Leader, shards: int, seen: Seen, failed: Failed, timeout: float
    ) -> None:
        self._shards = [ShardTail(connection, leader, shard, seen, failed, timeout) for shard in range(shards)]
        connection.on_state(self._state_changed)

    async def subscribe(self, place: Place, sink: LiveSink, traces: TraceSink | None) -> SessionTail:
        """Start the live tail of a session: what is appended once this returns reaches ``sink``, at most once.

        Raises ``LogUnavailable``.
        """
        return await self._shards[place.shard].subscribe(place, sink, traces)

    async def watch(self, wanted: Callable[[str], bool], sink: NewsSink) -> Watch:
        """Tell of messages of wanted sessions in all shards; raises ``LogUnavailable``."""
        watch = Watch()
        try:
            for shard in self._shards:
                watch.leaves.append(await shard.watch(wanted, sink))
        except BaseException:
            watch.close()
            raise
        return watch

    async def close(self) -> None:
        """Let all consumers go."""
        for shard in self._shards:
            await shard.close()

    def _state_changed(self, connected: bool) -> None:
        for shard in self._shards:
            shard.connection_changed(connected)
