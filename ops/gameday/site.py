"""What a fault is put into: NATS, two gateways, and the Prometheus that watches them."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp
import yaml
from ops.gameday.link import Link, link
from ops.gameday.runbook import USUAL_DOOR, USUAL_MONITOR
from ops.gameday.scaled import configuration, rules
from ops.gameday.watch import EVERY, GamedayError, Watch
from ops.prometheus.process import running

from ringmere.fleet.fleet import Fleet
from ringmere.fleet.gateways import Gateway
from ringmere.fleet.plan import FleetPlan
from ringmere.log.connect import Connection
from ringmere.log.options import ConnectOptions

SEEN_WITHIN = 60.0
"""Seconds until Prometheus must have seen every gateway, and nothing stir."""


class Needs(NamedTuple):
    """What an installation is made of. ``flags`` are of each gateway; ``disk`` is the size of a file system of its
    own for NATS, "" for none; with ``slow_link`` gateways reach NATS by a relay.
    """

    nodes: int = 1
    flags: Sequence[str] = ()
    disk: str = ""
    slow_link: bool = False


class Site:
    """An async context manager: everything runs and is watched inside, and is gone afterwards."""

    fleet: Fleet
    watch: Watch
    link: Link
    disk: Path

    def __init__(self, needs: Needs, factor: float) -> None:
        self.factor = factor
        self.names: dict[str, str] = {}
        """What stands for what in commands of runbooks: addresses, SESSION."""
        self._needs = needs
        self._house = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._house.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._house.aclose()

    async def _start(self) -> None:
        needs = self._needs
        flags = list(needs.flags)
        if needs.slow_link:
            self.link = await self._house.enter_async_context(link())
            flags += ["--nats-url", f"nats://127.0.0.1:{self.link.port}"]
        self._flags = flags
        self.fleet = Fleet(FleetPlan(nodes=needs.nodes, replicas=needs.nodes, flags=flags))
        if needs.slow_link:
            self.link.target = self.fleet.nodes.nodes[0].port
        if needs.disk:
            self.disk = self._house.enter_context(_disk(self.fleet.directory, needs.disk))
            # More than there is: the operator has told the server a lie about its disk.
            self.fleet.nodes.nodes[0].jetstream = "max_file_store: 4G"
        await self._house.enter_async_context(self.fleet)
        self.names |= {
            USUAL_DOOR: self.door,
            USUAL_MONITOR: f"http://127.0.0.1:{self.fleet.nodes.nodes[0].monitor_port}",
        }
        await self._watch()

    async def _watch(self) -> None:
        directory = self.fleet.directory / "prometheus"
        directory.mkdir()
        rule_file = directory / "alerts.yml"
        rule_file.write_text(yaml.safe_dump(rules(self.factor)))
        targets = [address.removeprefix("http://") for address in self.fleet.addresses]
        url = await self._house.enter_async_context(running(directory, configuration(self.factor, rule_file, targets)))
        http = await self._house.enter_async_context(aiohttp.ClientSession())
        self.watch = Watch(url, http)
        watching = asyncio.create_task(self.watch.run())
        self._house.callback(watching.cancel)

    async def seen_and_quiet(self) -> None:
        """Wait until Prometheus has scraped every gateway some times and no alert stirs."""
        expr = f"count_over_time(ringmere_log_connected[{round(60_000 / self.factor)}ms]) > 2"
        deadline = asyncio.get_running_loop().time() + SEEN_WITHIN
        while len(await self.watch.query(expr)) < len(self.fleet.gateways) or self.watch.stirring:
            if asyncio.get_running_loop().time() > deadline:
                raise GamedayError(f"not all is seen and quiet at first; alerts: {self.watch.stirring or 'none'}")
            await asyncio.sleep(0.2)

    @property
    def door(self) -> str:
        """The address of the gateway that a fault concerns: the first one."""
        return self.fleet.gateways[0].url

    def environment(self) -> Mapping[str, str]:
        """Return the variables that say what the gateways' flags say, for commands of runbooks."""
        nats = {"RINGMERE_NATS_URL": self.fleet.nodes.urls, "RINGMERE_REPLICAS": str(self._needs.nodes)}
        pairs = zip(self._flags[::2], self._flags[1::2], strict=True)
        return nats | {f"RINGMERE_{flag.removeprefix('--').replace('-', '_').upper()}": value for flag, value in pairs}

    async def nats(self) -> Connection:
        """Connect to NATS as an operator, or as somebody who should not; the caller closes the connection."""
        servers = tuple(node.url for node in self.fleet.nodes.nodes if node.running)
        return await Connection.open(ConnectOptions(servers=servers, name="gameday"))

    async def another_gateway(self) -> None:
        """Start one more instance with the settings of the others; nobody is told its address."""
        base = ["--nats-url", self.fleet.nodes.urls, "--replicas", str(self._needs.nodes), "--log-level", "warning"]
        gateway = Gateway("another gateway", [*base, *self._flags], self.fleet.directory / "another.log")
        self._house.push_async_callback(gateway.stop)
        await gateway.start()

    async def counted(self, expr: str) -> float:
        """Return the sum of an expression's series now."""
        return sum(value for _, value in await self.watch.query(expr))

    async def until(self, condition: Callable[[float], bool], expr: str, within: float) -> None:
        """Wait until ``condition`` of what an expression counts holds. Raises :class:`TimeoutError`."""
        async with asyncio.timeout(within):
            while True:
                if condition(await self.counted(expr)):
                    return
                await asyncio.sleep(EVERY)


@contextmanager
def _disk(directory: Path, size: str) -> Iterator[Path]:
    """Have NATS keep its data on a small file system of its own."""
    with tempfile.TemporaryDirectory() as place:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise GamedayError(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
        (directory / "nats").symlink_to(place, target_is_directory=True)
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", "-l", place], check=True)
