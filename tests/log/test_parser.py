"""The short way through the parser: whatever nats-py's own parser makes of the bytes, it makes too."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nats.protocol.parser import Parser

from ringmere.log.parser import RunParser

KNOWN = 7
BLOCK = b"NATS/1.0\r\nNats-Sequence: 3\r\n\r\n"


class Client:
    """Notes what a parser hands over; the sink of :data:`KNOWN` notes in the same form."""

    def __init__(self) -> None:
        self.got: list[tuple[object, ...]] = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.got.append((sid, bytes(subject), bytes(reply), bytes(headers or b""), bytes(data)))

    async def _process_ping(self) -> None:
        self.got.append(("ping",))

    def sink(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        assert all(type(part) is bytes for part in (subject, reply, headers, payload))
        self.got.append((KNOWN, subject, reply, headers, payload))


def _message(sid: int, reply: bytes, block: bytes, payload: bytes) -> bytes:
    between = b" " + reply if reply else b""
    if block:
        sizes = b"%d %d" % (len(block), len(block) + len(payload))
        return b"HMSG a.b %d%b %b\r\n%b%b\r\n" % (sid, between, sizes, block, payload)
    return b"MSG a.b %d%b %d\r\n%b\r\n" % (sid, between, len(payload), payload)


messages = st.builds(
    _message,
    st.sampled_from([KNOWN, KNOWN, KNOWN, 8]),
    st.sampled_from([b"", b"", b"_INBOX.x.1"]),
    st.sampled_from([BLOCK, BLOCK, b"NATS/1.0 404 Not Found\r\n\r\n", b""]),
    st.one_of(st.binary(max_size=40), st.just(b"HMSG a.b 7 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")),
)
wire = st.lists(st.one_of(messages, st.sampled_from([b"PING\r\n", b"+OK\r\n"])), max_size=12).map(b"".join)


async def _parse(parser: Any, pieces: list[bytes]) -> None:
    for piece in pieces:
        await parser.parse(piece)


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@given(wire, st.lists(st.integers(0, 2000), max_size=20))
@example(_message(KNOWN, b"", BLOCK, b"one") * 3, list(range(200)))
def test_it_hands_over_the_same_as_nats_py_in_the_same_order_however_the_bytes_are_cut(
    data: bytes, cuts: list[int]
) -> None:
    expected, got = Client(), Client()
    asyncio.run(_parse(Parser(expected), [data]))
    parser = RunParser(got, {KNOWN: got.sink}, lambda error, subject: None)
    asyncio.run(_parse(parser, _cut(data, cuts)))
    assert got.got == expected.got
    assert not parser.buf


@pytest.mark.parametrize("block", [BLOCK, b""])
def test_messages_of_a_run_do_not_go_through_the_client(block: bytes) -> None:
    taken: list[bytes] = []
    parser = RunParser(None, {KNOWN: lambda *parts: taken.append(parts[3])}, lambda error, subject: None)
    data = b"".join(_message(KNOWN, b"", block, b"%d" % number) for number in range(100))
    asyncio.run(_parse(parser, [data]))
    assert taken == [b"%d" % number for number in range(100)]


def test_a_sink_that_raises_is_told_of_and_the_run_goes_on() -> None:
    failures: list[tuple[str, bytes]] = []
    taken: list[bytes] = []

    def sink(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        if payload == b"1":
            raise RuntimeError("a defect")
        taken.append(payload)

    parser = RunParser(None, {KNOWN: sink}, lambda error, subject: failures.append((str(error), subject)))
    asyncio.run(_parse(parser, [b"".join(_message(KNOWN, b"", BLOCK, b"%d" % number) for number in range(3))]))
    assert taken == [b"0", b"2"]
    assert failures == [("a defect", b"a.b")]


def test_a_sink_that_is_taken_away_by_another_gets_nothing_more() -> None:
    client = Client()
    sinks = {KNOWN: lambda *parts: sinks.pop(8, None), 8: lambda *parts: client.got.append(("gone",))}
    parser = RunParser(client, sinks, lambda error, subject: None)
    data = _message(KNOWN, b"", BLOCK, b"") + _message(8, b"", BLOCK, b"x")
    asyncio.run(_parse(parser, [data]))
    assert client.got == [(8, b"a.b", b"", BLOCK, b"x")]
