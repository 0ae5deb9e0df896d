"""CloudEvents out: each event is one, and what came in as one is the same one again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.backlog import Frame
from ringmere.core.cloudevent_frames import cloudevent_frames, newest_reshaped
from ringmere.core.cloudevents import parse_structured
from ringmere.core.event import CONTROL_TYPES, envelope, make_payload
from ringmere.core.frames import anchor_frame, control_frame, degraded_frame, envelope_size, event_frame
from ringmere.core.limits import KEPT_BLOB_BYTES, KIB
from ringmere.core.tagged import tag

ID = 42
TIME_MS = 1_767_225_600_123


def frame_of(payload: bytes, public_id: int = ID) -> bytes:
    return event_frame(public_id, envelope(payload, public_id, TIME_MS))


def given_out(frame: bytes, session: str = "s1") -> dict[str, Any]:
    [made] = cloudevent_frames(frame, session)
    head, data = made.removesuffix(b"\n\n").split(b"\ndata: ", 1)
    assert head == frame.split(b"\ndata: ")[0]
    assert b"\n" not in data
    value = json.loads(data)
    assert isinstance(value, dict)
    return value


def test_an_event_has_its_id_its_sessions_path_and_the_logs_time() -> None:
    assert given_out(frame_of(make_payload("text", {"a": [1]}).payload)) == {
        "specversion": "1.0",
        "id": "42",
        "source": "/session/s1",
        "type": "text",
        "time": "2026-01-01T00:00:00.123Z",
        "ringmeresession": "s1",
        "ringmereid": "42",
        "data": {"a": [1]},
    }


def test_its_other_fields_are_extensions() -> None:
    payload = b'{"type":"t","data":null,"originatorClientId":"a","promptId":"p","terminal":true}'
    out = given_out(frame_of(payload))
    assert (out["originatorclientid"], out["promptid"], out["terminal"], out["data"]) == ("a", "p", True, None)


@pytest.mark.parametrize(
    "more",
    [
        {"data": {"x": [1, None]}},
        {"data": None},
        {},
        {"data_base64": "AAE=", "datacontenttype": "image/png"},
        {"data": "text", "datacontenttype": "text/plain"},
        {"time": "2026-01-01T00:00:00Z", "subject": "s", "dataschema": "https://e.com/s", "ext": 5, "yes": True},
        {"originatorclientid": "a", "promptid": "p", "terminal": True},
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    ],
    ids=str,
)
def test_what_was_published_as_a_cloudevent_comes_back_as_it_was(more: dict[str, Any]) -> None:
    event = {"specversion": "1.0", "id": "own", "source": "https://e.com/a", "type": "t", **more}
    out = given_out(frame_of(parse_structured(json.dumps(event).encode()).payload))
    assert (out.pop("ringmereid"), out.pop("ringmeresession")) == ("42", "s1")
    assert out == event


@pytest.mark.parametrize(
    "forged",
    [
        5,
        {},
        {"specversion": "1.0", "id": "1"},
        {"specversion": "1.0", "id": "1", "source": "/", "data": "twice"},
        {"specversion": "1.0", "id": "1", "source": "/", "Bad": 1},
        {"specversion": "1.0", "id": "1", "source": "/", "data_base64": "x"},
    ],
    ids=str,
)
def test_what_others_wrote_into_the_place_is_not_given_out(forged: Any) -> None:
    payload = json.dumps({"type": "t", "data": 1, "_meta": {"cloudevent": forged}}).encode()
    out = given_out(frame_of(payload))
    assert (out["id"], out["source"], out["data"]) == ("42", "/session/s1", 1)


def test_no_stored_attribute_stands_for_what_the_service_says() -> None:
    kept = {"specversion": "1.0", "id": "1", "source": "/", "type": "x", "ringmereid": "7", "ringmeresession": "o"}
    payload = json.dumps({"type": "t", "data": 1, "_meta": {"cloudevent": kept}}).encode()
    out = given_out(frame_of(payload))
    assert (out["type"], out["ringmereid"], out["ringmeresession"]) == ("t", "42", "s1")


@pytest.mark.parametrize("stamp", [1e300, -1e300, 1e17])
def test_a_publishers_number_that_is_no_time_is_left_out(stamp: float) -> None:
    payload = json.dumps({"type": "t", "data": 1, "_meta": {"serverTimestamp": stamp}}).encode()
    assert "time" not in given_out(frame_of(payload))


def test_an_event_that_was_not_stored_has_an_id_of_its_own_kind() -> None:
    event = envelope(b'{"type":"t","data":1}', None, TIME_MS)
    out = given_out(degraded_frame(event))
    assert out["id"].startswith("unstored-")
    assert "ringmereid" not in out


def test_control_frames_and_anchors_stay_as_they_are() -> None:
    for type in CONTROL_TYPES:
        frame = control_frame(type, {"replayedCount": 0}, TIME_MS)
        assert cloudevent_frames(frame, "s1") == (frame,)
    assert cloudevent_frames(anchor_frame(5), "s1") == (anchor_frame(5),)
    assert cloudevent_frames(b"", "s1") == ()


def test_joined_frames_are_taken_one_by_one() -> None:
    control = control_frame("log_degraded", {"since": 1}, TIME_MS)
    frames = [frame_of(make_payload("t", "a\n\nb").payload, 1), control, frame_of(make_payload("u", 2).payload, 2)]
    made = cloudevent_frames(b"".join(frames), "s1")
    assert made == tuple(one for frame in frames for one in cloudevent_frames(frame, "s1"))
    assert len(made) == 3


def test_an_event_of_a_stream_of_many_names_its_own_session() -> None:
    frame = frame_of(make_payload("t", 1).payload)
    tagged = tag(Frame(ID, frame, envelope_size(frame)), "other")
    out = given_out(b"id: 0:42,1:7\n" + tagged.body, "s1 and 3 more")
    assert (out["source"], out["ringmeresession"], out["ringmereid"]) == ("/session/other", "other", "42")


def test_the_same_bytes_are_made_into_cloudevents_once() -> None:
    raw = frame_of(make_payload("t", "once").payload)
    assert cloudevent_frames(raw, "s1") is cloudevent_frames(bytes(bytearray(raw)), "s1")
    assert cloudevent_frames(raw, "s2") != cloudevent_frames(raw, "s1")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=20), st.text())
def test_any_type_and_text_comes_through(type: str, text: str) -> None:
    if not type.isprintable() or type in ("open", "error"):
        return
    out = given_out(frame_of(make_payload(type, text).payload))
    assert (out["type"], out["data"]) == (type, text)


def test_very_long_bytes_are_reshaped_alike_and_not_kept() -> None:
    frame = frame_of(make_payload("t", "x" * KIB).payload)
    long = frame * (KEPT_BLOB_BYTES // len(frame) + 1)
    newest_reshaped.cache_clear()
    assert cloudevent_frames(long, "s1") == cloudevent_frames(frame, "s1") * long.count(frame)
    assert newest_reshaped.cache_info().currsize == 1


@pytest.mark.parametrize(
    ("kept", "data"),
    [({"data_base64": True}, {"a": 1}), ({"data_absent": True}, {"a": 1}), ({"data_absent": True}, "")],
)
def test_a_mark_of_data_that_the_event_does_not_have_makes_no_cloudevent_without_its_data(
    kept: dict[str, Any], data: Any
) -> None:
    meta = {"cloudevent": {"specversion": "1.0", "id": "x", "source": "y", **kept}}
    out = given_out(frame_of(make_payload("t", data, meta=meta).payload))
    assert (out["id"], out["data"]) == ("42", data)
    assert "data_base64" not in out


def test_what_is_an_events_own_field_is_not_taken_from_its_meta() -> None:
    own = {"terminal": True, "promptid": "p", "originatorclientid": "c", "ringmereid": "9", "ringmeresession": "other"}
    meta = {"cloudevent": {"specversion": "1.0", "id": "x", "source": "y", **own}}
    out = given_out(frame_of(make_payload("t", 1, meta=meta).payload))
    assert out == {
        "specversion": "1.0",
        "id": "x",
        "source": "y",
        "type": "t",
        "ringmeresession": "s1",
        "ringmereid": "42",
        "data": 1,
    }
