"""What tests of the client's streams of many sessions share."""

from __future__ import annotations

import asyncio

from ringmere.client.items import Event
from ringmere.client.many import ManyStream


async def take(stream: ManyStream, count: int, deadline: float = 20.0) -> list[Event]:
    """Return the next events."""
    found: list[Event] = []
    async with asyncio.timeout(deadline):
        while len(found) < count:
            item = await anext(stream)
            if isinstance(item, Event):
                found.append(item)
    return found
