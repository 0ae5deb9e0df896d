"""The check-up of a log: asks NATS everything that an instance depends on, and changes nothing that anybody sees.

With ``store`` each shard gets one message of no session, as a gateway's own probe stores it, and a consumer that is
removed at once: nothing less shows that storing, republishing and reading work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

from ringmere.core.errors import LogRefused, LogUnavailable
from ringmere.log import api, checkup, needs
from ringmere.log.connect import Connection, NoResponders, NotPermitted
from ringmere.log.control import Control
from ringmere.log.epoch_checkup import epoch_record
from ringmere.log.epoch_store import EpochStore
from ringmere.log.findings import OK, Finding, bad, ok, warn
from ringmere.log.prove import Proof
from ringmere.log.provision import event_limits, snapshot_limit
from ringmere.log.purges import Purges
from ringmere.log.records import Bucket
from ringmere.log.shape import HEADS_OFF, StreamSettings, wanted_events, wanted_heads
from ringmere.log.shards import head_name, stream_name
from ringmere.log.snapshots import BUCKET as SNAPSHOTS
from ringmere.log.snapshots import wanted_snapshots


class Look(NamedTuple):
    """What a stream's leader says of it (None: there is no such stream), and our clock before and after."""

    name: str
    info: Any | None
    before_ns: int
    after_ns: int


