"""The fleet as a whole: NATS and gateways in a temporary directory that is removed at the end."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from ringmere.fleet.gateways import FleetError, Gateway
from ringmere.fleet.nodes import Nodes
from ringmere.fleet.plan import FleetPlan


class Fleet:
    """An async context manager: all processes are up inside, gone afterwards, however the block ends.

    With ``keep`` the directory stays, with the logs of all processes.
    """

    def __init__(self, plan: FleetPlan, keep: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ringmere-verify-"))
        self.nodes = Nodes(self.directory / "nats", plan.nodes)
        self._keep = keep
        flags = [
            "--nats-url", self.nodes.urls,
            "--replicas", str(plan.replicas),
            "--heartbeat", f"{plan.heartbeat:g}s",
            "--max-subscribers", str(plan.max_subscribers),
            "--log-level", "warning",
            *plan.flags,
        ]  # fmt: skip
        self.gateways = [
            Gateway(f"gateway {number}", flags, self.directory / f"gateway-{number}.log")
            for number in range(1, plan.gateways + 1)
        ]

    @property
    def addresses(self) -> list[str]:
        """Where the gateways listen."""
        return [gateway.url for gateway in self.gateways]

    async def __aenter__(self) -> Self:
        try:
            await self.nodes.start()
            # The first one makes the streams; two that make them at once would be a test of something else.
            for gateway in self.gateways:
                await gateway.start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    def trouble(self) -> list[str]:
        """Return a line for each process that has ended though nobody asked it to."""
        found = []
        for check in [*(gateway.check for gateway in self.gateways), self.nodes.check]:
            try:
                check()
            except FleetError as error:
                found.append(str(error))
        return found

    async def _end(self) -> None:
        try:
            await asyncio.gather(*(gateway.stop() for gateway in self.gateways))
        finally:
            await self.nodes.stop()
            if not self._keep:
                await asyncio.to_thread(shutil.rmtree, self.directory)
