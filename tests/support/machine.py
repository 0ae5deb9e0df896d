"""What state machines over real hubs share: a loop with its own clock, instances over one store, a clean end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine

from ringmere.core.limits import Limits
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from support.hub import World
from support.virtual import VirtualLoop


class HubMachine(RuleBasedStateMachine):
    """A machine whose first step calls :meth:`start`; what stands at the end is held to in :meth:`finish`."""

    world: World
    logs: list[MemoryLog]

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.faults: list[Any] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))

    def start(self, store: MemoryStore, limits: Limits, instances: int = 2) -> None:
        """Start instances over a store."""
        self.run(self._start(store, limits, instances))

    async def _start(self, store: MemoryStore, limits: Limits, instances: int) -> None:
        self.world = World(store, limits)
        self.logs = [self.world.log]
        await self.world.hub.start()
        for _ in range(instances - 1):
            _, log = await self.world.add()
            self.logs.append(log)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have the loop do some work."""
        return self.loop.run_until_complete(work)

    def call(self, step: Callable[[], Any]) -> None:
        """Take one step on the loop, without letting time pass."""

        async def once() -> None:
            step()

        self.run(once())

    def finish(self) -> None:
        """Hold everybody to what the end must be, and let all readers leave."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Finish, close all instances, and see that nothing is left of them."""
        if not hasattr(self, "world"):
            return
        try:
            self.finish()
            self.run(self._close())
        finally:
            self.loop.close()
            asyncio.set_event_loop(None)

    async def _close(self) -> None:
        for hub in self.world.hubs:
            await hub.close()
        await asyncio.sleep(0.01)
        self.world.assert_empty()
        assert self.faults == []
        assert asyncio.all_tasks() == {asyncio.current_task()}


def budget(examples: int, steps: int, *, shrink: bool = True) -> settings:
    """Return how much of a machine is run: the same examples each time, however slow the machine is."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, *((Phase.shrink,) if shrink else ())),
        report_multiple_bugs=shrink,
    )
