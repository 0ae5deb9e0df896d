"""The two clients behind one promise: raw bytes to a synchronous sink."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.client import Client

from ringmere.embedded import EmbeddedServer
from ringmere.log import connect, fastpath
from ringmere.log.connect import Connection
from ringmere.log.fastpath import FastClient, PlainClient, RawClient
from support.nats import connected, eventually

Got = list[tuple[bytes, bytes, bytes, bytes]]


@pytest.fixture(params=[FastClient, PlainClient])
async def either(
    request: pytest.FixtureRequest, nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Connection]:
    """A connection over each of the two clients in turn."""
    monkeypatch.setattr(connect, "new_client", request.param)
    async with connected(nats_server) as opened:
        assert type(opened._client) is request.param
        yield opened


def test_the_installed_library_has_the_shape_that_the_fast_path_needs() -> None:
    assert fastpath.fits()
    assert type(fastpath.new_client()) is FastClient


@pytest.mark.parametrize("shape", ["other parameters", "not a coroutine", "gone"])
def test_another_shape_of_the_private_method_falls_back_to_ordinary_subscriptions(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def other(self: Client, sid: int, message: object) -> None: ...
    def plain(self: Client, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None: ...

    if shape == "gone":
        monkeypatch.delattr(Client, "_process_msg")
    else:
        monkeypatch.setattr(Client, "_process_msg", other if shape == "other parameters" else plain)
    assert not fastpath.fits()
    assert type(fastpath.new_client()) is PlainClient


async def test_a_sink_gets_subject_reply_header_block_and_payload(either: Connection) -> None:
    got: Got = []
    await either.subscribe("a.*", lambda *parts: got.append(parts))
    either.send("a.b", b"one", reply="r.1", headers={"K": "v", "L": "ü"})
    either.send("a.c", b"")
    await eventually(lambda: len(got) == 2, "both messages")
    assert got == [
        (b"a.b", b"r.1", "NATS/1.0\r\nK: v\r\nL: ü\r\n\r\n".encode(), b"one"),
        (b"a.c", b"", b"", b""),
    ]


async def test_the_status_of_a_server_made_answer_is_in_the_header_block(either: Connection) -> None:
    got: Got = []
    inbox = either.inbox(lambda *parts: got.append(parts))
    either.send("nobody.listens", b"", reply=inbox.subject)
    await eventually(lambda: bool(got), "the status")
    assert got[0][2].startswith(b"NATS/1.0 503")


async def test_a_closed_subscription_gets_nothing_and_the_server_forgets_it(either: Connection) -> None:
    got: Got = []
    subscription = await either.subscribe("a", lambda *parts: got.append(parts))
    either.send("a", b"1")
    await eventually(lambda: len(got) == 1, "the first")
    subscription.close()
    subscription.close()
    either.send("a", b"2")
    await either.flush()

    async def nobody() -> bool:
        try:
            await either.request("a", timeout=1)
        except connect.NoResponders:
            return True
        except connect.NoReply:
            return False
        return False

    await eventually(nobody, "the server has no subscriber of it any more")
    assert len(got) == 1


async def test_subscriptions_are_back_after_the_server_was_killed(
    either: Connection, nats_server: EmbeddedServer
) -> None:
    got: Got = []
    states: list[bool] = []
    either.on_state(states.append)
    await either.subscribe("a", lambda *parts: got.append(parts))
    await nats_server.kill()
    await eventually(lambda: not either.connected, "the loss is noticed")
    await nats_server.start()
    await eventually(lambda: either.connected, "the connection is back")
    either.send("a", b"after")
    await eventually(lambda: bool(got), "the subscription works again")
    assert states == [False, True]


async def test_a_sink_that_raises_is_reported_and_the_others_go_on(connection: Connection) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    got: Got = []

    def broken(*_: bytes) -> None:
        raise RuntimeError("a defect")

    await connection.subscribe("a", broken)
    await connection.subscribe("b", lambda *parts: got.append(parts))
    connection.send("a", b"")
    connection.send("b", b"")
    await eventually(lambda: bool(got), "the other sink")
    assert [str(report["exception"]) for report in reports] == ["a defect"]


async def test_the_answer_to_an_abandoned_ping_does_not_stop_the_connection(connection: Connection) -> None:
    abandoned = asyncio.get_running_loop().create_future()
    client: RawClient = connection._client
    client.ping(abandoned)
    abandoned.cancel()
    await connection.flush()
    await connection.flush()


async def test_an_error_line_of_the_server_leads_to_a_reconnect(connection: Connection) -> None:
    states: list[bool] = []
    connection.on_state(states.append)
    connection._client.write(b"NONSENSE\r\n")
    await eventually(lambda: states == [False, True], "lost and back")
    await connection.flush()


async def test_what_was_buffered_at_a_loss_is_not_sent_after_the_reconnect(connection: Connection) -> None:
    got: Got = []
    await connection.subscribe("a", lambda *parts: got.append(parts))
    client: RawClient = connection._client
    client._pending.append(b"PUB a 5\r\nstale\r\n")
    client._pending_data_size += 1
    client.write(b"NONSENSE\r\n")
    await eventually(lambda: not connection.connected, "the loss")
    await eventually(lambda: connection.connected, "the return")
    connection.send("a", b"fresh")
    await eventually(lambda: bool(got), "the fresh one")
    assert [payload for *_, payload in got] == [b"fresh"]


async def test_a_size_limit_told_later_is_the_one_that_counts(connection: Connection) -> None:
    await connection._client._process_info({"max_payload": 2000})
    assert connection.max_payload == 2000


async def test_each_new_connection_reads_ahead_so_that_turns_grow_with_the_load(connection: Connection) -> None:
    states: list[bool] = []
    connection.on_state(states.append)
    client: Any = connection._client
    readers = [client._transport._io_reader]
    connection._client.write(b"NONSENSE\r\n")
    await eventually(lambda: states == [False, True], "lost and back")
    await connection.flush()
    readers.append(client._transport._io_reader)
    assert readers[0] is not readers[1]
    assert [reader._limit for reader in readers] == [fastpath.READ_AHEAD] * 2
