"""The shipped server configuration: what its two users need, what they can do with it, and what they cannot."""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from ringmere.core.errors import LogRefused, LogUnavailable
from ringmere.core.snapshot import SnapshotDraft
from ringmere.embedded import free_port, server_binary
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.jetstream import JetStreamLog, LogSettings, open_log
from ringmere.log.port import Row
from support.command import ringmere
from support.configured import PASSWORDS, ROOT, Configured, configured
from support.gateway import gateway
from support.nats import append, eventually

NATS = ROOT / "ops" / "nats"
EVENT = b'{"type":"t","data":1}'
ROW = Row(EVENT)
RING = 200


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Configured]:
    """A server on ``ops/nats/ringmere.conf``."""
    async with configured(NATS / "ringmere.conf", tmp_path) as running:
        yield running


@asynccontextmanager
async def log_of(server: Configured, **settings: object) -> AsyncIterator[JetStreamLog]:
    log = await open_log(ConnectOptions(servers=(server.url("gateway"),)), LogSettings(ring_size=RING, **settings))  # type: ignore[arg-type]
    try:
        yield log
    finally:
        await log.close()


async def _echo(request: bytes) -> bytes:
    return request


async def use_everything(log: JetStreamLog) -> None:
    """Do all that a log can do, once."""
    heard: list[int] = []
    tail = await log.subscribe("s", lambda seq, _before, _time, _payload: heard.append(seq))
    first = await log.append("s", ROW)
    assert all(not isinstance(each, Exception) for each in await log.append_many("s", [ROW] * 20))
    before = await log.last("s")
    assert before is not None
    key = secrets.token_hex(4)
    stored = await log.append_atomic("s", [Row(EVENT, f"{key}/0"), Row(EVENT, f"{key}/1")], before.seq)
    await eventually(lambda: stored[-1].seq in heard, "the live tail")
    tail.close()
    assert await log.contains("s", first.seq)
    assert (await log.bounds("s")).last == stored[-1].seq
    start, pages = first.seq, 0
    while True:
        page = await log.page("s", start, 64)
        start, pages = page.messages[-1].seq, pages + 1
        if not page.more:
            break
    assert pages > 2
    assert await log.newer([("s", first.seq), ("s", stored[-1].seq)]) == [True, False]
    assert (await log.sessions("", "", 10)).sessions[0].session == "s"
    assert await log.session("s") is not None
    assert (await log.check_epoch("s")).rows
    await log.snapshots.put("s", SnapshotDraft(log.epochs("s").id_of(first.seq), b"{}"))
    assert await log.snapshots.read("s") is not None
    await log.snapshots.drop("s")
    answering = await log.serve("x", _echo)
    assert await log.ask("x", b"1") == b"1"
    answering.close()
    await log.cancels.request("s", "t", None)
    assert await log.cancels.read("s", "t") is not None
    await log.publish_degraded("s", [EVENT])
    await log.doubt_storing(0)
    await log.probe(0)
    if log.keeps_heads:
        await eventually(lambda: has_head(log), "a head")
    await log.purge("s")
    assert await log.last("s") is None


async def has_head(log: JetStreamLog) -> bool:
    return await log.head("s") is not None


def allowed(user: str) -> list[str]:
    """Return the subjects that the file allows a user."""
    text = (NATS / "permissions.conf").read_text()
    block = text[text.index(f"user: {user}") :]
    block = block[: block.index("\n    }\n")]
    rows = [line for line in block.splitlines() if not line.strip().startswith("#")]
    return re.findall(r'"([^"]+)"', "\n".join(rows))


def matches(row: str, subject: str) -> bool:
    pattern = re.escape(row).replace(r"\*", r"[^.]+").replace(">", ".+")
    return re.fullmatch(pattern, subject) is not None


async def test_the_gateway_works_with_its_permissions_and_needs_each_of_them(server: Configured) -> None:
    for reader in ("consumer", "direct"):
        async with log_of(server, reader=reader) as log:
            await use_everything(log)
            await server.kill()
            await server.start()
            await eventually(lambda: log.connected, "the connection comes back")
            # What other instances purged meanwhile is looked up.
            await eventually(lambda: "$JS.API.DIRECT.GET.KV_RINGMERE_PURGES" in server.used(), "a look at the purges")
            await use_everything(log)
    await lose_the_stream(server)
    async with log_of(server) as log:
        # A recreated stream takes a new epoch, its record, its copy in the metadata, and new heads.
        assert len((await log.check_epoch("s")).rows) == 2
        await use_everything(log)
    assert server.violations() == set()
    used = server.used()
    unused = [row for row in allowed("gateway") if not any(matches(row, subject) for subject in used)]
    assert len(allowed("gateway")) > 25
    assert unused == []


