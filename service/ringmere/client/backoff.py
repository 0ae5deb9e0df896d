"""How long to wait before trying again: pure arithmetic, the dice are the caller's.

A delay is a floor plus a random part. The floor is what the server asked for (``retry:``,
``Retry-After``, ``retryAfterMs``), so jitter never undercuts it; the width of the random part doubles
with every failure up to a cap, so that clients which were dropped together come back spread out. An answer that
says when to come back is no silence: the server has its own idea of the load, and the width stays near what it asked
for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class Backoff:
    """The shape of the delays, all in seconds."""

    retry: float = 3.0
    """The floor until the server has sent a ``retry:`` of its own (contract 3.7)."""
    first: float = 2.0
    """Width of the random part after the first failure."""
    widest: float = 30.0
    """What the width grows to."""
    longest_floor: float = 300.0
    """What a server can ask for at most; beyond it a client would look dead to its user."""

    def delay(self, failures: int, floor: float, roll: float, asked: float = 0.0) -> float:
        """Return how long to wait after ``failures`` in a row, 1 for the first.

        ``floor`` is what the server asked for, ``roll`` a random number in [0, 1). ``asked`` is what it asked for
        this once, 0 for nothing: then the random part is no wider than that, or than after a first failure.
        """
        doublings = min(max(failures, 1) - 1, 62)
        widest = min(self.widest, max(self.first, asked)) if asked > 0 else self.widest
        width = min(widest, self.first * 2.0**doublings)
        return min(max(floor, 0.0), self.longest_floor) + roll * width


class Waits:
    """The waits of one stream or call: what the server asked for, and how often in a row it went wrong."""

    def __init__(self, shape: Backoff, roll: Callable[[], float]) -> None:
        self.failures = 0
        self._unanswered = 0
        self._shape = shape
        self._roll = roll
        self._retry = shape.retry
        self._once = 0.0

    def set_retry(self, seconds: float) -> None:
        """Take ``seconds`` as the floor of all waits from now on (``retry:``)."""
        self._retry = seconds

    def ask_once(self, seconds: float) -> None:
        """Take ``seconds`` as the floor of the next wait only (``Retry-After`` and its like).

        Whoever answers is there: should the next try find nobody, it is the first to do so (contract 3.10).
        """
        self._once = max(self._once, seconds)

    def progress(self) -> None:
        """Note that it went well: the next failure is the first again."""
        self.failures = self._unanswered = 0

    def next(self) -> float:
        """Note a failure and return how long to wait after it, in seconds."""
        self.failures += 1
        self._unanswered += 1
        asked, self._once = self._once, 0.0
        delay = self._shape.delay(self._unanswered, max(self._retry, asked), self._roll(), asked)
        if asked > 0:
            self._unanswered = 0
        return delay


def parse_retry_after(text: str | None, now: float) -> float:
    """Return the seconds that a ``Retry-After`` asks for: digits or an HTTP date, 0 for anything else.

    ``now`` is seconds since 1970, to compare a date with.
    """
    if text is None:
        return 0.0
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) <= 9 else math.inf
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, date.timestamp() - now)
