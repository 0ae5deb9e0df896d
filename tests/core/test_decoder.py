"""The SSE decoder against the text of WHATWG HTML 9.2.5 and 9.2.6."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.decoder import Decoder, Message
from ringmere.core.errors import FrameTooLong
from ringmere.core.limits import MAX_RETRY_MS


def decode(*chunks: bytes, limit: int = 1 << 20) -> tuple[list[Message], Decoder]:
    decoder = Decoder(limit)
    return [message for chunk in chunks for message in decoder.feed(chunk)], decoder


def data_of(*chunks: bytes) -> list[str]:
    return [message.data for message in decode(*chunks)[0]]


def one_by_one(stream: bytes) -> list[bytes]:
    return [stream[index : index + 1] for index in range(len(stream))]


def test_par_1_a_crlf_split_between_chunks_is_one_line_end() -> None:
    first, second = b"data: a\r", b"\ndata: b\r\n\r\n"
    assert data_of(first, second) == ["a\nb"]
    assert data_of(*one_by_one(first + second)) == ["a\nb"]


def test_par_1_an_empty_chunk_between_cr_and_lf_changes_nothing() -> None:
    assert data_of(b"data: a\r", b"", b"\ndata: b\r\n\r", b"", b"\n") == ["a\nb"]


def test_a_block_ended_by_cr_is_dispatched_without_waiting_for_the_next_byte() -> None:
    assert data_of(b"data: a\r\r") == ["a"]


def test_par_2_a_character_split_between_chunks_is_one_character() -> None:
    assert data_of(b"data: \xe2\x82", b"\xac\n\n") == ["€"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xe2\x82x", "\ufffdx"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xc0\xaf", "\ufffd\ufffd"),
        (b"a\xf8b", "a\ufffdb"),
    ],
)
def test_par_2_bytes_that_stay_invalid_become_replacement_characters(raw: bytes, text: str) -> None:
    stream = b"data: " + raw + b"\n\n"
    assert data_of(stream) == [text]
    assert data_of(*one_by_one(stream)) == [text]


def test_par_3_only_crlf_lf_and_cr_end_a_line() -> None:
    text = '{"t":"a\u2028b\u0085c\u2029\x0b\x0c\x1c\x1d\x1e"}'
    assert data_of(b"data: " + text.encode() + b"\n\n") == [text]


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (b"data:a", "a"),
        (b"data: a", "a"),
        (b"data:  a", " a"),
        (b"data:\ta", "\ta"),
        (b"data: a: b", "a: b"),
    ],
)
def test_par_4_one_space_after_the_first_colon_goes_and_no_more(line: bytes, data: str) -> None:
    assert data_of(line + b"\n\n") == [data]


@pytest.mark.parametrize(
    ("stream", "messages"),
    [
        (b"data\n\n", [Message("message", "", "")]),
        (b"data:\n\n", [Message("message", "", "")]),
        (b"data\ndata\n\n", [Message("message", "\n", "")]),
        (b"event: x\n\ndata: y\n\n", [Message("message", "y", "")]),
        (b"foo: bar\ndata: a\n\n", [Message("message", "a", "")]),
        (b"Data: a\n\n", []),
        (b"data : a\n\n", []),
        (b" data: a\n\n", []),
        (b"event: x\nevent:\ndata: y\n\n", [Message("message", "y", "")]),
        (b"event: x\ndata: y\n\ndata: z\n\n", [Message("x", "y", ""), Message("message", "z", "")]),
    ],
)
def test_par_5_a_block_with_data_is_one_message_and_no_other_is(stream: bytes, messages: list[Message]) -> None:
    assert decode(stream)[0] == messages


def test_an_unfinished_block_at_the_end_is_not_dispatched() -> None:
    assert data_of(b"data: a\n\ndata: b\n") == ["a"]


def test_par_6_the_id_stays_for_events_without_one() -> None:
    messages, decoder = decode(b"id: 4\ndata: a\n\ndata: b\n\n")
    assert [message.last_id for message in messages] == ["4", "4"]
    assert decoder.last_id == "4"


def test_an_empty_id_clears_and_an_id_with_nul_is_ignored() -> None:
    messages, _ = decode(b"id: 4\ndata: a\n\nid: 5\x006\ndata: b\n\nid\ndata: c\n\n")
    assert [message.last_id for message in messages] == ["4", "4", ""]


def test_a_block_of_only_an_id_moves_the_cursor_and_dispatches_nothing() -> None:
    messages, decoder = decode(b"id: 7\n\n")
    assert messages == []
    assert decoder.last_id == "7"


def test_an_id_counts_only_when_its_block_has_ended() -> None:
    messages, decoder = decode(b"id: 4\ndata: a\n\nid: 5\ndata: b\n")
    assert len(messages) == 1
    assert decoder.last_id == "4"


@pytest.mark.parametrize("value", ["-1", "+5", "1.5", "5x", "٥", "", " 5", "5 ", "1e3", "0x10", "1_000", "²"])
def test_par_7_a_retry_that_is_not_ascii_digits_is_ignored(value: str) -> None:
    _, decoder = decode(b"retry: 2000\n", f"retry: {value}\n".encode())
    assert decoder.retry_ms == 2000


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"99999999999999999999", MAX_RETRY_MS),
        (b"9" * 5000, MAX_RETRY_MS),
        (b"0" * 5000 + b"12", 12),
        (b"%d" % (MAX_RETRY_MS + 1), MAX_RETRY_MS),
        (b"%d" % MAX_RETRY_MS, MAX_RETRY_MS),
    ],
)
def test_par_7_digits_are_taken_and_capped(value: bytes, ms: int) -> None:
    assert decode(b"retry: " + value + b"\n")[1].retry_ms == ms


def test_there_is_no_retry_before_the_server_sets_one() -> None:
    assert decode(b"data: a\n\n")[1].retry_ms is None


@pytest.mark.parametrize("size", [1, 7, 65536, 1 << 30])
def test_par_8_a_data_line_of_800_kb_is_one_message(size: int) -> None:
    payload = b"x" * 800_000
    stream = b"id: 1\ndata: " + payload + b"\n\n"
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    messages, _ = decode(*chunks)
    assert messages == [Message("message", payload.decode(), "1")]


def test_par_9_comments_dispatch_nothing_and_are_counted() -> None:
    messages, decoder = decode(b"id: 4\ndata: a\n\n", b": ping\n\n" * 3)
    assert len(messages) == 1
    assert decoder.comments == 3


def test_a_comment_inside_a_block_does_not_touch_it() -> None:
    assert data_of(b"data: a\n: hb\ndata: b\n\n") == ["a\nb"]


def test_one_leading_byte_order_mark_goes_also_when_it_is_split() -> None:
    stream = b"\xef\xbb\xbfdata: a\n\n"
    assert data_of(stream) == ["a"]
    assert data_of(*one_by_one(stream)) == ["a"]


def test_a_second_byte_order_mark_and_a_later_one_stay() -> None:
    assert data_of(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n") == []
    assert data_of(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == ["a"]
    assert data_of(b"data: \xef\xbb\xbfa\n\n") == ["\ufeffa"]


def test_a_line_beyond_the_limit_raises_before_it_ends() -> None:
    decoder = Decoder(limit=100)
    with pytest.raises(FrameTooLong) as caught:
        decoder.feed(b"data: " + b"x" * 95)
    assert caught.value.limit == 100


def test_an_event_of_many_lines_beyond_the_limit_raises() -> None:
    decoder = Decoder(limit=100)
    for _ in range(14):
        assert decoder.feed(b"data: xxxxx\n") == []
    with pytest.raises(FrameTooLong):
        decoder.feed(b"data: " + b"x" * 12)


def test_an_event_that_fills_the_limit_exactly_is_delivered() -> None:
    assert [message.data for message in decode(b"data: " + b"x" * 94 + b"\n\n", limit=100)[0]] == ["x" * 94]


def test_messages_before_the_too_long_line_are_delivered_first() -> None:
    decoder = Decoder(limit=100)
    assert [message.data for message in decoder.feed(b"data: a\n\ndata: " + b"x" * 200)] == ["a"]
    with pytest.raises(FrameTooLong):
        decoder.feed(b"\n\n")


def test_the_buffer_is_empty_again_after_every_event() -> None:
    decoder = Decoder(limit=100)
    for _ in range(50):
        assert len(decoder.feed(b": hb\nid: 1\ndata: " + b"x" * 80 + b"\n\n")) == 1


PIECES = st.sampled_from(
    [
        b"data", b"id", b"event", b"retry", b":", b" ", b"\r", b"\n", b"\r\n", b"\n\n", b"a", b"12", b"\0",
        b"\xef\xbb\xbf", b"\xe2\x82\xac", b"\xe2", b"\x82", b"\xff", b"data: x\n\n", b": hb\n\n",
        b"\xf0\x9f\x98\x80",
    ]
)  # fmt: skip
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


def outcome(chunks: list[bytes], limit: int) -> tuple[list[Message], bool, str, int | None]:
    decoder = Decoder(limit)
    messages: list[Message] = []
    try:
        for chunk in [*chunks, b""]:
            messages += decoder.feed(chunk)
    except FrameTooLong:
        return messages, True, "", None
    return messages, False, decoder.last_id, decoder.retry_ms


@given(STREAMS, st.lists(st.integers(0, 200), max_size=20), st.sampled_from([12, 30, 1 << 20]))
def test_any_chunking_gives_what_one_chunk_gives(stream: bytes, cuts: list[int], limit: int) -> None:
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    whole = outcome([stream], limit)
    assert outcome(chunks, limit) == whole
    assert outcome(one_by_one(stream), limit) == whole


def reference(stream: bytes) -> list[Message]:
    """The algorithm of WHATWG 9.2.6 word for word, over the whole decoded text."""
    text = stream.decode(errors="replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    found: list[Message] = []
    data = type = last_id = ""
    for line in lines:
        if line == "":
            if data:
                found.append(Message(type or "message", data.removesuffix("\n"), last_id))
            data = type = ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data += value + "\n"
        elif name == "event":
            type = value
        elif name == "id" and "\0" not in value:
            last_id = value
    return found


@given(STREAMS)
def test_the_decoder_equals_the_algorithm_of_the_standard(stream: bytes) -> None:
    assert decode(stream)[0] == reference(stream)
