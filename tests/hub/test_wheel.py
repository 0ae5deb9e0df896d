"""The wheel: timers fire once, at most a tick late, and a faulty one costs no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ringmere.hub.wheel import TICK, Wheel
from support.virtual import VirtualLoop


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.25, 1.0, 5.0, 30.0])
async def test_a_timer_fires_once_not_early_and_at_most_two_ticks_late(delay: float) -> None:
    wheel = Wheel()
    wheel.start()
    loop = asyncio.get_running_loop()
    fired: list[float] = []
    await asyncio.sleep(0.1)
    began = loop.time()
    wheel.call_later(delay, lambda: fired.append(loop.time() - began))
    await asyncio.sleep(delay + 5)
    wheel.stop()
    [spent] = fired
    assert delay - 1e-6 <= spent <= delay + 2 * TICK
    assert wheel.pending == 0


async def test_a_cancelled_timer_never_fires_also_when_its_neighbour_cancels_it() -> None:
    wheel = Wheel()
    wheel.start()
    fired: list[str] = []
    first = wheel.call_later(1, lambda: fired.append("first"))
    first.cancel()
    first.cancel()
    timers: list[Any] = []
    for index in range(2):
        timers.append(wheel.call_later(1, lambda index=index: (fired.append("x"), timers[1 - index].cancel())))
    await asyncio.sleep(3)
    assert fired == ["x"]
    wheel.stop()


async def test_a_timer_that_fails_is_reported_and_the_others_fire() -> None:
    wheel = Wheel()
    wheel.start()
    loop = asyncio.get_running_loop()
    faults: list[Any] = []
    loop.set_exception_handler(lambda _, context: faults.append(context))
    fired: list[int] = []
    for number in range(3):
        wheel.call_later(1, lambda number=number: fired.append(1 // number))
    await asyncio.sleep(3)
    assert len(fired) == 2
    assert len(faults) == 1
    wheel.stop()


async def test_after_a_stall_all_that_fell_due_fires_and_the_wheel_is_in_step_again() -> None:
    wheel = Wheel()
    wheel.start()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    fired: list[int] = []
    for seconds in (1, 5, 20):
        wheel.call_later(seconds, lambda seconds=seconds: fired.append(seconds))
    loop.jump(10)
    await asyncio.sleep(0.5)
    assert fired == [1, 5]
    await asyncio.sleep(11)
    assert fired == [1, 5, 20]
    wheel.stop()
