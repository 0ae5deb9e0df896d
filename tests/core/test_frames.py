"""What the gateway writes is what a decoder of the standard reads."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.decoder import Decoder, Message
from ringmere.core.event import CONTROL_TYPES, envelope, make_payload
from ringmere.core.frames import (
    HEARTBEAT,
    LAST_CHUNK,
    OPENING_COMMENT,
    anchor_frame,
    chunked,
    control_frame,
    degraded_frame,
    event_frame,
    with_retry,
    without_retry,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TYPES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda text: text.isprintable() and text not in CONTROL_TYPES | {"error", "open"}
)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def frame_of(type: str, data: Any, public_id: int) -> bytes:
    return event_frame(public_id, envelope(make_payload(type, data).payload, public_id, 1234))


def test_an_event_frame_is_three_lines_and_a_blank_one() -> None:
    assert frame_of("t", {"n": 1}, 7) == (
        b'id: 7\nevent: t\ndata: {"id":7,"v":1,"type":"t","data":{"n":1},"_meta":{"serverTimestamp":1234}}\n\n'
    )


@given(TYPES, JSON, st.integers(1, 2**53 - 1))
def test_an_event_comes_out_of_the_decoder_as_it_went_in(type: str, data: Any, public_id: int) -> None:
    (message,) = Decoder().feed(frame_of(type, data, public_id))
    assert (message.type, message.last_id) == (type, str(public_id))
    read = json.loads(message.data)
    assert read == {"id": public_id, "v": 1, "type": type, "data": data, "_meta": {"serverTimestamp": 1234}}


def test_frm_2_a_payload_with_line_breaks_arrives_whole_on_one_data_line() -> None:
    stored = b'{\n  "type": "t",\r\n\t"data": {\n  "a": 1\n}\n}'
    frame = event_frame(1, envelope(stored, 1, 0))
    assert frame.count(b"\n") == 4
    (message,) = Decoder().feed(frame)
    assert json.loads(message.data)["data"] == {"a": 1}


def test_frm_2_line_breaks_inside_a_text_are_kept() -> None:
    (message,) = Decoder().feed(frame_of("t", "hello\n\r\u2028\u0085", 1))
    assert json.loads(message.data)["data"] == "hello\n\r\u2028\u0085"


def test_ctl_1_no_control_frame_has_a_line_that_begins_with_id() -> None:
    for type in sorted(CONTROL_TYPES):
        frame = control_frame(type, {"lastEventId": 5, "text": "\nid: 9\n"}, 1)
        assert not [line for line in frame.split(b"\n") if line.startswith(b"id")]
        decoder = Decoder()
        decoder.feed(b"id: 4\ndata: a\n\n")
        (message,) = decoder.feed(frame)
        assert message.type == type
        assert decoder.last_id == "4"
        body = json.loads(message.data)
        assert (body["v"], body["type"], "id" in body) == (1, type, False)


def test_heartbeats_and_the_opening_comment_dispatch_nothing() -> None:
    decoder = Decoder()
    assert decoder.feed(OPENING_COMMENT + HEARTBEAT + HEARTBEAT) == []
    assert decoder.comments == 3
    assert b"\n\n" not in OPENING_COMMENT + HEARTBEAT


def test_retry_travels_inside_the_block_of_the_first_frame() -> None:
    decoder = Decoder()
    assert decoder.feed(with_retry(2600, frame_of("t", 1, 3)))[0].type == "t"
    assert decoder.retry_ms == 2600


def test_what_is_one_readers_own_can_be_taken_off_again() -> None:
    shared = frame_of("t", 1, 3) + anchor_frame(1)
    assert without_retry(with_retry(2600, shared)) == shared == without_retry(shared)


def test_an_anchor_sets_the_cursor_and_shows_no_event() -> None:
    decoder = Decoder()
    assert decoder.feed(anchor_frame(41)) == []
    assert decoder.last_id == "41"


@given(st.binary(min_size=1, max_size=5000))
def test_a_chunk_says_its_own_length(blob: bytes) -> None:
    size, _, rest = chunked(blob).partition(b"\r\n")
    assert int(size, 16) == len(blob)
    assert rest == blob + b"\r\n"


def test_the_last_chunk_is_the_empty_one() -> None:
    assert LAST_CHUNK == b"0\r\n\r\n"


@given(st.lists(st.tuples(TYPES, JSON), max_size=8), st.integers(1, 64))
def test_a_blob_of_frames_decodes_to_its_events_in_order(events: list[tuple[str, Any]], size: int) -> None:
    blob = b"".join(frame_of(type, data, index + 1) for index, (type, data) in enumerate(events))
    decoder = Decoder()
    messages: list[Message] = []
    for start in range(0, len(blob), size):
        messages += decoder.feed(blob[start : start + size])
    assert [(message.type, message.last_id) for message in messages] == [
        (type, str(index + 1)) for index, (type, _) in enumerate(events)
    ]


def test_the_frame_of_an_event_that_was_not_stored_leaves_the_cursor_where_it_is() -> None:
    payload = make_payload("t", {"a": 1}).payload
    decoder = Decoder()
    decoder.feed(event_frame(7, envelope(payload, 7, 0)))
    [message] = decoder.feed(degraded_frame(envelope(payload, None, 5)))
    assert (message.type, decoder.last_id) == ("t", "7")
    assert "id" not in json.loads(message.data)
