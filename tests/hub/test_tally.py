"""What a turn delivered, by transport."""

from __future__ import annotations

import asyncio

from ringmere.hub.observer import Observer
from ringmere.hub.tally import Tally


class Told(Observer):
    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int, float | None]] = []

    def delivered(self, transport: str, events: int, size: int, lag: float | None) -> None:
        self.calls.append((transport, events, size, lag))


async def test_a_turn_is_told_once_for_each_transport_with_the_lag_of_its_oldest() -> None:
    told = Told()
    tally = Tally(told, lambda: 10_000_000_000)
    tally.add("sse", 2, 20, 9_000_000_000)
    tally.add("websocket", 1, 5, 0)
    tally.add("sse", 1, 10, 8_000_000_000)
    assert told.calls == []
    await asyncio.sleep(0)
    assert told.calls == [("sse", 3, 30, 2.0), ("websocket", 1, 5, None)]
    tally.add("websocket", 1, 1, 10_000_000_000)
    await asyncio.sleep(0)
    assert told.calls[2:] == [("websocket", 1, 1, 0.0)]
