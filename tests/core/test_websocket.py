"""SSE frames as WebSocket text frames."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame
from websockets.protocol import Protocol, Side

from ringmere.core.event import envelope, make_payload
from ringmere.core.frames import HEARTBEAT, OPENING_COMMENT, anchor_frame, control_frame, event_frame, with_retry
from ringmere.core.limits import KEPT_BLOB_BYTES, KIB
from ringmere.core.websocket import newest_frames, text_frame, text_frames, text_frames_with_cursor


def parsed(data: bytes) -> list[bytes]:
    """Return the payloads that somebody else's parser finds; each frame must be a whole unmasked text."""
    client = Protocol(Side.CLIENT, max_size=None)
    client.receive_data(data)
    frames = client.events_received()
    assert client.parser_exc is None
    assert all(isinstance(frame, Frame) and frame.fin and frame.opcode == 1 for frame in frames)
    return [bytes(frame.data) for frame in frames if isinstance(frame, Frame)]


def test_each_length_has_the_header_that_another_parser_expects() -> None:
    for size in (0, 1, 125, 126, 127, 65535, 65536, 70000):
        payload = b"x" * size
        assert parsed(text_frame(payload) + text_frame(b"after")) == [payload, b"after"]


@given(st.lists(st.one_of(st.none(), st.text(max_size=200), st.integers()), max_size=8))
def test_each_envelope_of_a_blob_is_one_text_frame_and_nothing_else_is(values: list[object]) -> None:
    blob, expected = b"", []
    for number, value in enumerate(values, 1):
        event = envelope(make_payload("data: x", value).payload, number, 7)
        blob += event_frame(number, event)
        expected.append(event.json)
    notice = control_frame("replay_complete", {"replayedCount": 0}, 5)
    assert parsed(text_frames(with_retry(5, blob + notice))) == [*expected, notice.split(b"data: ", 1)[1].strip()]


def test_what_has_no_data_is_no_frame() -> None:
    for silent in (HEARTBEAT, OPENING_COMMENT, anchor_frame(7), b"retry: 5\n"):
        assert text_frames(silent) == b""


def test_the_frames_of_the_same_bytes_are_made_once() -> None:
    blob = event_frame(1, envelope(make_payload("t", "once").payload, 1, 7))
    assert text_frames(blob) is text_frames(bytes(bytearray(blob)))


def test_very_long_bytes_are_framed_alike_and_not_kept() -> None:
    event = event_frame(1, envelope(make_payload("t", "x" * KIB).payload, 1, 7))
    long = event * (KEPT_BLOB_BYTES // len(event) + 1)
    newest_frames.cache_clear()
    assert text_frames(long) == text_frames(event) * long.count(event)
    assert newest_frames.cache_info().currsize == 1


def test_the_cursor_of_a_stream_of_many_goes_into_the_envelope_of_its_event_only() -> None:
    event = envelope(make_payload("t", 1).payload, 9, 7)
    body = event_frame(9, event).split(b"\n", 1)[1]
    notice = control_frame("log_degraded", {"since": 1}, 5)
    blob = b"id: 0:4,1:9\n" + body + notice + b"id: 12\n" + body + anchor_frame(13) + notice
    cursors = [json.loads(one).get("cursor") for one in parsed(text_frames_with_cursor(blob))]
    assert cursors == ["0:4,1:9", None, 12, None]
    first = json.loads(parsed(text_frames_with_cursor(blob))[0])
    assert {**json.loads(event.json), "cursor": "0:4,1:9"} == first