class Examination:
    """One check-up. After :meth:`run`, ``tokens`` holds the epoch token that each shard's record tells."""

    def __init__(self, connection: Connection, settings: StreamSettings, *, store: bool = True) -> None:
        self._connection = connection
        self._settings = settings
        self._store = store
        self._epochs = EpochStore(connection, settings)
        self._purges = Purges(connection, settings)
        self._snapshots = Bucket(connection, SNAPSHOTS)
        self._control = Control(connection, settings)
        self._events = {stream_name(shard): shard for shard in range(settings.shards)}
        self.tokens: dict[int, str] = {}

    async def run(self) -> AsyncIterator[Finding]:
        """Yield the findings, one as soon as it is known; ends early when the rest would say the same again."""
        version = checkup.server_version(self._connection.server_version)
        yield version
        account: dict[str, Any] = {}
        try:
            account = await api.call(self._connection, "INFO")
        except NotPermitted:
            todo = "allow $JS.API.INFO, see ops/nats/permissions.conf; a first start divides the store by it"
            yield warn("jetstream", "account", "the user may not see the account's limits", todo)
        except LogUnavailable as error:
            refusal = no_jetstream(error)
            yield refusal
            if refusal.final:
                return
        else:
            yield ok("jetstream", "account", "on")
        if version.level != OK:
            return
        looks = await asyncio.gather(*(self._look(name) for name in self._names()))
        found = {look.name: look for look in looks if isinstance(look, Look)}
        missing = self._missing(found)
        if account:
            for finding in checkup.account_limits(account, self._settings, len(missing)):
                yield finding
        async for finding in self._permissions(bool(missing)):
            yield finding
        for look in looks:
            if isinstance(look, Finding):
                yield look
        if all(isinstance(look, Look) and look.info is None for look in looks):
            todo = "start an instance: it makes them"
            yield warn("stream", "log", "there is no log yet: none of its streams exists", todo)
            return
        for finding in self._judged(found, missing, account):
            yield finding
        for shard in range(self._settings.shards):
            yield await self._epoch_record(shard, found)
        async for finding in self._proofs(found):
            yield finding

    def _names(self) -> list[str]:
        shards = range(self._settings.shards)
        records = [each.bucket.stream for each in (self._epochs, self._purges, self._control)]
        return [*records, self._snapshots.stream, *map(stream_name, shards), *map(head_name, shards)]

    def _missing(self, found: dict[str, Look]) -> list[str]:
        """Return the streams that there should be and are not."""
        heads = set() if self._settings.head_ttl else {head_name(shard) for shard in range(self._settings.shards)}
        return [name for name, look in found.items() if look.info is None and name not in heads]

    async def _look(self, name: str) -> Look | Finding:
        before = time.time_ns()
        try:
            info = await api.stream_info(self._connection, name)
        except NotPermitted:
            return bad("stream", name, "the user may not look at it", f"allow STREAM.INFO.{name}")
        except LogUnavailable as error:
            todo = "it has no leader, or the one it has does not answer: look at the NATS servers that hold it"
            return bad("stream", name, str(error), todo)
        return Look(name, info, before, time.time_ns())

    async def _permissions(self, missing: bool) -> AsyncIterator[Finding]:
        try:
            refusals = await needs.refused(self._connection, self._settings)
        except LogUnavailable as error:
            yield warn("permissions", "user", f"they could not be asked for: {error}", "run it again")
            return
        for kind, rows in (("publish to", refusals.publishes), ("subscribe to", refusals.subscriptions)):
            for need in rows:
                text, todo = f"may not {kind} {need.subject} ({need.use})", "allow it, see ops/nats/permissions.conf"
                if need.birth and not missing:
                    yield warn("permissions", "user", text, f"{todo}, or it cannot be made anew")
                else:
                    yield bad("permissions", "user", text, todo)
        if refusals.unknown:
            yield warn("permissions", "user", "the other subjects could not be asked for", "allow this one first")
        elif not refusals.publishes and not refusals.subscriptions:
            yield ok("permissions", "user", "may do all that an instance does")

    def _judged(self, found: dict[str, Look], missing: list[str], account: dict[str, Any]) -> Iterator[Finding]:
        """Judge each stream by what its leader says of it."""
        for name in missing:
            todo = "start an instance anew: it makes the stream"
            if name in self._events:
                todo += ", with a new epoch; what was in it is lost, and clients are told so"
            yield bad("stream", name, "does not exist", todo)
        for look in found.values():
            if look.info is not None:
                name, info = look.name, look.info
                yield ok("stream", name, f"exists since {info['created']}")
                yield checkup.stream_shape(name, self._differences(name, info["config"], found, account))
                yield checkup.replicas(name, info)
                yield checkup.stream_room(name, info)
                yield from checkup.sources(name, info)
                if name in self._events:
                    yield checkup.consumers(name, info)
                    yield checkup.clock(name, info["ts"], look.before_ns, look.after_ns)
        infos = [look.info for look in found.values() if look.info is not None and look.name in self._events]
        smallest = min((int(info["config"]["max_msg_size"]) for info in infos), default=None)
        yield checkup.event_size(self._connection.max_payload, smallest, self._settings)
        yield checkup.durability(self._settings)

    def _differences(
        self, name: str, config: dict[str, Any], found: dict[str, Look], account: dict[str, Any]
    ) -> list[str]:
        settings = self._settings
        for bucket in (self._epochs, self._purges, self._control):
            if name == bucket.bucket.stream:
                return bucket.wanted().differences(config)
        if name == self._snapshots.stream:
            limit = snapshot_limit(settings, account)
            return wanted_snapshots(self._snapshots, settings, limit).differences(config)
        if name in self._events:
            share, size = event_limits(self._connection, settings, account)
            return wanted_events(settings, self._events[name], share, size, config).differences(config)
        if not settings.head_ttl:
            return [HEADS_OFF]
        shard = next(shard for shard in range(settings.shards) if head_name(shard) == name)
        return wanted_heads(settings, shard, 0).differences(config)

    async def _epoch_record(self, shard: int, found: dict[str, Look]) -> Finding:
        name = stream_name(shard)
        try:
            record = await self._epochs.read(shard)
        except (LogUnavailable, LogRefused) as error:
            todo = "see what is said of its bucket and of permissions; a damaged record must be put back by hand"
            return bad("epoch_record", name, str(error), todo, final=isinstance(error, LogRefused))
        if record is not None:
            self.tokens[shard] = record[0].table.token
        info = found[name].info if name in found else None
        return epoch_record(shard, info, record[0] if record is not None else None, self._settings.shards)

    async def _proofs(self, found: dict[str, Look]) -> AsyncIterator[Finding]:
        for name, shard in self._events.items() if self._store else ():
            if name in found and found[name].info is not None:
                async for finding in Proof(self._connection, self._settings, shard, found[name].info).run():
                    yield finding


def no_jetstream(error: LogUnavailable) -> Finding:
    """Return why JetStream cannot be used."""
    if isinstance(error, NoResponders):
        todo = (
            "switch JetStream on in the server's configuration (jetstream { store_dir: … }); if it was on, its disk "
            "is full and the server has switched it off: see its log, make room, restart it"
        )
        return bad("jetstream", "account", "not enabled on this NATS server", todo, final=True)
    if isinstance(error, api.ApiError) and error.err_code in (api.NOT_ENABLED, api.NOT_ENABLED_FOR_ACCOUNT):
        return bad("jetstream", "account", error.words, "enable JetStream for the account", final=True)
    todo = "JetStream has no leader (more than half of the servers must be there), or its disk is full: see their logs"
    return bad("jetstream", "account", str(error), todo)


async def within(seconds: float, findings: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    """Yield findings until ``seconds`` are over, then one that says so."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            async with asyncio.timeout_at(end):
                yield await anext(findings)
        except StopAsyncIteration:
            return
        except TimeoutError:
            yield bad(
                "connection", "NATS", f"the check-up was not done within {seconds:g} s", "NATS is slow: run it again"
            )
            return
