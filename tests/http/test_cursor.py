"""Cursors as they come off the wire (contract 3.2); a malformed one never replays and never fails."""

from __future__ import annotations

import pytest

from support.doors import Gateway, Start
from support.raw_http import Frame, Stream

MALFORMED = [
    "-1", "abc", "1.5", "+1", "0x10", "1e3", "4_2", "1,2", " 1 2", "²", "٥", "１", "null", "1;2", "9007199254740992",
    "18446744073709551616", "9" * 400, "9" * 5000,
]  # fmt: skip


async def _is_live_only(gateway: Gateway, stream: Stream) -> None:
    """The next frame of the stream is what is published now: no replay, no ``replay_complete``."""
    [published] = await gateway.publish("s1", "now")
    frame = await stream.frame()
    assert frame is not None
    assert (frame.id, frame.data) == (published, "now")


async def _ids(stream: Stream, count: int) -> list[int | None]:
    return [frame.id for frame in await stream.take(count)]


@pytest.mark.parametrize("cursor", MALFORMED, ids=lambda text: text[:20])
async def test_cur_1_cur_2_a_malformed_header_is_live_only_and_says_so(gateway: Gateway, cursor: str) -> None:
    await gateway.numbers("s1", 5)
    stream = await gateway.stream("s1", headers={"Last-Event-ID": cursor})
    reason = "too_large" if cursor.isascii() and cursor.isdigit() else "malformed"
    assert stream.answer.headers["x-cursor-ignored"] == reason
    assert stream.answer.headers["x-start-event-id"] == "5"
    assert gateway.watcher.ignored == [("s1", reason)]
    await _is_live_only(gateway, stream)


@pytest.mark.parametrize("cursor", ["-1", "1e3", "%C2%B2", "9" * 400, "9" * 5000, "+1", "%201", ""])
async def test_cur_1_a_malformed_query_is_live_only_too(gateway: Gateway, cursor: str) -> None:
    await gateway.numbers("s1", 5)
    stream = await gateway.stream("s1", f"?last_event_id={cursor}")
    assert "x-cursor-ignored" in stream.answer.headers
    await _is_live_only(gateway, stream)


async def test_cur_2_the_largest_exact_number_is_a_cursor_and_ahead_of_the_log(start: Start) -> None:
    gateway = await start()
    await gateway.numbers("s1", 2)
    stream = await gateway.stream("s1", headers={"Last-Event-ID": "9007199254740991"})
    assert "x-cursor-ignored" not in stream.answer.headers
    first, *rest = await stream.take(4)
    assert (first.type, first.data["reason"]) == ("state_resync_required", "epoch_reset")
    assert first.data["lastDeliveredId"] == 9007199254740991
    assert [frame.id for frame in rest] == [1, 2, None]


async def test_cur_3_no_cursor_an_empty_one_and_zero_are_three_things(gateway: Gateway) -> None:
    await gateway.numbers("s1", 5)
    none = await gateway.stream("s1")
    empty = await gateway.stream("s1", headers={"Last-Event-ID": ""})
    zero = await gateway.stream("s1", headers={"Last-Event-ID": "0"})
    assert "x-cursor-ignored" not in none.answer.headers
    assert empty.answer.headers["x-cursor-ignored"] == "empty"
    assert await _ids(zero, 6) == [1, 2, 3, 4, 5, None]
    [published] = await gateway.publish("s1", "now")
    for stream in (none, empty, zero):
        assert await _ids(stream, 1) == [published]


async def test_cur_4_the_header_wins_over_a_stale_query(gateway: Gateway) -> None:
    await gateway.numbers("s1", 10)
    stream = await gateway.stream("s1", "?lastEventId=2", {"Last-Event-ID": "7"})
    assert await _ids(stream, 3) == [8, 9, 10]


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("", [("Last-Event-ID", "42"), ("Last-Event-ID", "43")]),
        ("", [("Last-Event-ID", "3"), ("last-event-id", "3")]),
        ("?last_event_id=2&last_event_id=3", []),
        ("?lastEventId=2&last_event_id=2", []),
        ("?from=start&from=start", []),
        ("?last_event_id=2", [("Last-Event-ID", "4"), ("Last-Event-ID", "4")]),
    ],
)
async def test_cur_4_a_repeated_cursor_is_live_only(
    gateway: Gateway, query: str, headers: list[tuple[str, str]]
) -> None:
    await gateway.numbers("s1", 5)
    stream = await gateway.stream("s1", query, headers)
    assert stream.answer.headers["x-cursor-ignored"] == "repeated"
    await _is_live_only(gateway, stream)


@pytest.mark.parametrize("query", ["?last_event_id=3", "?lastEventId=3", "?from=3", "?last_event_id=003"])
async def test_a_query_cursor_resumes_like_the_header(gateway: Gateway, query: str) -> None:
    await gateway.numbers("s1", 5)
    frames = await (await gateway.stream("s1", query)).take(3)
    assert [frame.id for frame in frames] == [4, 5, None]
    assert frames[-1].type == "replay_complete"


async def test_from_start_replays_the_ring_without_a_verdict(start: Start) -> None:
    gateway = await start(ring_size=3)
    await gateway.numbers("s1", 5)
    stream = await gateway.stream("s1", "?from=start")
    assert await _ids(stream, 3) == [3, 4, 5]
    await _is_live_only(gateway, stream)


async def test_a_cursor_in_the_query_wins_over_from(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    stream = await gateway.stream("s1", "?from=start&last_event_id=2")
    assert await _ids(stream, 2) == [3, None]


@pytest.mark.parametrize("query", ["?from=live", "?from=now", "?from="])
async def test_another_from_is_live_only(gateway: Gateway, query: str) -> None:
    await gateway.numbers("s1", 3)
    stream = await gateway.stream("s1", query)
    assert ("x-cursor-ignored" in stream.answer.headers) == (query != "?from=live")
    await _is_live_only(gateway, stream)


async def test_epo_a_token_of_another_birth_voids_the_cursor_and_its_own_does_not(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    token = (await gateway.stream("s1")).answer.headers["x-event-epoch"]

    async def first(name: str, value: str) -> Frame:
        stream = await gateway.stream("s1", headers={"Last-Event-ID": "2", name: value})
        [frame] = await stream.take(1)
        return frame

    for name in ("X-Event-Epoch", "X-Qwen-Event-Epoch"):
        assert (await first(name, token)).id == 3
        verdict = await first(name, "0123456789abcdef-0")
        assert (verdict.type, verdict.data["detail"]) == ("state_resync_required", "epoch_mismatch")
        assert (await first(name, "no token!")).id == 3
        assert (await first(name, "x" * 65)).id == 3


async def test_an_epoch_token_without_a_cursor_means_nothing(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    stream = await gateway.stream("s1", headers={"X-Event-Epoch": "0123456789abcdef-0"})
    await _is_live_only(gateway, stream)
