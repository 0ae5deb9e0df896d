"""The cursor of a stream of many sessions: one id for each shard, as one text (contract 7.2).

With one shard it is that id, in digits; with several it is ``shard:id`` pairs in the order of the shards, all of
them, joined by commas. A shard's id says: everything of the stream's sessions there, up to this, was processed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ringmere.core.cursor import parse_cursor

_PAIR = re.compile(r"(0|[1-9][0-9]?):([0-9]{1,16})")


def format_composite(ids: Sequence[int]) -> str:
    """Return the cursor for the ids of all shards, in their order."""
    if len(ids) == 1:
        return str(ids[0])
    return ",".join(f"{shard}:{public_id}" for shard, public_id in enumerate(ids))


def parse_composite(text: str, shards: int) -> tuple[int, ...] | None:
    """Return the ids that a cursor spells, one a shard; None for anything :func:`format_composite` never writes.

    A shard left out is no cursor either: nobody could say where its sessions are to go on.
    """
    if shards == 1:
        cursor = parse_cursor(text)
        return None if cursor is None else (cursor,)
    pairs = text.split(",", shards)
    if len(pairs) != shards:
        return None
    ids = []
    for shard, pair in enumerate(pairs):
        match = _PAIR.fullmatch(pair)
        cursor = parse_cursor(match[2]) if match is not None and int(match[1]) == shard else None
        if cursor is None:
            return None
        ids.append(cursor)
    return tuple(ids)


def is_composite(text: str) -> bool:
    """Say whether ``text`` may be a cursor of a stream of many sessions, whatever the number of shards."""
    return parse_composite(text, text.count(",") + 1) is not None
