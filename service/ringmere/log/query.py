"""Questions to the log. What is read as a verdict comes from the leader; a replica may only hint.

:func:`bounds` takes three reads, so their order matters. ``first`` is read before the counts: had it been
read after them, a session that was trimmed in between would show a count without a fence next to a
first that others were evicted in front of, and something lost would look like nothing lost. Read
before, a trim in between shows as a fence, and an expiry as a stream that begins later; either can only
turn "nothing lost" into "maybe lost", never the other way round. A purge is recorded before it is
carried out, so it is asked for last.

For the same reason whoever missed a sequence by :func:`contains` must read the bounds *after* the miss:
bounds from before it may show a first that has since been evicted (contract 4.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec

from ringmere.core.cursor import SubjectBounds
from ringmere.core.errors import LogUnavailable
from ringmere.core.event import is_terminal
from ringmere.log.connect import Connection, Reply
from ringmere.log.heads import purge_head, read_head
from ringmere.log.leader import Leader, StreamState
from ringmere.log.places import Place
from ringmere.log.port import Head, Stored
from ringmere.log.stamps import direct_stamp, status

TRIES = 5
"""Reads of bounds that were overtaken by the session's first message."""
PIPELINE = 128
"""Questions of one :func:`newer` under way at once."""
NOT_FOUND = 404

_encode = msgspec.json.Encoder().encode


async def bounds(leader: Leader, place: Place, purged_to: Callable[[], Awaitable[int]]) -> SubjectBounds:
    """Return what the leader says about a session's subject and its stream."""
    for _ in range(TRIES):
        first, last = await asyncio.gather(
            leader.next(place.stream, place.subject, 1), leader.last(place.stream, place.subject)
        )
        state = await leader.state(place.stream, place.subject)
        stored = (state.subjects or {}).get(place.subject, 0)
        if stored and first is None:
            continue
        purged = await purged_to()
        lowest = lowest_of(state)
        if first is None or not stored:
            return SubjectBounds(state.last_seq, lowest, 0, 0, 0, purged, state.ring_from)
        newest = max(first.stored.seq, last.stored.seq if last is not None else 0)
        tail = max(state.last_seq, newest)
        return SubjectBounds(tail, lowest, first.stored.seq, newest, stored, purged, state.ring_from)
    raise LogUnavailable("the session changes faster than it can be read")


def lowest_of(state: StreamState) -> int:
    """Return the stream's first sequence: one past the last when it holds nothing."""
    return max(state.first_seq, 1) if state.messages else state.last_seq + 1


async def contains(leader: Leader, place: Place, seq: int) -> bool:
    """Say whether ``seq`` is stored on the session's subject."""
    if seq < 1:
        return False
    found = await leader.at(place.stream, seq)
    return found is not None and found.subject == place.subject


async def last(leader: Leader, place: Place) -> Stored | None:
    """Return the session's newest message."""
    found = await leader.last(place.stream, place.subject)
    return found.stored if found is not None else None


async def head(connection: Connection, place: Place, purged_to: Callable[[], Awaitable[int]]) -> Head | None:
    """Return what the head stream keeps of a session; a purge that has not reached it yet counts as done."""
    found = await read_head(connection, place.head, place.subject)
    if found is None or found.seq <= await purged_to():
        return None
    return Head(*found, is_terminal(found.payload))


async def newer(connection: Connection, positions: Sequence[tuple[Place, int]], timeout: float) -> list[bool]:
    """Say for each (session, sequence) whether a newer message is stored, as far as a replica knows."""
    answers: list[bool] = []
    for part in _parts(positions):
        requests = [
            connection.start_request(
                f"{connection.api}.DIRECT.GET.{place.stream}",
                _encode({"seq": seq + 1, "next_by_subj": place.subject}),
                timeout=timeout,
            )
            for place, seq in part
        ]
        replies = await asyncio.gather(*requests, return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
            answers.append(_is_message(reply))
    return answers


def _parts(positions: Sequence[tuple[Place, int]]) -> Iterator[Sequence[tuple[Place, int]]]:
    for start in range(0, len(positions), PIPELINE):
        yield positions[start : start + PIPELINE]


def _is_message(reply: Reply) -> bool:
    if direct_stamp(reply.headers) is not None:
        return True
    if status(reply.headers) == NOT_FOUND:
        return False
    raise LogUnavailable(f"a direct get was answered with status {status(reply.headers)}")


async def purge(
    connection: Connection,
    leader: Leader,
    place: Place,
    record: Callable[[int], Awaitable[None]],
    *,
    has_head: bool,
) -> int:
    """Remove what the session has stored now, and its head. ``record`` is told the last sequence before anything goes.

    Return that sequence, 0 when nothing is known of the session. What is appended meanwhile stays, so nobody loses an
    event that came after the purge was asked for.
    """
    newest = await last(leader, place)
    if newest is None and has_head:
        newest = await read_head(connection, place.head, place.subject)
    last_seq = newest.seq if newest is not None else 0
    await record(last_seq)
    await leader.purge(place.stream, place.subject, last_seq)
    if has_head:
        # The head may not be of the last event yet; such a head is known as purged by its record.
        await purge_head(connection, place.head, place.subject, last_seq)
    return last_seq
