"""The bucket of cancel flags on a real server: what the network loses, and what others write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ringmere.core.errors import StreamShapeDiffers
from ringmere.embedded import EmbeddedServer
from ringmere.log import control
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.jetstream import JetStreamLog, LogSettings, open_log
from ringmere.log.records import key_of
from support.logs import Ear
from support.nats import api, eventually

STREAM = "KV_RINGMERE_CONTROL"


@asynccontextmanager
async def log_on(server: EmbeddedServer, **settings: object) -> AsyncIterator[JetStreamLog]:
    log = await open_log(ConnectOptions(servers=(server.url,)), LogSettings(**settings))  # type: ignore[arg-type]
    try:
        yield log
    finally:
        await log.close()


async def test_the_bucket_has_the_shape_that_the_settings_ask_for(
    nats_server: EmbeddedServer, connection: Connection
) -> None:
    async with log_on(nats_server, cancel_ttl=90.0):
        config = (await api(connection, f"STREAM.INFO.{STREAM}"))["config"]
    assert (config["max_age"], config["num_replicas"], config["max_msgs_per_subject"]) == (90_000_000_000, 1, 1)
    with pytest.raises(StreamShapeDiffers, match="max_age is 90 s, wanted 60 s"):
        async with log_on(nats_server, cancel_ttl=60.0):
            pass
    async with log_on(nats_server, cancel_ttl=60.0, reconcile=True):
        config = (await api(connection, f"STREAM.INFO.{STREAM}"))["config"]
    assert config["max_age"] == 60_000_000_000


async def test_a_flag_whose_notice_was_lost_is_told_by_a_look(
    nats_server: EmbeddedServer, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "LOOK_EVERY", 0.1)
    async with log_on(nats_server) as log, log_on(nats_server) as other:
        ear = Ear()
        log.listen(ear)
        assert log.cancels._watch is not None
        log.cancels._watch.close()
        for task in ("t1", "t2", "t3"):
            await other.cancels.request("s1", task, None)
        await eventually(lambda: len(ear.cancelled) == 3, "all three are told")
        assert ear.cancelled == [("s1", "t1"), ("s1", "t2"), ("s1", "t3")]


async def test_a_flag_that_was_set_while_the_connection_was_down_is_told_when_it_is_back(
    nats_server: EmbeddedServer, connection: Connection
) -> None:
    async with log_on(nats_server) as log:
        ear = Ear()
        log.listen(ear)
        await nats_server.kill()
        await eventually(lambda: not log.connected, "the loss is noticed")
        await nats_server.start()
        # Written past every gateway, before or after this one is back: a notice or a look tells of it.
        key = f"{key_of('s1')}.{key_of('t1')}"
        await eventually(lambda: connection.connected, "the test is back")
        await connection.request(f"$KV.RINGMERE_CONTROL.{key}", b'{"requestedAt":7}', timeout=5)
        await eventually(lambda: ("s1", "t1") in ear.cancelled, "the flag is told", 30)
        flag = await log.cancels.read("s1", "t1")
        assert flag is not None
        assert (flag.requested_at, flag.reason) == (7, None)


@pytest.mark.parametrize("value", [b"", b"not json", b'{"requestedAt":"x"}', b"[]"])
async def test_a_flag_that_somebody_else_wrote_is_a_flag_whatever_it_says(
    nats_server: EmbeddedServer, connection: Connection, value: bytes
) -> None:
    async with log_on(nats_server) as log:
        await connection.request(f"$KV.RINGMERE_CONTROL.{key_of('s1')}.{key_of('t1')}", value, timeout=5)
        assert await log.cancels.read("s1", "t1") is not None
        assert not (await log.cancels.request("s1", "t1", None)).fresh


async def test_keys_and_notices_that_are_no_flags_of_ours_are_passed_over(
    nats_server: EmbeddedServer, connection: Connection
) -> None:
    async with log_on(nats_server) as log:
        ear = Ear()
        log.listen(ear)
        for key in ("x", "!", f"{key_of('a.b')}.{key_of('t')}", f"{key_of('s')}.{key_of('t')}.{key_of('u')}"):
            connection.send(f"ringmere.notice.RINGMERE_CONTROL.{key}", b"")
            await connection.request(f"$KV.RINGMERE_CONTROL.{key}", b"{}", timeout=5)
        await log.cancels.request("s", "t", None)
        await eventually(lambda: bool(ear.cancelled), "the real one is told")
        assert ear.cancelled == [("s", "t")]
