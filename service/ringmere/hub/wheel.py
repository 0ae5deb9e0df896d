"""One coarse timer wheel for all heartbeats, write deadlines and ages: no task and no timer per connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TICK = 0.25
"""Resolution in seconds; a timer fires up to one tick late."""


class Timer:
    """A pending call; :meth:`cancel` it, or let it fire once."""

    __slots__ = ("_slot", "callback")

    def __init__(self, slot: dict[Timer, None], callback: Callable[[], None]) -> None:
        self._slot = slot
        self.callback = callback

    def cancel(self) -> None:
        """Forget the call; harmless when it has fired."""
        self._slot.pop(self, None)


class Wheel:
    """Calls back after about the given time. Empty slots cost nothing.

    ``late`` is told at each turn how many seconds later than due it came.
    """

    def __init__(self, late: Callable[[float], None] = lambda seconds: None) -> None:
        self._late = late
        self._slots: dict[int, dict[Timer, None]] = {}
        self._now = 0
        self._started = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to turn, on the running loop."""
        self._started = asyncio.get_running_loop().time() - self._now * TICK
        self._arm()

    def stop(self) -> None:
        """Stop turning; pending timers never fire."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._slots.clear()

    @property
    def pending(self) -> int:
        """Timers that have neither fired nor been cancelled."""
        return sum(len(slot) for slot in self._slots.values())

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once after ``delay`` seconds, at most a tick late."""
        due = self._now + max(1, round(delay / TICK) + (delay > 0))
        slot = self._slots.setdefault(due, {})
        timer = Timer(slot, callback)
        slot[timer] = None
        return timer

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._handle = loop.call_at(self._started + (self._now + 1) * TICK, self._turn)

    @staticmethod
    def _fire(timer: Timer) -> None:
        """One callback's fault must not cost the other timers of its slot."""
        try:
            timer.callback()
        except Exception as error:
            context = {"message": "a timer callback failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _turn(self) -> None:
        passed = asyncio.get_running_loop().time() - self._started
        self._late(max(0.0, passed - (self._now + 1) * TICK))
        reached = int(passed / TICK + 1e-6)
        try:
            while self._now < reached:
                self._now += 1
                slot = self._slots.pop(self._now, None)
                while slot:
                    timer, _ = slot.popitem()
                    self._fire(timer)
        finally:
            self._arm()
