"""What a message of a stream becomes."""

from __future__ import annotations

from typing import Any

import pytest

from ringmere.client.errors import BrokenStream
from ringmere.client.items import Control, Event, Resync, item_of, resync_of, retry_hint
from ringmere.core.decoder import Message


def message(data: str) -> Message:
    return Message("t", data, "")


def test_an_envelope_with_an_id_is_an_event() -> None:
    item = item_of(message('{"id":7,"v":1,"type":"t","data":[1],"promptId":"p"}'))
    assert isinstance(item, Event)
    assert (item.id, item.type, item.data, item.envelope["promptId"], item.in_sync) == (7, "t", [1], "p", True)


def test_an_envelope_without_an_id_is_a_control_frame() -> None:
    item = item_of(message('{"v":1,"type":"t","data":{"a":1}}'))
    assert isinstance(item, Control)
    assert (item.type, item.data) == ("t", {"a": 1})


@pytest.mark.parametrize(
    "data",
    ["", "x", "1", "[]", "null", '{"id":', '{"id":0}', '{"id":-1}', '{"id":"7"}', '{"id":1.0}', '{"id":true}',
     '{"id":9007199254740992}', "[" * 100_000, '{"a":1e999}'],
)  # fmt: skip
def test_anything_else_is_no_stream_of_this_protocol(data: str) -> None:
    with pytest.raises(BrokenStream):
        item_of(message(data))


@pytest.mark.parametrize(
    ("type", "more", "terminal"),
    [("t", "", False), ("t", ',"terminal":true', True), ("t", ',"terminal":1', False), ("session_closed", "", True)],
)
def test_an_event_knows_whether_it_is_terminal(type: str, more: str, terminal: bool) -> None:
    item = item_of(Message(type, f'{{"id":1,"type":"{type}","data":1{more}}}', "1"))
    assert isinstance(item, Event)
    assert item.terminal is terminal


def test_a_verdict_frame_is_read_with_what_it_has() -> None:
    whole = {"reason": "ring_evicted", "lastDeliveredId": 1, "earliestAvailableId": 3}
    assert resync_of(Control("state_resync_required", whole, {})) == Resync("ring_evicted", None, 1, 3)
    odd = {"reason": "epoch_reset", "detail": "foreign_cursor", "lastDeliveredId": "1"}
    assert resync_of(Control("state_resync_required", odd, {})) == Resync("epoch_reset", "foreign_cursor", None, None)


@pytest.mark.parametrize(
    ("data", "seconds"),
    [({"retryAfterMs": 5000}, 5.0), ({"retryMs": 250}, 0.25), ({"retryAfterMs": "5"}, 0.0), ({"retryMs": -5}, 0.0),
     ({"retryMs": True}, 0.0), ({}, 0.0)],
)  # fmt: skip
def test_an_ending_frame_may_ask_to_wait(data: dict[str, Any], seconds: float) -> None:
    assert retry_hint(Control("stream_error", data, {})) == seconds


@pytest.mark.parametrize(
    ("meta", "degraded"),
    [('{"degraded":true}', True), ('{"degraded":1}', False), ('{"serverTimestamp":1}', False), ("[]", False)],
)
def test_an_event_that_no_log_has_is_told_from_the_gateway_s_own_frames(meta: str, degraded: bool) -> None:
    item = item_of(message(f'{{"v":1,"type":"t","data":"text","_meta":{meta}}}'))
    assert isinstance(item, Control)
    assert item.degraded is degraded
    assert item.envelope["data"] == "text"
