"""What a service manager is told over ``$NOTIFY_SOCKET``: ready, stopping, what goes on, and that the loop lives.

The protocol is systemd's ``sd_notify``: one datagram a message, lines of ``KEY=value``. Without the variable
nothing is sent. A unit of ``Type=notify`` is started when the instance serves, not when its door opens.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping

import structlog

logger = structlog.get_logger("ringmere")


class Notifier:
    """Tells the service manager named by ``environ``. No method raises or blocks: who serves does not wait for it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.failed = False
        """Whether the last message could not be sent; said in a log line when it begins."""
        self.watchdog = _watchdog(environ) if self._address else 0.0
        """Seconds without a ping after which the manager takes this process for dead; 0 when it does not watch."""

    def ready(self, status: str) -> None:
        """Say that the instance serves: ``/readyz`` would answer 200."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """Say in a line for people what goes on."""
        self._send(f"STATUS={status}")

    def stopping(self, status: str) -> None:
        """Say that the end has begun."""
        self._send(f"STOPPING=1\nSTATUS={status}")

    async def watch(self) -> None:
        """Ping twice in each watchdog interval, for ever; a loop that stands still does not get here."""
        while self.watchdog:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog / 2)

    def _send(self, text: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            if not self.failed:
                logger.warning("notify_failed", reason=str(error))
            self.failed = True
        else:
            self.failed = False


def without_manager(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a child process that must not speak to the service manager itself."""
    return {key: value for key, value in environ.items() if key not in {"NOTIFY_SOCKET", *_WATCHDOG}}


_WATCHDOG = ("WATCHDOG_USEC", "WATCHDOG_PID")


def _address(text: str) -> bytes | None:
    """Return the socket's address; ``@`` begins a name that is no file (the kernel writes a zero byte)."""
    if text.startswith("@"):
        return b"\0" + os.fsencode(text[1:])
    if text.startswith("/"):
        return os.fsencode(text)
    if text:
        logger.warning("notify_socket_ignored", address=text)
    return None


def _watchdog(environ: Mapping[str, str]) -> float:
    """Return the interval in seconds, 0 when none is set or it is meant for another process."""
    interval, process = (environ.get(name, "") for name in _WATCHDOG)
    if not interval.isascii() or not interval.isdigit() or process not in ("", str(os.getpid())):
        return 0.0
    return int(interval) / 1e6
