"""An event loop whose clock jumps to the next timer as soon as nothing else is left to do.

Tests of timeouts, sweeps and retries run in no time and always in the same order. Only for code that
waits for nothing but timers and other code of the same loop.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

BEGAN = 1000.0
EPOCH_NS = 1_700_000_000 * 1_000_000_000


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self) -> None:
        super().__init__()
        self.now = BEGAN

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("everything waits and no timer is set: a deadlock")
        self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module; :meth:`time_ns` is the wall clock that goes with :meth:`time`."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def time_ns(self) -> int:
        return EPOCH_NS + int(self.time() * 1e9)

    def jump(self, seconds: float) -> None:
        """Let time pass in one step: every timer that falls due fires at the end of it."""
        self._jumping.now += seconds


async def eventually(condition: Callable[[], Any], within: float = 10.0, what: str = "") -> None:
    """Return once ``condition`` holds; fail when it does not within virtual seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not condition():
        assert loop.time() < deadline, f"did not come true within {within} s: {what or condition}"
        await asyncio.sleep(0.01)
