"""Listening: an open door with an address, and its orderly end."""

from __future__ import annotations

import asyncio

from aiohttp import web

from ringmere.http.app import App
from ringmere.http.options import ACCEPT_BACKLOG
from ringmere.http.protocol import GatewayServer

STOP_GRACE = 2.0
"""Seconds that requests in flight get to end when a listener closes."""


class Listener:
    """An open TCP port. Made by :func:`listen`."""

    def __init__(self, runner: web.ServerRunner) -> None:
        self.runner = runner

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each socket, the port as chosen by the kernel when 0 was asked for."""
        return [(address[0], address[1]) for address in self.runner.addresses]

    async def close(self) -> None:
        """Take no connection any more, let requests in flight end, close all connections.

        Close the hub first: its streams end then, and nothing here has to wait for them.
        """
        await self.runner.cleanup()


async def listen(app: App, host: str, port: int, *, shared: bool = False) -> Listener:
    """Open ``host:port`` for ``app``; port 0 takes a free one. Raises ``OSError`` when it cannot be had.

    ``shared`` lets other processes open the same port; the kernel spreads connections over all of them.
    """
    server = GatewayServer(app, app.door.options.report, asyncio.get_running_loop())
    runner = web.ServerRunner(server, shutdown_timeout=STOP_GRACE)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=ACCEPT_BACKLOG, reuse_port=shared or None).start()
    except BaseException:
        await runner.cleanup()
        raise
    return Listener(runner)