async def lose_the_stream(server: Configured) -> None:
    """Take the events' stream out of the store, as the loss of its files would."""
    await server.kill()
    [streams] = (server.directory / "nats-data").glob("jetstream/*/streams")
    shutil.rmtree(streams / "RINGMERE_0")
    await server.start()


async def test_the_tail_by_consumer_works_with_them_too(server: Configured) -> None:
    async with log_of(server, tail="consumer") as log:
        await use_everything(log)
    assert server.violations() == set()


@pytest.mark.parametrize("subject", ["$JS.API.STREAM.DELETE.RINGMERE_0", "$JS.API.STREAM.NAMES", "ringmere.live.0.s"])
async def test_the_gateway_may_not_do_what_it_never_does(server: Configured, subject: str) -> None:
    async with log_of(server) as log:
        with pytest.raises(LogUnavailable):
            await log.connection.request(subject, b"", timeout=2)
    assert ("gateway", "Publish", subject) in server.violations()


@asynccontextmanager
async def publisher(server: Configured) -> AsyncIterator[Connection]:
    options = ConnectOptions(servers=(server.url("publisher"),), inbox_prefix="_INBOX_publisher")
    connection = await Connection.open(options)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_publisher_stores_events_that_the_gateway_delivers(server: Configured) -> None:
    async with log_of(server) as log, publisher(server) as connection:
        heard: list[bytes] = []
        tail = await log.subscribe("s", lambda _seq, _before, _time, payload: heard.append(payload))
        assert await append(connection, "ringmere.publish.s", EVENT) == 1
        assert await append(connection, "ringmere.events.0.s", EVENT) == 2
        await eventually(lambda: heard == [EVENT, EVENT], "the events")
        tail.close()
    assert server.violations() == set()


@pytest.mark.parametrize(
    "subject",
    [
        "ringmere.live.0.s",
        "ringmere.degraded.0.s",
        "ringmere.notice.RINGMERE_EPOCHS.0",
        "$KV.RINGMERE_EPOCHS.shard.0",
        "$JS.API.INFO",
        "$JS.API.STREAM.MSG.GET.RINGMERE_0",
        "$JS.API.DIRECT.GET.RINGMERE_0",
        "$JS.API.STREAM.PURGE.RINGMERE_0",
        "$JS.API.CONSUMER.CREATE.RINGMERE_0",
    ],
)
async def test_a_publisher_can_neither_forge_nor_ask(server: Configured, subject: str) -> None:
    async with log_of(server) as log, publisher(server) as connection:
        await log.append("s", ROW)
        with pytest.raises(LogUnavailable):
            await connection.request(subject, b"{}", timeout=2)
    assert ("publisher", "Publish", subject) in server.violations()


@pytest.mark.parametrize(
    "subject", [">", "ringmere.>", "ringmere.events.0.s", "ringmere.live.0.s", "ringmere.degraded.*.*", "_INBOX.>"]
)
async def test_a_publisher_cannot_read(server: Configured, subject: str) -> None:
    async with log_of(server), publisher(server) as connection:
        with pytest.raises(LogRefused):
            await connection.subscribe(subject, lambda *_: None)
    assert ("publisher", "Subscription", subject) in server.violations()


async def test_a_gateway_process_serves_with_these_files_as_they_say(server: Configured, tmp_path: Path) -> None:
    env = {"RINGMERE_NATS_PASSWORD": PASSWORDS["RINGMERE_GATEWAY_PASSWORD"]}
    url = f"nats://127.0.0.1:{server.port}"
    async with gateway(tmp_path, "--nats-user", "gateway", nats_url=url, env=env) as instance:
        done = await ringmere("publish", "s", "--type", "t", "--data", "1", server=instance.url)
        assert done.code == 0, done.err
        async with publisher(server) as connection:
            await append(connection, "ringmere.publish.s", EVENT)
        events = f"{instance.url}/session/s/events?from=start"
        async with aiohttp.ClientSession() as http, http.get(events) as stream:
            body = await asyncio.wait_for(stream.content.readuntil(b"id: 2\n"), 30)
        assert b"id: 1\n" in body
    assert server.violations() == set()


async def test_without_its_secrets_the_server_does_not_start(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        server_binary(), "-c", str(NATS / "ringmere.conf"), "-p", str(free_port()),
        cwd=tmp_path, env={}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode != 0
    assert b"RINGMERE_GATEWAY_PASSWORD" in err
