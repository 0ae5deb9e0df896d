"""A reader whose transport is full: what its backlog takes of a turn, and how often the ring has overtaken it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ringmere.core.backlog import Backlog, Frame, Overflow
from ringmere.core.limits import MAX_OVERTAKES, OVERTAKES_WITHIN
from ringmere.core.reasons import CloseReason


class Taken(NamedTuple):
    """What a backlog took of a turn: ``size`` bytes more than before, ``merged`` events inside of others.

    ``last`` is the newest event's sequence, 0 when it took none that has one. ``reason`` says why there was no
    room for the rest, None when there was; ``left`` counts the events of the rest, ``event_bytes`` is the size
    of its first.
    """

    size: int
    merged: int
    last: int = 0
    left: int = 0
    reason: CloseReason | None = None
    event_bytes: int = 0


def take_turn(backlog: Backlog, turn: Sequence[Frame], warn: Callable[[], None]) -> Taken:
    """Offer a turn's frames in their order; ``warn`` is called where a warning is due, right behind the event."""
    size, merged, last = backlog.bytes, backlog.merged, 0
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
            return Taken(backlog.bytes - size, backlog.merged - merged, last, left, answer, frame.size)
        last = frame.seq or last
        if answer:
            warn()
    return Taken(backlog.bytes - size, backlog.merged - merged, last)


def _keep_notices(backlog: Backlog, rest: Sequence[Frame]) -> None:
    """Queue the control frames of a turn's rest, whose events will come from the log.

    So will the verdict that nothing was accepted behind.
    """
    backlog.drop_trailing_verdict()
    for frame in rest:
        if not frame.size:
            backlog.push_control(frame.sse)


class Overtakes:
    """Remembers when retention overtook a reader that reads the log at its own pace (contract 6.7)."""

    __slots__ = ("_last_id", "_times")

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MAX_OVERTAKES)
        self._last_id = -1

    def note(self, now: float, last_id: int) -> None:
        """It happened behind ``last_id``; ``now`` in seconds. Twice behind one event is one loss that has grown."""
        if last_id != self._last_id:
            self._last_id = last_id
            self._times.append(now)

    def too_many(self) -> bool:
        """Say whether the newest ones came so close together that the reader will never catch up."""
        times = self._times
        return len(times) == MAX_OVERTAKES and times[-1] - times[0] <= OVERTAKES_WITHIN
