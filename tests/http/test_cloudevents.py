"""``?format=cloudevents``: each event is one that the official SDK reads, whichever way it comes to the reader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_structured, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from support.doors import Gateway, Start
from support.raw_http import Frame, Stream, connection, fetch, request_bytes

OURS = {"ringmereid", "ringmeresession"}


def read(frame: Frame) -> Any:
    """Return a frame's CloudEvent as the official SDK reads it."""
    message = HTTPMessage({"content-type": "application/cloudevents+json"}, json.dumps(frame.json).encode())
    return from_structured(message, JSONFormat(), CloudEvent)


@pytest.mark.parametrize("form", [to_structured, to_binary])
@pytest.mark.parametrize(
    ("data", "content_type"), [({"text": "Ü"}, "application/json"), ("Ü", "text/plain"), (b"\x00\xff", "image/png")]
)
async def test_a_cloudevent_goes_round_unchanged(gateway: Gateway, form: Any, data: Any, content_type: str) -> None:
    attributes = {"id": "own", "source": "https://e.com/a", "type": "note", "datacontenttype": content_type, "x": "y"}
    sent = CloudEvent({**attributes, "specversion": "1.0", "subject": "ä b"}, data)
    message = form(sent, JSONFormat())
    live = await gateway.stream("s1", "?format=cloudevents")
    answer = await fetch(gateway.port, "POST", "/session/s1/events", message.headers, message.body)
    assert answer.status == 201, answer.body
    replayed = await gateway.stream("s1", "?format=cloudevents&from=start")
    for stream in (live, replayed):
        [frame] = await stream.take(1)
        got = read(frame)
        kept = {name: value for name, value in got.get_attributes().items() if name not in OURS}
        assert (kept, got.get_data()) == (sent.get_attributes(), data)
        assert (frame.id, got.get_extension("ringmereid")) == (1, "1")


async def test_an_event_published_as_ever_is_a_cloudevent_of_its_session(gateway: Gateway) -> None:
    await gateway.publish("s1", {"n": 1})
    [frame] = await (await gateway.stream("s1", "?format=cloudevents&from=start")).take(1)
    event = read(frame)
    assert (event.get_id(), event.get_source(), event.get_type()) == ("1", "/session/s1", "t")
    assert event.get_data() == {"n": 1}
    assert event.get_time() is not None


async def test_readers_of_both_forms_get_the_same_events_side_by_side(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    streams = {form: await gateway.stream("s1", f"?last_event_id=1{form}") for form in ("", "&format=cloudevents")}
    for stream in streams.values():
        assert [frame.type for frame in await stream.take(3)] == ["t", "t", "replay_complete"]
    await gateway.publish("s1", {"n": 4}, {"n": 5})
    seen = {form: await stream.take(2) for form, stream in streams.items()}
    assert [frame.id for frame in seen["&format=cloudevents"]] == [frame.id for frame in seen[""]] == [4, 5]
    assert [frame.json["data"] for frame in seen["&format=cloudevents"]] == [{"n": 4}, {"n": 5}]
    assert {frame.json["specversion"] for frame in seen["&format=cloudevents"]} == {"1.0"}
    assert {frame.json["v"] for frame in seen[""]} == {1}


async def test_control_frames_are_as_they_are_elsewhere(start: Start) -> None:
    gateway = await start(ring_size=2)
    await gateway.numbers("s1", 5)
    stream = await gateway.stream("s1", "?last_event_id=1&format=cloudevents")
    first, *_, last = await stream.take(4)
    assert (first.type, first.json["data"]["reason"]) == ("state_resync_required", "ring_evicted")
    assert (last.type, last.json["data"]["replayedCount"]) == ("replay_complete", 2)


async def test_a_stream_of_many_sessions_gives_them_out_too(gateway: Gateway) -> None:
    ids = [*await gateway.publish("a", 1), *await gateway.publish("b", 2)]
    async with connection(gateway.port) as opened:
        await opened.send(request_bytes("GET", "/events?session=a,b&from=start&format=cloudevents"))
        frames = await Stream(opened, await opened.head()).take(2)
    assert [(frame.json["source"], frame.json["data"]) for frame in frames] == [("/session/a", 1), ("/session/b", 2)]
    assert [frame.id for frame in frames] == ids


@pytest.mark.parametrize("query", ["format=json", "format=", "format=cloudevents&format=cloudevents"])
@pytest.mark.parametrize("path", ["/session/s1/events?", "/events?session=s1&"])
async def test_any_other_format_is_refused(gateway: Gateway, path: str, query: str) -> None:
    answer = await gateway.get(path + query)
    assert (answer.status, answer.code) == (400, "invalid_format")
