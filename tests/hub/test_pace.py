"""Bulk writes are spread over turns of the loop, in order, and a reader that goes away costs nobody a turn."""

from __future__ import annotations

import asyncio

from ringmere.hub.pace import Pace


async def test_no_turn_of_the_loop_has_more_than_its_share() -> None:
    pace, turn, seen = Pace(3), 0, []

    async def write(name: int) -> None:
        await pace.turn()
        seen.append((turn, name))

    tasks = [asyncio.create_task(write(name)) for name in range(10)]
    while len(seen) < 10:
        await asyncio.sleep(0)
        turn += 1
    assert [name for _, name in seen] == list(range(10))
    assert all(sum(1 for at, _ in seen if at == number) <= 3 for number in range(turn + 1))
    await asyncio.gather(*tasks)


async def test_a_waiter_that_is_cancelled_takes_no_place() -> None:
    pace = Pace(1)
    first = asyncio.create_task(pace.turn())
    gone = asyncio.create_task(pace.turn())
    next_one = asyncio.create_task(pace.turn())
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(5):
        await next_one
    assert first.done()
    assert gone.cancelled()


async def test_an_idle_pace_leaves_nothing_on_the_loop() -> None:
    pace = Pace(2)
    await pace.turn()
    for _ in range(3):
        await asyncio.sleep(0)
    assert pace._left == 2
