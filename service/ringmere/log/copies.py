"""Streams that copy from another one, head streams among them: how far behind they are, and since when unheard.

What a stream copies is answered by its leader only, so it is asked, at a low rate: one request at a time, all streams
in :data:`EVERY` seconds. Streams that copy nothing are asked too, for one may be replaced by a mirror.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ringmere.core.errors import LogUnavailable
from ringmere.log import api
from ringmere.log.connect import Connection
from ringmere.log.port import Copy
from ringmere.log.shards import head_name, stream_name

EVERY = 10.0
"""Seconds from one look at all streams to the next."""


class Copies:
    """Looks at the streams of all shards, and tells what it sees after each round."""

    def __init__(
        self, connection: Connection, shards: int, tell: Callable[[Sequence[Copy]], None], *, heads: bool, every: float
    ) -> None:
        self._connection = connection
        self._every = every
        self._tell = tell
        self._streams = [("events", shard, stream_name(shard)) for shard in range(shards)]
        if heads:
            self._streams += [("head", shard, head_name(shard)) for shard in range(shards)]
        self._known: dict[str, Copy] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look, on the running loop."""
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _watch(self) -> None:
        while True:
            for role, shard, stream in self._streams:
                try:
                    info = await api.stream_info(self._connection, stream)
                except LogUnavailable:
                    # What was known stays, and its silence grows: that is what cannot be heard of looks like.
                    continue
                self._learn(role, shard, stream, info)
            self._tell(list(self._known.values()))
            await asyncio.sleep(self._every)

    def _learn(self, role: str, shard: int, stream: str, info: Any | None) -> None:
        origins = _origins(info) if info is not None else []
        if not origins:
            self._known.pop(stream, None)
            return
        now = asyncio.get_running_loop().time()
        before = self._known.get(stream)
        # Of an origin that it has never heard of a server says -1; then the time since the first look counts.
        silent = before.heard_at if before is not None else now
        heard = min(now - origin["active"] / 1e9 if origin.get("active", -1) >= 0 else silent for origin in origins)
        self._known[stream] = Copy(role, shard, max(int(origin.get("lag", 0)) for origin in origins), heard)


def _origins(info: Any) -> list[dict[str, Any]]:
    mirror = info.get("mirror")
    return [mirror] if mirror else list(info.get("sources") or [])
