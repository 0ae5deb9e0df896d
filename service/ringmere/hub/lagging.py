"""A reader whose transport is full: what its backlog takes of a turn, and how often the ring has overtaken it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ringmere.core.backlog import Backlog, Frame, Overflow
from ringmere.core.frames import is_verdict
from ringmere.core.limits import MAX_OVERTAKES, OVERTAKES_WITHIN
from ringmere.core.reasons import CloseReason


class Taken(NamedTuple):
    """What a backlog took of a turn: ``size`` bytes more than before, ``merged`` events inside of others.

    ``reason`` says why there was no room for the rest, None when there was; ``left`` counts the events of the
    rest, ``event_bytes`` is the size of its first.
    """

    size: int
    merged: int
    left: int = 0
    reason: CloseReason | None = None
    event_bytes: int = 0


def take_turn(backlog: Backlog, turn: Sequence[Frame], warn: Callable[[], None]) -> Taken:
    """Offer a turn's frames in their order; ``warn`` is called where a warning is due, right behind the event."""
    size, merged = backlog.bytes, backlog.merged
    for index, frame in enumerate(turn):
        if not frame.size:
            backlog.push_control(frame.sse)
            continue
        answer = backlog.offer(frame)
        if isinstance(answer, CloseReason):
            rest = turn[index:]
            if backlog.overflow is Overflow.CATCHUP:
                _keep_notices(backlog, rest)
            left = sum(1 for frame in rest if frame.size)
            return Taken(backlog.bytes - size, backlog.merged - merged, left, answer, frame.size)
        if answer:
            warn()
    return Taken(backlog.bytes - size, backlog.merged - merged)


def _keep_notices(backlog: Backlog, rest: Sequence[Frame]) -> None:
    """Queue the control frames of a turn's rest, whose events will come from the log, and with them the verdicts."""
    backlog.drop_trailing_verdict()
    for frame in rest:
        if not frame.size and not is_verdict(frame.sse):
            backlog.push_control(frame.sse)


class Overtakes:
    """Remembers when retention overtook a reader that reads the log at its own pace (contract 6.7)."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MAX_OVERTAKES)

    def note(self, now: float) -> None:
        """It happened; ``now`` in seconds."""
        self._times.append(now)

    def too_many(self) -> bool:
        """Say whether the newest ones came so close together that the reader will never catch up."""
        times = self._times
        return len(times) == MAX_OVERTAKES and times[-1] - times[0] <= OVERTAKES_WITHIN
