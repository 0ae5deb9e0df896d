"""The service manager's end of ``$NOTIFY_SOCKET``, as a real socket."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONG = 40.0


class Manager:
    """The service manager's end: everything it was sent, one entry a datagram."""

    def __init__(self, receiver: socket.socket, address: str) -> None:
        self.receiver = receiver
        self.env = {"NOTIFY_SOCKET": address}
        self.heard: list[dict[str, str]] = []

    def listen(self) -> list[dict[str, str]]:
        """Take what has come since the last time, without waiting."""
        fresh = []
        while True:
            try:
                text = self.receiver.recv(65536, socket.MSG_DONTWAIT).decode()
            except BlockingIOError:
                self.heard += fresh
                return fresh
            fresh.append(dict(line.split("=", 1) for line in text.splitlines()))

    async def wait_for(self, key: str, deadline: float = LONG) -> dict[str, str]:
        """Return the first message that has ``key``."""
        end = time.monotonic() + deadline
        while time.monotonic() < end:
            for message in self.listen():
                if key in message:
                    return message
            await asyncio.sleep(0.02)
        raise AssertionError(f"no {key} in {deadline} s, but {self.heard}")

    def said(self, key: str) -> bool:
        """Say whether any message had ``key``."""
        self.listen()
        return any(key in message for message in self.heard)


@contextmanager
def manager(address: str | Path) -> Iterator[Manager]:
    """Listen on a path, or on an abstract address that begins with ``@``."""
    name = str(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name[1:] if name.startswith("@") else name)
        yield Manager(receiver, name)
