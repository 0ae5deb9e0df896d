"""Frames that name their session: the same frame otherwise, whatever type and data hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.backlog import Frame
from ringmere.core.decoder import Decoder
from ringmere.core.event import envelope, make_payload
from ringmere.core.frames import control_frame, degraded_frame, envelope_size, event_frame
from ringmere.core.tagged import Tagged, tag

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def made(data: object, type: str = "t") -> tuple[Frame, dict[str, object]]:
    event = envelope(make_payload(type, data).payload, 7, 1000)
    return Frame(7, event_frame(7, event), len(event.json)), json.loads(event.json)


def read(frame: Tagged, line: bytes = b"id: 7\n") -> dict[str, object]:
    (message,) = Decoder().feed(line + frame.body)
    found: dict[str, object] = json.loads(message.data)
    assert message.type == found["type"]
    return found


@given(JSON, st.sampled_from(["t", '"v":1,', 'a "v":1,"data":{', "data: x"]))
def test_an_event_is_the_same_and_names_its_session(data: object, type: str) -> None:
    frame, plain = made(data, type)
    tagged = tag(frame, "a:b~c@d=e-f_g")
    assert read(tagged) == {**plain, "sessionId": "a:b~c@d=e-f_g"}
    assert tagged.seq == 7
    assert tagged.size == envelope_size(b"id: 7\n" + tagged.body)


def test_an_event_loses_its_id_line_which_is_the_streams() -> None:
    assert b"id: " not in tag(made({"n": 1})[0], "s").body


def test_the_size_of_an_envelope_is_found_in_its_frame() -> None:
    frame, _ = made({"text": "data: \n\n"})
    assert envelope_size(frame.sse) == frame.size


def test_an_event_that_was_not_stored_names_its_session_in_the_envelope_only() -> None:
    event = envelope(make_payload("t", {"n": 1}).payload, None, 1000)
    found = read(tag(Frame(0, degraded_frame(event), len(event.json)), "s"), b"")
    assert found["sessionId"] == "s"
    assert found["data"] == {"n": 1}


@pytest.mark.parametrize("data", [{}, {"reason": "ring_evicted"}])
def test_a_control_frame_names_its_session_in_its_data_too(data: dict[str, object]) -> None:
    found = read(tag(Frame(0, control_frame("state_resync_required", data, 5), 0), "s"), b"")
    assert found["data"] == {**data, "sessionId": "s"}
    assert found["sessionId"] == "s"
