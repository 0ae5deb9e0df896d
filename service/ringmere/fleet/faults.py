"""Breaks a fleet on purpose, one thing at a time, and mends it again."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

from ringmere.fleet.fleet import Fleet
from ringmere.fleet.gateways import FleetError
from ringmere.fleet.nodes import Node
from ringmere.fleet.plan import STALL, Faults
from ringmere.verify.report import Fault

DOWN = 1.0
"""Seconds that a killed process stays down."""
NODE_DOWN = 3.0
"""The same for a node of a cluster: long enough for an election."""
ROLES = ("leader", "gateway's node", "follower")
"""What is killed in turn in a cluster."""


class Saboteur:
    """Breaks ``fleet`` as ``faults`` say. Two faults never overlap: each ends when all is well again."""

    def __init__(self, fleet: Fleet, faults: Faults) -> None:
        self._fleet = fleet
        self._faults = faults
        self._one_at_a_time = asyncio.Lock()
        self.done: list[Fault] = []
        """What was broken and mended so far, by the monotonic clock."""
        self._killed = itertools.cycle(fleet.gateways)
        self._stalled = itertools.cycle(reversed(fleet.gateways))
        self._roles = itertools.cycle(ROLES)

    @property
    def latest(self) -> str:
        """What was broken last, for people."""
        return self.done[-1].what if self.done else ""

    async def run(self, over: asyncio.Event) -> list[Fault]:
        """Break and mend until ``over``; return what was done. Raises :class:`FleetError` when mending fails."""
        kinds = [
            (self._faults.kill_gateway, self._kill_gateway),
            (self._faults.kill_nats, self._kill_nats),
            (self._faults.stall_gateway, self._stall_gateway),
        ]
        breaking = [asyncio.create_task(self._again_and_again(every, fault, over)) for every, fault in kinds if every]
        try:
            await asyncio.gather(*breaking)
            await over.wait()
        finally:
            for task in breaking:
                task.cancel()
            await asyncio.gather(*breaking, return_exceptions=True)
        return self.done

    async def _again_and_again(
        self, every: float, fault: Callable[[], Coroutine[Any, Any, str]], over: asyncio.Event
    ) -> None:
        due = time.monotonic()
        while True:
            due = max(due + every, time.monotonic())
            if await _happens(over, due - time.monotonic()):
                return
            async with self._one_at_a_time:
                if over.is_set():
                    return
                at = time.monotonic()
                what = await fault()
                self.done.append(Fault(at, what, time.monotonic() - at))

    async def _kill_gateway(self) -> str:
        gateway = next(self._killed)
        await gateway.kill()
        await asyncio.sleep(DOWN)
        await gateway.start()
        return f"{gateway.name} killed"

    async def _stall_gateway(self) -> str:
        gateway = next(self._stalled)
        gateway.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(STALL)
        finally:
            gateway.signal(signal.SIGCONT)
        return f"{gateway.name} stalled"

    async def _kill_nats(self) -> str:
        nodes = self._fleet.nodes
        if len(nodes.nodes) == 1:
            what, node, down = "NATS killed", nodes.nodes[0], DOWN
        else:
            role = next(self._roles)
            what, node, down = f"NATS {role} killed", await self._in_role(role), NODE_DOWN
        await node.kill()
        await asyncio.sleep(down)
        await nodes.start_again(node)
        if not await nodes.settled():
            raise FleetError(f"not all copies of the streams are up to date again after {node.name} came back")
        return what

    async def _in_role(self, role: str) -> Node:
        nodes = self._fleet.nodes
        leader = await nodes.leader()
        if role == "leader":
            return leader
        others = [node for node in nodes.nodes if node is not leader]
        busy = [await node.clients() for node in others]
        wanted = max(busy) if role == "gateway's node" else min(busy)
        return others[busy.index(wanted)]


async def _happens(event: asyncio.Event, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True
