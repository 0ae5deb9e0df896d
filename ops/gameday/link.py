"""A slow link: a TCP relay that holds back what the far side says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ringmere.core.limits import MIB

UNDER_WAY = 1024
"""Pieces of at most 64 KiB that one direction holds."""
PIECE = MIB // 16


class Link:
    """Joins whoever connects to ``port`` with ``target``. ``delay`` (seconds) is that of the target's answers."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0
        self.delay = 0.0

    async def accept(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        """Carry one connection until one side ends it."""
        try:
            far_in, far_out = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            near_out.transport.abort()
            return
        ways = [asyncio.create_task(self._carry(near_in, far_out, False)),
                asyncio.create_task(self._carry(far_in, near_out, True))]  # fmt: skip
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (near_out, far_out):
                end.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, slow: bool) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(UNDER_WAY)
        clock = asyncio.get_running_loop().time

        async def fill() -> None:
            while data := await source.read(PIECE):
                await pieces.put((clock() + (self.delay if slow else 0.0), data))
            await pieces.put((clock(), b""))

        filling = asyncio.create_task(fill())
        try:
            while True:
                due, data = await pieces.get()
                if not data:
                    return
                await asyncio.sleep(max(0.0, due - clock()))
                to.write(data)
                await to.drain()
        finally:
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)


@asynccontextmanager
async def link() -> AsyncIterator[Link]:
    """Open a link on a free port; ``target`` is to be set before anybody connects."""
    opened = Link()
    server = await asyncio.start_server(opened.accept, "127.0.0.1", 0)
    opened.port = server.sockets[0].getsockname()[1]
    try:
        yield opened
    finally:
        server.close()
