"""A TCP relay between a client and an instance: it cuts, points elsewhere, and remembers what was asked."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from ringmere.core.frames import HEARTBEAT

_CURSOR = re.compile(rb"^last-event-id: *(.*?)\r$", re.IGNORECASE | re.MULTILINE)


class Relay:
    """What a client connects to. ``asked`` holds the head of each request, ``connections`` and ``beats`` count.

    While ``muted``, what the target answers is thrown away: the target believes that it has been heard.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.url = ""
        self.asked: list[str] = []
        self.connections = 0
        self.beats = 0
        self.muted = False
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def cursors(self) -> list[str | None]:
        """The ``Last-Event-ID`` of each request for events, None where there was none."""
        found = [_CURSOR.search(head.encode()) for head in self.asked if "/events" in head.split("\r\n")[0]]
        return [match[1].decode() if match else None for match in found]

    def cut(self) -> None:
        """Reset every connection, on both sides."""
        for writer in self._open:
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join a client with the target of the moment; without one the client is dropped."""
        place = urlsplit(self.target)
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        far = None
        try:
            from_far, far = await asyncio.open_connection(place.hostname, place.port)
            self._open.add(far)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._upstream(reader, far))
                group.create_task(self._downstream(from_far, writer))
        except* OSError:
            writer.transport.abort()
        finally:
            for end in (writer, far):
                if end is not None:
                    self._open.discard(end)
                    end.close()
            self._tasks.discard(task)

    async def _upstream(self, reader: asyncio.StreamReader, far: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if b" HTTP/1." in data:
                self.asked.append(data.decode("latin-1"))
            far.write(data)
            await far.drain()
        far.transport.abort()

    async def _downstream(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.muted:
                continue
            self.beats += data.count(HEARTBEAT)
            near.write(data)
            await near.drain()
        near.close()

    async def close(self) -> None:
        """Drop all connections and wait until nothing of them is left."""
        self.cut()
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def relay(target: str) -> AsyncIterator[Relay]:
    """Relay a free port of the loopback interface to ``target``, the address of an instance."""
    opened = Relay(target)
    server = await asyncio.start_server(opened.accept, "127.0.0.1", 0)
    opened.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield opened
    finally:
        server.close()
        await opened.close()
