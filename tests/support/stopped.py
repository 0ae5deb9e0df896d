"""A reader that has opened its stream and reads nothing of it."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit


async def stopped_reader(url: str, session: str) -> socket.socket:
    """Open a stream of the gateway at ``url`` and read only that it has begun; the caller closes the socket."""
    at, loop = urlsplit(url), asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    # Small, so that it does not take many events until the gateway notices.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    await loop.sock_connect(sock, (at.hostname, at.port))
    await loop.sock_sendall(sock, f"GET /session/{session}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert b"200 OK" in await loop.sock_recv(sock, 4096)
    return sock
