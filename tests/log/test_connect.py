"""The connection: every way to get in, every way to be refused, and what a loss means for what is under way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
import time
from pathlib import Path

import nkeys
import pytest

from ringmere.core.errors import EventTooLarge, LogRefused, LogUnavailable
from ringmere.embedded import EmbeddedServer, free_port
from ringmere.log.connect import Connection, ConnectOptions, NoReply, NoResponders, NotConnected, header_block
from support.certificates import Authority
from support.logs import freeze
from support.nats import api, connected, eventually, running_server

STREAM = {"name": "S", "subjects": ["s.*"]}


async def test_a_server_that_is_down_is_an_unavailable_log_within_the_deadline() -> None:
    started = time.monotonic()
    options = ConnectOptions(servers=(f"nats://u:secret@127.0.0.1:{free_port()}",), connect_timeout=0.5)
    with pytest.raises(LogUnavailable, match="does not answer") as caught:
        await Connection.open(options)
    assert time.monotonic() - started < 3
    assert "secret" not in str(caught.value)


async def test_a_port_that_never_greets_is_an_unavailable_log_within_the_deadline() -> None:
    done = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    started = time.monotonic()
    with pytest.raises(LogUnavailable):
        await Connection.open(ConnectOptions(servers=(f"nats://127.0.0.1:{port}",), connect_timeout=0.5))
    assert time.monotonic() - started < 4
    done.set()
    server.close()


async def test_a_failed_connect_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    with pytest.raises(LogUnavailable):
        await Connection.open(ConnectOptions(servers=(f"nats://127.0.0.1:{free_port()}",), connect_timeout=0.3))
    await eventually(lambda: asyncio.all_tasks() <= before, "its tasks are gone")


@pytest.mark.parametrize("given", [{}, {"user": "u", "password": "wrong"}, {"token": "wrong"}])
async def test_wrong_credentials_are_refused_at_once_with_a_clear_line(tmp_path: Path, given: dict[str, str]) -> None:
    async with running_server(tmp_path, extra='authorization { user: "u", password: "p" }') as server:
        started = time.monotonic()
        with pytest.raises(LogRefused, match=r"(?i)refuses us: Authorization Violation"):
            await Connection.open(ConnectOptions(servers=(server.url,), connect_timeout=10, **given))
        assert time.monotonic() - started < 5


async def test_user_and_password_are_accepted_from_options_and_from_the_address(tmp_path: Path) -> None:
    async with running_server(tmp_path, extra='authorization { user: "u", password: "p" }') as server:
        async with connected(server, user="u", password="p") as connection:
            await connection.flush()
        async with connected(f"nats://u:p@127.0.0.1:{server.port}") as connection:
            await connection.flush()


async def test_a_token_is_accepted(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, extra='authorization { token: "t" }') as server,
        connected(server, token="t") as connection,
    ):
        await connection.flush()


async def test_an_nkey_seed_file_is_accepted_and_a_missing_one_refused(tmp_path: Path) -> None:
    seed = nkeys.encode_seed(b"r" * 32, nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    (tmp_path / "user.nk").write_bytes(seed)
    async with running_server(tmp_path, extra=f"authorization {{ users: [{{ nkey: {public} }}] }}") as server:
        async with connected(server, nkey=str(tmp_path / "user.nk")) as connection:
            await connection.flush()
        with pytest.raises(LogRefused, match="does not exist"):
            await Connection.open(ConnectOptions(servers=(server.url,), nkey=str(tmp_path / "none.nk")))


async def test_a_creds_file_without_a_user_in_it_ends_in_an_error_not_in_a_busy_loop(tmp_path: Path) -> None:
    (tmp_path / "empty.creds").write_text("nothing of use\n")
    async with running_server(tmp_path, extra='authorization { user: "u", password: "p" }') as server:
        options = ConnectOptions(servers=(server.url,), creds=str(tmp_path / "empty.creds"), connect_timeout=1)
        with pytest.raises((LogRefused, LogUnavailable)):
            await Connection.open(options)


async def test_tls_with_client_certificates_connects(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    mine, my_key = authority.issue("client")
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{authority.file}", verify: true }}'
    async with (
        running_server(tmp_path / "nats", extra=tls) as server,
        connected(server, tls_ca=str(authority.file), tls_cert=str(mine), tls_key=str(my_key)) as connection,
    ):
        await connection.flush()
        with pytest.raises(NoResponders):
            await connection.request("nobody")


async def test_a_certificate_that_does_not_verify_is_refused_within_the_deadline(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("server")
    stranger = Authority(tmp_path, "stranger")
    async with running_server(
        tmp_path / "nats", extra=f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}'
    ) as server:
        started = time.monotonic()
        for ca in (str(stranger.file), None):
            with pytest.raises(LogRefused, match=r"(?i)certificate"):
                await Connection.open(ConnectOptions(servers=(server.url,), tls_ca=ca, connect_timeout=3))
        assert time.monotonic() - started < 8


def test_tls_files_that_are_no_certificates_are_refused(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("nothing")
    for path in (tmp_path / "no.pem", tmp_path / "missing.pem"):
        with pytest.raises(LogRefused, match="TLS files"):
            ConnectOptions(tls_ca=str(path)).tls_context()
    assert ConnectOptions().tls_context() is None
    assert isinstance(ConnectOptions(servers=("tls://a",)).tls_context(), ssl.SSLContext)


async def test_a_user_without_the_right_to_its_inbox_is_refused(tmp_path: Path) -> None:
    users = 'authorization { users: [{ user: "u", password: "p", permissions: { subscribe: "mine.>" } }] }'
    async with running_server(tmp_path, extra=users) as server:
        with pytest.raises(LogRefused, match="may not subscribe to _INBOX"):
            await Connection.open(ConnectOptions(servers=(server.url,), user="u", password="p"))
        async with connected(server, user="u", password="p", inbox_prefix="mine") as connection:
            with pytest.raises(NoResponders):
                await connection.request("nobody")
            for _ in range(2):
                with pytest.raises(LogRefused, match="may not subscribe to other"):
                    await connection.subscribe("other", lambda *_: None)
            assert len(connection._client._subs) == 1, "only the inbox is left"


async def test_a_request_that_may_not_be_published_fails_at_once(tmp_path: Path) -> None:
    users = 'authorization { users: [{ user: "u", password: "p", permissions: { publish: "ok.>" } }] }'
    async with (
        running_server(tmp_path, extra=users) as server,
        connected(server, user="u", password="p") as connection,
    ):
        started = time.monotonic()
        with pytest.raises(LogUnavailable, match=r"may not publish to Not\.Ok"):
            await connection.request("Not.Ok", timeout=20)
        assert time.monotonic() - started < 10


async def test_websocket_addresses_are_refused_with_a_clear_line() -> None:
    with pytest.raises(LogRefused, match="WebSocket"):
        await Connection.open(ConnectOptions(servers=("ws://127.0.0.1:1",)))


async def test_a_request_gets_its_own_answer_among_many(connection: Connection) -> None:
    await connection.subscribe("echo", lambda _, reply, headers, data: connection.send(reply.decode(), data))
    answers = await asyncio.gather(*(connection.request("echo", str(n).encode()) for n in range(500)))
    assert [int(answer.payload) for answer in answers] == list(range(500))
    assert len(connection._requests) == 0


async def test_requests_nobody_answers_tell_apart_unheard_and_unanswered(connection: Connection) -> None:
    await connection.subscribe("deaf", lambda *_: None)
    with pytest.raises(NoResponders):
        await connection.request("nobody")
    started = time.monotonic()
    with pytest.raises(NoReply, match="in time"):
        await connection.request("deaf", timeout=0.2)
    assert 0.2 <= time.monotonic() - started < 5
    assert len(connection._requests) == 0


async def test_a_cancelled_request_is_forgotten(connection: Connection) -> None:
    await connection.subscribe("deaf", lambda *_: None)
    task = asyncio.create_task(connection.request("deaf", timeout=60))
    await connection.flush()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await eventually(lambda: len(connection._requests) == 0, "the table is empty")


async def test_an_inbox_takes_many_answers_until_it_is_closed(connection: Connection) -> None:
    got: list[bytes] = []
    inbox = connection.inbox(lambda _subject, _reply, _headers, payload: got.append(payload))
    for n in range(3):
        connection.send(inbox.subject, str(n).encode())
    await eventually(lambda: len(got) == 3, "three answers")
    inbox.close()
    connection.send(inbox.subject, b"late")
    await connection.flush()
    assert got == [b"0", b"1", b"2"]


async def test_pub_6_an_oversize_publish_is_refused_here_and_the_connection_lives(
    connection: Connection,
) -> None:
    states: list[bool] = []
    connection.on_state(states.append)
    headers = {"K": "v"}
    room = connection.max_payload - len(header_block(headers))
    got: list[int] = []
    await connection.subscribe("big", lambda *parts: got.append(len(parts[3])))
    with pytest.raises(EventTooLarge) as caught:
        connection.send("big", b"x" * (room + 1), headers=headers)
    assert caught.value.limit == connection.max_payload
    with pytest.raises(EventTooLarge):
        await connection.request("big", b"x" * 1_100_000)
    connection.send("big", b"x" * room, headers=headers)
    connection.send("big", b"x" * connection.max_payload)
    await eventually(lambda: len(got) == 2, "the largest that fit")
    assert got == [room, connection.max_payload]
    assert states == []
    assert len(connection._requests) == 0


async def test_the_size_limit_is_that_of_the_server_after_a_reconnect(
    connection: Connection, nats_server: EmbeddedServer
) -> None:
    await nats_server.stop()
    nats_server.max_payload = 4096
    await nats_server.start()
    await eventually(lambda: connection.connected, "the return")
    assert connection.max_payload == 4096
    with pytest.raises(EventTooLarge):
        connection.send("a", b"x" * 5000)


async def test_pub_8_what_is_refused_while_nats_is_away_is_never_sent(
    connection: Connection, nats_server: EmbeddedServer
) -> None:
    await api(connection, "STREAM.CREATE.S", STREAM)
    await nats_server.kill()
    await eventually(lambda: not connection.connected, "the loss")
    for attempt in (connection.request("s.a", b"lost"), connection.flush(), connection.subscribe("x", print)):
        with pytest.raises(NotConnected):
            await attempt
    with pytest.raises(NotConnected):
        connection.send("s.a", b"lost")
    await nats_server.start()
    await eventually(lambda: connection.connected, "the return")
    await connection.request("s.a", b"kept")
    info = await api(connection, "STREAM.INFO.S")
    assert info["state"]["messages"] == 1


async def test_pub_8_what_was_to_be_sent_in_the_turn_of_the_loss_is_not_sent_after_it(connection: Connection) -> None:
    got: list[bytes] = []
    await connection.subscribe("a", lambda *parts: got.append(parts[3]))
    connection.send("a", b"stale")
    future = connection.start_request("a", b"stale, too")
    await connection._client._process_op_err(OSError("the wire is cut"))
    with pytest.raises(NoReply, match="lost"):
        await future
    await eventually(lambda: connection.connected, "the return")
    connection.send("a", b"fresh")
    await eventually(lambda: bool(got), "the fresh one")
    assert got == [b"fresh"]


async def test_a_request_under_way_at_the_loss_fails_at_once_with_its_fate_unknown(
    connection: Connection, nats_server: EmbeddedServer
) -> None:
    await connection.subscribe("deaf", lambda *_: None)
    future = connection.start_request("deaf", timeout=60)
    await connection.flush()
    await nats_server.kill()
    async with asyncio.timeout(10):
        with pytest.raises(NoReply, match="lost"):
            await future


async def test_a_flush_under_way_at_the_loss_fails_at_once(connection: Connection, nats_server: EmbeddedServer) -> None:
    await freeze(nats_server)
    flushing = asyncio.create_task(connection.flush())
    await asyncio.sleep(0)
    await nats_server.kill()
    async with asyncio.timeout(3):
        with pytest.raises(NoReply, match="lost"):
            await flushing


async def test_a_server_gone_silent_is_noticed_by_its_missing_pongs(nats_server: EmbeddedServer) -> None:
    async with connected(nats_server, ping_interval=0.1) as connection:
        nats_server.send_signal(signal.SIGSTOP)
        await eventually(lambda: not connection.connected, "the silence")
        nats_server.send_signal(signal.SIGCONT)
        await eventually(lambda: connection.connected, "the return")
        await connection.flush()


async def test_a_server_that_does_not_read_makes_sends_refused_not_memory_grow(nats_server: EmbeddedServer) -> None:
    async with connected(nats_server) as connection:
        nats_server.send_signal(signal.SIGSTOP)

        async def flood() -> None:
            for _ in range(200):
                connection.send("a", b"x" * 1_000_000)
                await asyncio.sleep(0)

        with pytest.raises(NotConnected, match="does not read"):
            await flood()
        nats_server.send_signal(signal.SIGCONT)


async def test_the_connection_moves_to_another_node_when_its_own_dies(tmp_path: Path) -> None:
    async with running_server(tmp_path / "a") as first, running_server(tmp_path / "b") as second:
        connection = await Connection.open(ConnectOptions(servers=(first.url, second.url)))
        at = first if str(connection._client.connected_url.port) == str(first.port) else second
        # Heard, not looked for: the other one may be there again before anybody looks.
        heard: list[bool] = []
        connection.on_state(heard.append)
        await at.kill()
        await eventually(lambda: heard == [False, True], "the loss, and the other one")
        assert connection.connected
        await connection.flush()
        await connection.close()


async def test_after_close_everything_is_refused_and_waits_end(connection: Connection) -> None:
    await connection.subscribe("deaf", lambda *_: None)
    future = connection.start_request("deaf", timeout=60)
    await connection.close()
    await connection.close()
    with pytest.raises(NoReply, match="closed"):
        await future
    with pytest.raises(NotConnected):
        connection.send("a", b"")


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0", "a\tb"])
async def test_a_subject_that_would_break_the_protocol_line_is_refused(connection: Connection, subject: str) -> None:
    with pytest.raises(ValueError, match="subject"):
        connection.send(subject, b"")
    await connection.flush()


def test_a_header_that_would_break_its_line_is_refused() -> None:
    assert header_block({"A": "b"}) == b"NATS/1.0\r\nA: b\r\n\r\n"
    for bad in ({"A": "b\r\nNats-Rollup: all"}, {"A\n": "b"}, {"A": "b\r"}):
        with pytest.raises(ValueError, match="line break"):
            header_block(bad)


async def test_a_json_answer_of_the_server_comes_through_unchanged(connection: Connection) -> None:
    answer = await connection.request("$JS.API.INFO")
    assert json.loads(answer.payload)["type"] == "io.nats.jetstream.api.v1.account_info_response"
