"""Where a session lives: its shard, streams and subjects, worked out once and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ringmere.core.session import check_session_id
from ringmere.log.shards import event_subject, head_name, live_subject, shard_of, stream_name

REMEMBERED = 8192
"""Sessions whose place is remembered."""


class Place(NamedTuple):
    """Everything about a session that has a name on NATS."""

    session: str
    shard: int
    stream: str
    head: str
    subject: str
    live: str


class Places:
    """Finds places for a fixed number of shards."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.of = lru_cache(REMEMBERED)(self._find)

    def streams(self) -> Iterator[tuple[str, str]]:
        """Return each shard's stream with the subject filter that matches all its sessions."""
        for shard in range(self.shards):
            yield stream_name(shard), event_subject(shard, "*")

    def _find(self, session: str) -> Place:
        """Return a session's place. Raises ``InvalidSessionId`` before any subject is made of it."""
        shard = shard_of(check_session_id(session), self.shards)
        return Place(
            session,
            shard,
            stream_name(shard),
            head_name(shard),
            event_subject(shard, session),
            live_subject(shard, session),
        )
