"""Real NATS servers for tests: a fresh one takes about 50 ms, so every test has its own."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ringmere.core.errors import LogUnavailable
from ringmere.embedded import EmbeddedServer, free_port
from ringmere.log.connect import Connection, ConnectOptions

WAIT = 15.0


async def eventually(condition: Callable[[], bool | Awaitable[bool]], what: str, timeout: float = WAIT) -> None:
    """Return as soon as ``condition`` holds; fail with ``what`` at the deadline."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result if isinstance(result, bool) else await result:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running_server(directory: Path, **options: Any) -> AsyncIterator[EmbeddedServer]:
    """Run one server; ``options`` are those of :class:`EmbeddedServer`. It is killed at the end."""
    server = EmbeddedServer(directory, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


@asynccontextmanager
async def connected(server: EmbeddedServer | str, **options: Any) -> AsyncIterator[Connection]:
    """Open a connection to a server or address and close it at the end."""
    url = server if isinstance(server, str) else server.url
    connection = await Connection.open(ConnectOptions(servers=(url,), **options))
    try:
        yield connection
    finally:
        await connection.close()


async def api(connection: Connection, subject: str, body: object = None) -> Any:
    """Ask the JetStream API and return the decoded answer, errors included."""
    payload = b"" if body is None else json.dumps(body).encode()
    return json.loads((await connection.request(f"$JS.API.{subject}", payload, timeout=5)).payload)


async def append(connection: Connection, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> int:
    """Store one message and return its sequence."""
    answer = json.loads((await connection.request(subject, payload, headers, timeout=5)).payload)
    assert "error" not in answer, answer
    return int(answer["seq"])


class Cluster:
    """Three servers that replicate: ``nodes`` can be killed, stopped and started one by one."""

    def __init__(self, directory: Path, extra: str = "") -> None:
        unique = secrets.token_hex(4)
        routes = [free_port() for _ in range(3)]
        addresses = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        self.nodes = [
            EmbeddedServer(
                directory / f"n{index}",
                name=f"n{index}-{unique}",
                extra=f'cluster {{ name: "c", listen: "127.0.0.1:{port}", routes: [{addresses}] }}\n{extra}',
            )
            for index, port in enumerate(routes)
        ]

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of all nodes."""
        return tuple(node.url for node in self.nodes)

    async def start(self) -> None:
        """Start all nodes and return when JetStream has a leader and takes R3 streams."""
        await asyncio.gather(*(node.start() for node in self.nodes))
        await eventually(self._takes_streams, "the cluster takes a replicated stream", 30)

    async def kill(self) -> None:
        """Kill all nodes."""
        await asyncio.gather(*(node.kill() for node in self.nodes))

    def node(self, name: str) -> EmbeddedServer:
        """Return the node of that name (as STREAM.INFO tells a leader)."""
        return next(node for node in self.nodes if node.name == name)

    async def leader(self, connection: Connection, stream: str) -> EmbeddedServer | None:
        """Return the node that leads ``stream`` now, None during an election."""
        info = await api(connection, f"STREAM.INFO.{stream}")
        name = info.get("cluster", {}).get("leader")
        return self.node(name) if name else None

    async def _takes_streams(self) -> bool:
        async with connected(self.urls[0]) as connection:
            probe = {"name": "PROBE", "subjects": ["probe"], "num_replicas": 3}
            try:
                answer = await connection.request("$JS.API.STREAM.CREATE.PROBE", json.dumps(probe).encode())
                if b'"error"' in answer.payload:
                    return False
                await connection.request("$JS.API.STREAM.DELETE.PROBE", timeout=5)
            except LogUnavailable:
                return False
            return True
