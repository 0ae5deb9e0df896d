"""Head streams tell the event stream's own sequences, whatever a publisher puts into its message."""

from __future__ import annotations

import asyncio

from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection
from ringmere.log.heads import purge_head, read_head
from ringmere.log.shape import StreamSettings
from ringmere.log.streams import ensure_streams
from support.nats import append, eventually

HEAD = "RINGMERE_HEAD_0"
SETTINGS = StreamSettings(max_bytes=256 * 1024 * 1024, ring_size=3)


def subject(session: str) -> str:
    """Return where the session's events are stored."""
    return f"ringmere.events.0.{session}"


async def head_is(connection: Connection, session: str, seq: int, payload: bytes) -> None:
    """Wait until the head stream knows that message as the session's last."""

    async def right() -> bool:
        found = await read_head(connection, HEAD, subject(session))
        return found is not None and (found.seq, found.payload) == (seq, payload)

    await eventually(right, f"the head of {session} is {seq}")


async def test_the_head_is_the_last_event_with_its_sequence_also_after_evictions_in_between(
    connection: Connection,
) -> None:
    await ensure_streams(connection, SETTINGS)
    last = 0
    for n in range(20):
        last = await append(connection, subject("a"), str(n).encode())
    await head_is(connection, "a", last, b"19")
    other = await append(connection, subject("b"), b"x")
    await head_is(connection, "b", other, b"x")
    assert await read_head(connection, HEAD, subject("nobody")) is None


async def test_headers_for_expectations_keys_and_batches_do_not_stop_the_copying(connection: Connection) -> None:
    await ensure_streams(connection, SETTINGS)
    await append(connection, subject("a"), b"1", {"Nats-Expected-Last-Subject-Sequence": "0"})
    await append(connection, subject("a"), b"2", {"Nats-Msg-Id": "k", "Nats-Expected-Last-Subject-Sequence": "1"})
    await connection.request(
        subject("a"), b"3", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    )
    await head_is(connection, "a", 3, b"3")


async def test_a_key_used_again_after_the_window_still_reaches_the_head(connection: Connection) -> None:
    settings = StreamSettings(max_bytes=SETTINGS.max_bytes, duplicate_window=0.1, head_ttl=0)
    await ensure_streams(connection, settings)
    await append(connection, subject("a"), b"1", {"Nats-Msg-Id": "k"})
    await asyncio.sleep(0.3)
    await append(connection, subject("a"), b"2", {"Nats-Msg-Id": "k"})
    await ensure_streams(connection, StreamSettings(max_bytes=SETTINGS.max_bytes, duplicate_window=0.1))
    await head_is(connection, "a", 2, b"2")


async def test_a_forged_source_header_does_not_change_what_the_head_tells(connection: Connection) -> None:
    await ensure_streams(connection, SETTINGS)
    forged = {"Nats-Stream-Source": "RINGMERE_0 999 > > ringmere.events.0.a"}
    connection.send(subject("a"), b"forged", headers=forged)
    seq = await append(connection, subject("a"), b"honest", {"nats-stream-source": "RINGMERE_0 999 > > x"})
    await head_is(connection, "a", seq, b"honest")


async def test_a_purge_takes_the_head_only_when_it_is_not_behind_the_purge(connection: Connection) -> None:
    await ensure_streams(connection, SETTINGS)
    await append(connection, subject("b"), b"x")
    await append(connection, subject("a"), b"1")
    await append(connection, subject("a"), b"2")
    await head_is(connection, "a", 3, b"2")
    await purge_head(connection, HEAD, subject("a"), 2)
    await head_is(connection, "a", 3, b"2")
    await purge_head(connection, HEAD, subject("a"), 3)
    assert await read_head(connection, HEAD, subject("a")) is None
    await head_is(connection, "b", 1, b"x")
    await purge_head(connection, HEAD, subject("a"), 3)


async def test_a_head_stream_that_is_being_made_anew_knows_nothing(connection: Connection) -> None:
    assert await read_head(connection, HEAD, subject("a")) is None
    await purge_head(connection, HEAD, subject("a"), 9)


async def test_heads_go_on_after_the_server_was_killed(connection: Connection, nats_server: EmbeddedServer) -> None:
    await ensure_streams(connection, SETTINGS)
    await append(connection, subject("a"), b"1")
    await head_is(connection, "a", 1, b"1")
    await nats_server.kill()
    await eventually(lambda: not connection.connected, "the loss")
    await nats_server.start()
    await eventually(lambda: connection.connected, "the return")
    await append(connection, subject("a"), b"2")
    await head_is(connection, "a", 2, b"2")
