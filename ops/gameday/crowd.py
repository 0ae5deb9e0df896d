"""Readers that are no good clients: some take nothing, some come back after too long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

import aiohttp

from ringmere.client.publish import Publisher

BUFFER = 16384
"""Bytes that the kernel keeps for a reader that takes nothing."""
HOLD = 0.2
PATIENCE = 15.0


class Crowd:
    """Readers of sessions at one gateway who read nothing until told to, and come anew after ``sits`` seconds."""

    def __init__(self, url: str, sessions: Sequence[str], each: int, sits: float) -> None:
        self._url = url
        self._sits = sits
        self._who = [session for session in sessions for _ in range(each)]
        self._reading = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._here: set[int] = set()

    async def come(self) -> None:
        """Open all streams and return when each has begun."""
        self._tasks = [asyncio.create_task(self._sit(*who)) for who in enumerate(self._who)]
        async with asyncio.timeout(PATIENCE):
            while len(self._here) < len(self._who):
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(HOLD / 4)

    def read_on(self) -> None:
        """Let all of them read what there is, from now on."""
        self._reading.set()

    async def go(self) -> None:
        """Leave."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _sit(self, number: int, session: str) -> None:
        at, loop = urlsplit(self._url), asyncio.get_running_loop()
        while True:
            with socket.socket() as sock, contextlib.suppress(OSError):
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
                await loop.sock_connect(sock, (at.hostname, at.port))
                await loop.sock_sendall(sock, f"GET /session/{session}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                await loop.sock_recv(sock, 512)
                self._here.add(number)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._reading.wait(), self._sits)
                while self._reading.is_set() and await loop.sock_recv(sock, 65536):
                    continue
            await asyncio.sleep(HOLD)


async def flood(url: str, sessions: Sequence[str], size: int, events: int) -> None:
    """Publish ``events`` of ``size`` bytes to each of the sessions."""
    async with Publisher(url) as door:
        for session in sessions:
            await door.publish_batch(session, [{"type": "flood", "data": "x" * size} for _ in range(events)])


async def come_back(url: str, session: str, cursor: int, times: int) -> None:
    """Come back ``times`` with a cursor, read the first frame, and leave."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as http:
        for _ in range(times):
            async with http.get(f"{url}/session/{session}/events?last_event_id={cursor}") as stream:
                await stream.content.readuntil(b"\n\n")
