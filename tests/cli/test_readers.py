"""``ringmere readers`` against a real gateway."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

from support.command import Done, ringmere
from support.nats import eventually


@asynccontextmanager
async def stopped_reader(server: str, session: str) -> AsyncIterator[None]:
    """Open a stream, read its headers and nothing more."""
    at = urlsplit(server)
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        await loop.sock_connect(sock, (at.hostname, at.port))
        await loop.sock_sendall(sock, f"GET /session/{session}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert b"200 OK" in await loop.sock_recv(sock, 4096)
        yield


async def test_nobody_is_behind(server: str) -> None:
    assert (await ringmere("readers", server=server)).out == "nobody is behind\n"
    assert (await ringmere("readers", "--json", server=server)).out == ""


async def test_a_reader_that_does_not_read_is_shown(server: str) -> None:
    async with stopped_reader(server, "lagging"), aiohttp.ClientSession() as http:
        found: list[Done] = []

        async def listed() -> bool:
            events = [{"type": "note", "data": "x" * 60_000}] * 20
            async with http.post(f"{server}/session/lagging/events", json=events) as answer:
                assert answer.status == 201
            found.append(await ringmere("readers", "--json", server=server))
            return any(row["backlogEvents"] for row in found[-1].lines)

        await eventually(listed, "the reader is behind", 60.0)
        [row] = found[-1].lines
        assert row["sessionId"] == "lagging"
        done = await ringmere("readers", "--limit", "1", server=server)
        title, line = done.out.splitlines()
        assert title.split()[:4] == ["session", "behind", "events", "queued"]
        assert line.split()[0] == "lagging"


async def test_a_limit_that_is_none_ends_with_2(server: str) -> None:
    assert (await ringmere("readers", "--limit", "0", server=server)).code == 2
