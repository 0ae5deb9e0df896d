"""The same log twice, in memory and on a real NATS, behind one handle for the contract suite."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from ringmere.core.cursor import EpochTable
from ringmere.core.errors import LogUnavailable
from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import ConnectOptions
from ringmere.log.jetstream import JetStreamLog, LogSettings, open_log
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import NS, MemoryStore
from ringmere.log.port import Copy, Log, Row
from ringmere.log.shards import head_name, stream_name
from support.nats import api, connected, eventually, running_server


class Rig(Protocol):
    """One site: makes instances of its log, and does to it what happens to logs."""

    async def open(self, **settings: Any) -> Log:
        """Return a new instance; the settings of the first one count."""

    async def let_time_pass(self, seconds: float) -> None:
        """Make everything ``seconds`` older."""

    async def recreate(self) -> None:
        """Lose the log and start a new, empty one."""

    async def cut(self, log: Log) -> None:
        """Take the log away from its instances."""

    async def stop_storing(self) -> None:
        """Let the log refuse every append while NATS itself works."""


class MemoryRig:
    """A store in memory with a clock that the test moves."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.store: MemoryStore | None = None

    async def open(self, **settings: Any) -> Log:
        if self.store is None:
            self.store = MemoryStore(clock=lambda: time.time_ns() + int(self.ahead * NS), **settings)
        return MemoryLog(self.store)

    async def let_time_pass(self, seconds: float) -> None:
        self.ahead += seconds

    async def recreate(self) -> None:
        assert self.store is not None
        self.store.recreate()

    async def cut(self, log: Log) -> None:
        assert isinstance(log, MemoryLog)
        log.disconnect()

    async def stop_storing(self) -> None:
        assert self.store is not None
        self.store.refuse(LogUnavailable("JetStream does not store"))


class JetStreamRig:
    """A real server; ``reader`` is the way pages are read, ``tail`` where live messages come from."""

    def __init__(self, server: EmbeddedServer, reader: str, tail: str = "auto") -> None:
        self.server = server
        self.reader = reader
        self.tail = tail
        self.settings: LogSettings | None = None
        self.logs: list[JetStreamLog] = []

    async def open(self, **settings: Any) -> Log:
        if self.settings is None:
            self.settings = LogSettings(reader=self.reader, tail=self.tail, **settings)
        log = await open_log(ConnectOptions(servers=(self.server.url,)), self.settings)
        self.logs.append(log)
        return log

    async def let_time_pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def recreate(self) -> None:
        assert self.settings is not None
        async with connected(self.server) as connection:
            for shard in range(self.settings.shards):
                await api(connection, f"STREAM.DELETE.{head_name(shard)}")
                await api(connection, f"STREAM.DELETE.{stream_name(shard)}")
        await self.open()

    async def cut(self, log: Log) -> None:
        await self.server.kill()
        await eventually(lambda: not log.connected, "the loss of the server is noticed")

    async def stop_storing(self) -> None:
        assert self.settings is not None
        async with connected(self.server) as connection:
            for shard in range(self.settings.shards):
                await api(connection, f"STREAM.DELETE.{stream_name(shard)}")


@asynccontextmanager
async def memory_rig() -> AsyncIterator[Rig]:
    """Give out a site in memory."""
    yield MemoryRig()


@asynccontextmanager
async def jetstream_rig(directory: Path, reader: str, tail: str = "auto") -> AsyncIterator[Rig]:
    """Give out a site on a fresh server."""
    async with running_server(directory / "nats") as server:
        rig = JetStreamRig(server, reader, tail)
        try:
            yield rig
        finally:
            for log in rig.logs:
                await log.close()


class Ear:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.connections: list[bool] = []
        self.tables: list[tuple[int, EpochTable]] = []
        self.purged: list[str] = []
        self.degraded: list[tuple[str, bytes]] = []
        self.doubted: list[int] = []
        self.cancelled: list[tuple[str, str]] = []
        self.not_reopened: list[tuple[int, str]] = []
        self.copies: list[Copy] = []

    def log_connected(self, connected: bool) -> None:
        self.connections.append(connected)

    def epochs_changed(self, shard: int, table: EpochTable) -> None:
        self.tables.append((shard, table))

    def session_purged(self, session: str) -> None:
        self.purged.append(session)

    def degraded_event(self, session: str, payload: bytes) -> None:
        self.degraded.append((session, payload))

    def copies_seen(self, copies: Sequence[Copy]) -> None:
        self.copies = list(copies)

    def cancel_noticed(self, session: str, task: str) -> None:
        self.cancelled.append((session, task))

    def storing_doubted(self, shard: int) -> None:
        self.doubted.append(shard)

    def tail_not_reopened(self, shard: int, reason: str) -> None:
        self.not_reopened.append((shard, reason))


class Live:
    """A live sink that remembers (sequence, previous, time, payload)."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, int, int, bytes]] = []

    def __call__(self, seq: int, previous: int, time_ns: int, payload: bytes) -> None:
        self.messages.append((seq, previous, time_ns, payload))

    @property
    def seqs(self) -> list[int]:
        return [message[0] for message in self.messages]

    async def until(self, count: int) -> None:
        await eventually(lambda: len(self.messages) >= count, f"{count} live messages, have {self.seqs}")


def row(number: int, key: str | None = None, **more: Any) -> Row:
    """Return the payload of a small event."""
    extra = "".join(f',"{name}":{value}' for name, value in more.items())
    return Row(b'{"type":"t","data":{"n":%d}%b}' % (number, extra.encode()), key)


async def fill(log: Log, session: str, numbers: range | list[int]) -> list[int]:
    """Append one event a number and return the sequences."""
    return [(await log.append(session, row(number))).seq for number in numbers]


async def read_all(log: Log, session: str, start: int = 0, max_bytes: int = 1 << 20) -> list[int]:
    """Read as a replay does, each page from the last sequence on, and return the sequences."""
    seqs: list[int] = []
    while True:
        page = await log.page(session, start, max_bytes)
        new = [message.seq for message in page.messages if not seqs or message.seq > seqs[-1]]
        assert new == sorted(set(new))
        seqs += new
        if not page.more:
            return seqs
        assert new, "a page that promises more must bring something"
        start = seqs[-1]


async def freeze(server: EmbeddedServer) -> None:
    """Stop a server as a hung machine would, and return when none of its threads runs any more."""
    assert server.process is not None
    server.send_signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{server.process.pid}/task")

    def stands() -> bool:
        return all((task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T" for task in tasks.iterdir())

    await eventually(stands, "the server stands still")
