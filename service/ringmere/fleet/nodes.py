"""The fleet's NATS: one server, or three that replicate, each of which can be killed and started again."""

from __future__ import annotations

import asyncio
import secrets
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from ringmere.core.errors import LogUnavailable, RingmereError
from ringmere.embedded import EmbeddedServer, EmbeddedServerError, free_port
from ringmere.fleet.gateways import FleetError
from ringmere.log.api import call
from ringmere.log.connect import Connection
from ringmere.log.options import ConnectOptions
from ringmere.log.shards import stream_name

START_TIMEOUT = 30.0
"""Seconds until a cluster must have a leader, and until a node that came back must have caught up."""
LOOK = 0.1
ANSWER = 1.0
"""Seconds that one question may take; another one follows."""
_MONITOR_TIMEOUT = aiohttp.ClientTimeout(total=1.0)


class Node(EmbeddedServer):
    """One server that also tells how many clients it has."""

    def __init__(self, data_dir: Path, name: str, cluster: str) -> None:
        self.monitor_port = free_port()
        super().__init__(data_dir, name=name, extra=f'http: "127.0.0.1:{self.monitor_port}"\n{cluster}')

    async def clients(self) -> int:
        """Return how many clients are connected; 0 when the node does not answer."""
        try:
            async with (
                aiohttp.ClientSession(timeout=_MONITOR_TIMEOUT) as http,
                http.get(f"http://127.0.0.1:{self.monitor_port}/varz") as response,
            ):
                return int(msgspec.json.decode(await response.read())["connections"])
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0


class Nodes:
    """``count`` servers (1 or 3) below ``directory``."""

    def __init__(self, directory: Path, count: int) -> None:
        unique = secrets.token_hex(4)
        self._names = [f"n{index}-{unique}" for index in range(count)]
        self.nodes: list[Node] = []
        routes = [free_port() for _ in range(count)]
        addresses = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        for name, port in zip(self._names, routes, strict=True):
            cluster = f'cluster {{ name: "fleet", listen: "127.0.0.1:{port}", routes: [{addresses}] }}\n'
            self.nodes.append(Node(directory / name, name, cluster if count > 1 else ""))

    @property
    def urls(self) -> str:
        """The addresses of all nodes, as ``--nats-url`` takes them."""
        return ",".join(node.url for node in self.nodes)

    async def start(self) -> None:
        """Start all nodes; return when JetStream answers. Raises :class:`FleetError` when it does not."""
        try:
            await asyncio.gather(*(node.start() for node in self.nodes))
        except (EmbeddedServerError, OSError) as error:
            raise FleetError(f"NATS did not start: {error}") from error
        deadline = time.monotonic() + START_TIMEOUT
        while not await self._has_leader():
            if time.monotonic() > deadline:
                raise FleetError(f"the NATS cluster has no leader after {START_TIMEOUT:g} s")
            await asyncio.sleep(LOOK)

    async def start_again(self, node: Node) -> None:
        """Start a node that was killed."""
        try:
            await node.start()
        except (EmbeddedServerError, OSError) as error:
            raise FleetError(f"NATS node {node.name} did not start again: {error}") from error

    async def stop(self) -> None:
        """Stop all nodes in order."""
        await asyncio.gather(*(node.stop() for node in self.nodes))

    def check(self) -> None:
        """Raise :class:`FleetError` when a node has ended by itself."""
        for node in self.nodes:
            if not node.running:
                raise FleetError(f"NATS node {node.name} ended by itself")

    async def leader(self) -> Node:
        """Return the node that leads the first shard's stream. Raises :class:`FleetError` when none comes to."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            for info in await self._streams():
                name = info.get("cluster", {}).get("leader")
                found = next((node for node in self.nodes if node.name == name), None)
                if info["config"]["name"] == stream_name(0) and found is not None:
                    return found
            if time.monotonic() > deadline:
                raise FleetError(f"the stream has no leader after {START_TIMEOUT:g} s")
            await asyncio.sleep(LOOK)

    async def settled(self) -> bool:
        """Wait until all copies of all streams are up to date again; say whether they got there in time."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            streams = await self._streams()
            if streams and all(_whole(info) for info in streams):
                return True
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK)

    async def _streams(self) -> list[dict[str, Any]]:
        """Return what each stream's leader says of it; nothing while one of them cannot be asked."""
        try:
            connection = await self._connection()
        except RingmereError:
            return []
        try:
            names = (await call(connection, "STREAM.NAMES", timeout=ANSWER)).get("streams") or []
            return [await call(connection, f"STREAM.INFO.{name}", timeout=ANSWER) for name in names]
        except LogUnavailable:
            return []
        finally:
            await connection.close()

    async def _has_leader(self) -> bool:
        try:
            connection = await self._connection()
        except RingmereError:
            return False
        try:
            await call(connection, "INFO", timeout=ANSWER)
        except LogUnavailable:
            return False
        finally:
            await connection.close()
        return True

    async def _connection(self) -> Connection:
        servers = tuple(node.url for node in self.nodes if node.running)
        return await Connection.open(ConnectOptions(servers=servers, connect_timeout=2.0, name="verify"))


def _whole(info: dict[str, Any]) -> bool:
    copies = int(info["config"].get("num_replicas", 1))
    if copies == 1:
        return True
    cluster = info.get("cluster", {})
    replicas = cluster.get("replicas") or []
    return bool(cluster.get("leader")) and len(replicas) == copies - 1 and all(_current(one) for one in replicas)


def _current(replica: dict[str, Any]) -> bool:
    return bool(replica.get("current")) and not replica.get("offline")
