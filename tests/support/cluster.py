"""A cluster whose links can be cut one by one, and where things are in it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from ringmere.core.errors import LogUnavailable
from ringmere.embedded import EmbeddedServer, free_port
from ringmere.log.connect import Connection
from support.gateway import GatewayProcess
from support.nats import Cluster, api, connected, eventually
from support.relay import Relay, relay

WITHIN = 60.0
"""Seconds that elections and catching up may take on a machine that does much else."""


class LinkedCluster(Cluster):
    """Each node reaches each other one through a relay of its own. ``links`` are by (from, to)."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.links: dict[tuple[str, str], Relay] = {}

    async def link(self, stack: AsyncExitStack) -> None:
        """Open the relays, which ``stack`` closes, and write the configuration that uses them."""
        ports = {node.name: free_port() for node in self.nodes}
        for here, there in itertools.permutations(ports, 2):
            opened = relay(f"http://127.0.0.1:{ports[there]}")
            self.links[here, there] = await stack.enter_async_context(opened)
        for node in self.nodes:
            routes = ", ".join(
                f'"{link.url.replace("http", "nats")}"' for (here, _), link in self.links.items() if here == node.name
            )
            # What a node tells of itself leads nowhere, so that nobody goes around the relays. A gateway that
            # stands still is cut off sooner than by default.
            node.extra = (
                f'cluster {{ name: "c", listen: "127.0.0.1:{ports[node.name]}", '
                f'advertise: "127.0.0.1:{free_port()}", routes: [{routes}] }}\nwrite_deadline: "5s"\n'
            )

    @asynccontextmanager
    async def cut(self, one: EmbeddedServer, other: EmbeddedServer) -> AsyncIterator[None]:
        """Take the link between two nodes away for as long as the block lasts."""
        links = [self.links[one.name, other.name], self.links[other.name, one.name]]
        targets = [link.target for link in links]
        for link in links:
            link.target = f"http://127.0.0.1:{free_port()}"
            link.cut()
        try:
            yield
        finally:
            for link, target in zip(links, targets, strict=True):
                link.target = target

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Connection]:
        """Connect to a node that runs."""
        node = next(node for node in self.nodes if node.running)
        async with connected(node) as connection:
            yield connection

    async def leads(self, stream: str) -> EmbeddedServer:
        """Return the node that leads ``stream``, after waiting for an election if need be."""
        found: list[EmbeddedServer] = []

        async def there_is_one() -> bool:
            try:
                async with self.operator() as connection:
                    node = await self.leader(connection, stream)
            except LogUnavailable:
                return False
            found.extend([node] if node is not None and node.running else [])
            return bool(found)

        await eventually(there_is_one, f"{stream} has a leader", WITHIN)
        return found[0]

    async def move_leader(self, stream: str, to: EmbeddedServer) -> None:
        """Make ``to`` lead ``stream`` by a stepdown; nothing happens when it does already."""

        async def moved() -> bool:
            if await self.leads(stream) is to:
                return True
            async with self.operator() as connection:
                await api(connection, f"STREAM.LEADER.STEPDOWN.{stream}", {"placement": {"preferred": to.name}})
            return False

        await eventually(moved, f"{to.name} leads {stream}", WITHIN)

    async def whole(self) -> None:
        """Wait until all nodes run and all copies of all streams are up to date."""

        async def all_current() -> bool:
            if not all(node.running for node in self.nodes):
                return False
            try:
                async with self.operator() as connection:
                    # A node that has just come back may not know of any stream yet.
                    names = (await api(connection, "STREAM.NAMES"))["streams"] or []
                    infos = [await api(connection, f"STREAM.INFO.{name}") for name in names]
            except LogUnavailable:
                return False
            return bool(infos) and all(_current(info) for info in infos)

        await eventually(all_current, "all copies are up to date", WITHIN)

    async def node_of(self, instance: GatewayProcess) -> EmbeddedServer:
        """Return the node that an instance is connected to, after waiting for a connection if need be."""
        found: list[EmbeddedServer] = []

        async def connected_somewhere() -> bool:
            ports = await asyncio.to_thread(_far_ports, instance.pid)
            found.extend(node for node in self.nodes if node.running and node.port in ports)
            return bool(found)

        await eventually(connected_somewhere, "the instance is connected", WITHIN)
        return found[0]


def _current(info: dict[str, Any]) -> bool:
    if "config" not in info:
        return False
    replicas = info["cluster"].get("replicas") or []
    others = info["config"]["num_replicas"] - 1
    return bool(info["cluster"].get("leader")) and len(replicas) == others and all(r["current"] for r in replicas)


def _far_ports(pid: int) -> set[int]:
    """Return the ports that a process has open connections to."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(entry.readlink()))
        except FileNotFoundError:
            continue
    ports = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "01" and f"socket:[{fields[9]}]" in sockets:
            ports.add(int(fields[2].split(":")[1], 16))
    return ports
