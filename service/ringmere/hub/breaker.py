"""What the hub does while the log does not store: refuse at once, have the streams told, probe (contract 8.2).

One breaker a shard, for a shard can fail alone. What counts is what the log did not store or confirm while
NATS itself was there; a lost connection is another matter (contract 8.1), a caller's fault is none of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ringmere.core.breaker import Breaker, State
from ringmere.core.errors import LogUnavailable, PublishUnconfirmed, RingmereError, Unavailable
from ringmere.hub.degraded import tell_all, tell_one
from ringmere.log.port import Appended

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel
    from ringmere.hub.hub import Hub
    from ringmere.hub.many import Many
    from ringmere.hub.subscriber import Subscriber

T = TypeVar("T", Appended, Sequence[Appended], Sequence[Appended | RingmereError])


class Gate:
    """One shard: its breaker, since when it has been open last (ms since 1970), and the task that probes."""

    __slots__ = ("breaker", "opened_at", "since_ms", "task")

    def __init__(self, breaker: Breaker) -> None:
        self.breaker = breaker
        self.since_ms = 0
        self.opened_at = 0.0
        self.task: asyncio.Task[None] | None = None


class Breakers:
    """The breakers of an instance, made as shards are used."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._gates: dict[int, Gate] = {}

    @property
    def open(self) -> dict[int, bool]:
        """Whether publishes are refused, for each shard that has been used."""
        return {shard: gate.breaker.open for shard, gate in sorted(self._gates.items())}

    def refuses(self, session: str) -> bool:
        """Whether publishes to a session are refused now."""
        return self._gate(self._hub.log.shard_of(session)).breaker.open

    def check(self, session: str) -> None:
        """Raise ``LogUnavailable`` while publishes to a session are refused."""
        if self.refuses(session):
            raise LogUnavailable("nothing can be stored at the moment", self._hub.limits.breaker_pause)

    async def watch(self, session: str, append: Awaitable[T]) -> T:
        """Return what an append returns, or raise what it raises, and learn from it."""
        shard = self._hub.log.shard_of(session)
        try:
            result = await append
        except (LogUnavailable, PublishUnconfirmed) as error:
            self._failed(shard, error)
            raise
        results = [result] if isinstance(result, Appended) else result
        if any(isinstance(one, Appended) and not one.duplicate for one in results):
            self._gate(shard).breaker.stored(_now())
            return result
        for one in results:
            if isinstance(one, LogUnavailable | PublishUnconfirmed):
                self._failed(shard, one)
                break
        return result

    def warned(self, shard: int) -> None:
        """Look for oneself: another instance says that it cannot store in a shard."""
        gate = self._gate(shard)
        if gate.breaker.warned(_now()):
            self._watch_over(shard, gate)

    def greet(self, channel: Channel, reader: Subscriber) -> None:
        """Tell a reader that has just gone live what it has not heard of yet."""
        gate = self._gates.get(self._hub.log.shard_of(channel.session))
        if gate is not None and gate.breaker.open is not (reader in channel.told):
            tell_one(channel, reader, gate.since_ms, degraded=gate.breaker.open)

    def greet_many(self, stream: Many) -> None:
        """Tell a stream of many sessions that has gone live what it has not heard of yet, once for each shard."""
        for shard, gate in self._gates.items():
            stream.tell_storing(shard, gate.since_ms, degraded=gate.breaker.open)

    async def stop(self) -> None:
        """End all probing."""
        tasks = [gate.task for gate in self._gates.values() if gate.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _gate(self, shard: int) -> Gate:
        gate = self._gates.get(shard)
        if gate is None:
            limits = self._hub.limits
            gate = self._gates[shard] = Gate(Breaker(limits.breaker_failures, limits.breaker_window))
        return gate

    def _failed(self, shard: int, error: Unavailable) -> None:
        if not self._hub.log.connected:
            return
        gate = self._gate(shard)
        if gate.breaker.failed(_now()):
            self._changed(shard, gate, str(error))
            self._watch_over(shard, gate)

    def _watch_over(self, shard: int, gate: Gate) -> None:
        """Have the shard probed until it stores; one task does, however it came to that."""
        if gate.task is None:
            gate.task = asyncio.create_task(self._probe_until_stored(shard, gate))

    async def _probe_until_stored(self, shard: int, gate: Gate) -> None:
        breaker = gate.breaker
        try:
            await self._warn_others(shard, gate)
            while breaker.state is not State.CLOSED:
                if breaker.open:
                    await asyncio.sleep(self._hub.limits.breaker_pause * random.uniform(0.8, 1.2))
                if not self._hub.log.connected:
                    await asyncio.sleep(self._hub.limits.breaker_pause)
                elif breaker.state is State.SUSPECTED or breaker.due():
                    await self._probe(shard, gate)
        finally:
            gate.task = None

    async def _probe(self, shard: int, gate: Gate) -> None:
        """Let the shard store something and take the result. Without a connection a failure says nothing new."""
        reason = ""
        try:
            await self._hub.log.probe(shard)
        except Unavailable as error:
            reason = str(error)
            if gate.breaker.state is State.SUSPECTED and not self._hub.log.connected:
                return
        except Exception as error:
            reason = str(error)
            context = {"message": f"shard {shard} could not be probed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        if gate.breaker.probed(not reason, _now()):
            self._changed(shard, gate, reason)
        await self._warn_others(shard, gate)

    async def _warn_others(self, shard: int, gate: Gate) -> None:
        """Have the other instances look, so that all streams are told; also those that start later."""
        if gate.breaker.open:
            with contextlib.suppress(Unavailable):  # without a connection nobody can be told
                await self._hub.log.doubt_storing(shard)

    def _changed(self, shard: int, gate: Gate, reason: str) -> None:
        """Tell the observer and all streams of the shard that the breaker has opened or closed."""
        hub, now = self._hub, _now()
        if gate.breaker.open:
            gate.since_ms, gate.opened_at = hub.clock() // 1_000_000, now
            hub.observer.log_degraded(shard, reason)
        else:
            hub.observer.log_restored(shard, now - gate.opened_at)
            hub.sweep.all_now()  # the live messages of what was stored around the fault may be lost
        for channel in hub.channels:
            if hub.log.shard_of(channel.session) == shard:
                tell_all(channel, gate.since_ms, degraded=gate.breaker.open)
        for stream in hub.many.streams.values():
            if stream.live:
                stream.tell_storing(shard, gate.since_ms, degraded=gate.breaker.open)


def _now() -> float:
    return asyncio.get_running_loop().time()
