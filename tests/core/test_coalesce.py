"""Merging events that differ in one text only (contract 6.8): what becomes one, what never does, and as which bytes."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.backlog import Backlog, Frame, State
from ringmere.core.coalesce import Rules, parse_pointer, parse_rule
from ringmere.core.event import envelope, is_terminal
from ringmere.core.frames import event_frame
from ringmere.core.limits import MIB
from ringmere.core.reasons import CloseReason

RULES = Rules({"chunk": "/data/update/text", "plain": "/data", "deep": "/data/a~1b/1/~0c"})


def payload(type: str, data: Any, **more: Any) -> bytes:
    return json.dumps({"type": type, "data": data, **more}, ensure_ascii=False, separators=(",", ":")).encode()


def frame(seq: int, stored: bytes, ms: int = 1_700_000_000_000) -> Frame:
    event = envelope(stored, seq, ms)
    return Frame(seq, event_frame(seq, event), len(event.json))


def chunk(seq: int, text: str, ms: int = 1_700_000_000_000, **more: Any) -> Frame:
    return frame(seq, payload("chunk", {"update": {"kind": "m", "text": text, "n": 1}}, **more), ms)


def backlog(max_frames: int = 256, max_bytes: int = MIB, rules: Rules = RULES) -> Backlog:
    return Backlog(max_frames, max_bytes, rules=rules)


def taken(queue: Backlog) -> list[tuple[int, dict[str, Any]]]:
    """Take everything one write at a time; return ids and envelopes, and check that nothing is left in the sums."""
    raw = b""
    while queue.queue:
        raw += queue.take(1)
    assert (queue.frames, queue.bytes) == (0, 0)
    read = []
    for block in raw.decode().split("\n\n")[:-1]:
        id, type, data = block.split("\n")
        envelope = json.loads(data.removeprefix("data: "))
        assert id == f"id: {envelope['id']}"
        assert type == f"event: {envelope['type']}"
        read.append((envelope["id"], envelope))
    return read


def merged(*frames: Frame, rules: Rules = RULES) -> list[tuple[int, dict[str, Any]]]:
    queue = backlog(rules=rules)
    for one in frames:
        assert queue.offer(one) is False
    return taken(queue)


def test_two_events_that_differ_in_the_text_only_become_one_with_both_texts_and_the_id_of_the_last() -> None:
    [(id, one)] = merged(chunk(7, "Hel", 1000), chunk(9, "lo", 2000))
    assert id == 9
    assert one["data"] == {"update": {"kind": "m", "text": "Hello", "n": 1}}
    assert one["_meta"] == {"serverTimestamp": 2000}


@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("plain", ["", "a", 'quote " back \\ slash', "\u2028 \U0001f600 é", "\n\t\x00"]),
        ("deep", [{"a/b": [0, {"~c": text, "z": None}, 2.50]} for text in ("x", "", "y")]),
    ],
)
def test_the_pointer_leads_anywhere_in_data_and_texts_keep_their_escapes(type: str, data: list[Any]) -> None:
    [(id, one)] = merged(*(frame(seq, payload(type, value)) for seq, value in enumerate(data, 1)))
    assert id == len(data)
    texts = data if type == "plain" else [value["a/b"][1]["~c"] for value in data]
    assert (one["data"] if type == "plain" else one["data"]["a/b"][1]["~c"]) == "".join(texts)


@pytest.mark.parametrize(
    "other",
    [
        frame(2, payload("note", {"update": {"kind": "m", "text": "b", "n": 1}})),
        frame(2, payload("chunk", {"update": {"kind": "x", "text": "b", "n": 1}})),
        frame(2, payload("chunk", {"update": {"kind": "m", "text": "b"}})),
        frame(2, payload("chunk", {"update": {"kind": "m", "text": "b", "n": 1}, "more": 1})),
        frame(2, payload("chunk", {"update": {"kind": "m", "text": 5, "n": 1}})),
        frame(2, payload("chunk", {"update": {"kind": "m", "n": 1}})),
        frame(2, payload("chunk", {"update": None})),
        frame(2, payload("chunk", "b")),
        chunk(2, "b", promptId="p"),
        chunk(2, "b", originatorClientId="c"),
        chunk(2, "b", _meta={"trace": 1}),
        chunk(2, "b", terminal=True),
    ],
)
def test_an_event_that_differs_in_anything_else_stays_its_own(other: Frame) -> None:
    read = merged(chunk(1, "a"), other, chunk(3, "c"))
    assert [id for id, _ in read] == [1, 2, 3]


def test_equal_other_fields_are_kept_and_a_publishers_own_timestamp_may_differ() -> None:
    def say(seq: int, text: str, at: float) -> Frame:
        return chunk(seq, text, promptId="p", originatorClientId="c", _meta={"serverTimestamp": at, "trace": "t"})

    [(_, one)] = merged(say(1, "a", 1.5), say(2, "b", 2.5))
    assert (one["promptId"], one["originatorClientId"]) == ("p", "c")
    assert one["_meta"] == {"serverTimestamp": 2.5, "trace": "t"}


def test_a_terminal_event_of_a_mergeable_type_is_never_part_of_another() -> None:
    last = payload("plain", "b", terminal=True)
    assert is_terminal(last)
    assert [id for id, _ in merged(frame(1, payload("plain", "a")), frame(2, last))] == [1, 2]


def test_events_that_are_not_adjacent_stay_apart() -> None:
    queue = backlog()
    queue.offer(chunk(1, "a"))
    queue.push_control(b"event: slow_client_warning\ndata: {}\n\n")
    queue.offer(chunk(2, "b"))
    queue.offer(chunk(3, "c"))
    assert (queue.frames, len(queue.queue)) == (2, 3)
    assert b'"text":"a"' in queue.take(1)
    assert b"slow_client_warning" in queue.take(1)
    assert b'"text":"bc"' in queue.take(1)


def test_what_has_been_handed_over_is_merged_with_no_more() -> None:
    queue = backlog()
    queue.offer(chunk(1, "a"))
    queue.take(1)
    queue.offer(chunk(2, "b"))
    assert [id for id, _ in taken(queue)] == [2]


def test_an_event_that_nothing_joined_leaves_as_the_bytes_it_came_as() -> None:
    loose = frame(1, b'{ "type" : "chunk", "data" : { "update" : {"text": "a" , "kind" : 1} } }')
    queue = backlog()
    queue.offer(loose)
    assert queue.take(1) == loose.sse


def test_without_rules_nothing_is_merged() -> None:
    for queue in (backlog(rules=Rules({})), Backlog(256, MIB)):
        queue.offer(chunk(1, "a"))
        queue.offer(chunk(2, "b"))
        assert queue.frames == 2


def test_a_full_backlog_still_takes_what_becomes_part_of_its_newest_event() -> None:
    queue = backlog(max_frames=16)
    for seq in range(1, 17):
        queue.offer(frame(seq, payload("note", seq)) if seq < 16 else chunk(seq, "a"))
    assert queue.frames == 16
    for seq in range(17, 100):
        assert queue.offer(chunk(seq, "b")) is False
    assert queue.offer(frame(100, payload("note", 1))) is CloseReason.QUEUE_OVERFLOW
    assert (queue.frames, queue.last_seq, queue.merged) == (16, 99, 83)
    assert taken(queue)[-1][1]["data"]["update"]["text"] == "a" + 83 * "b"


def test_one_event_never_grows_beyond_the_byte_cap_by_merging() -> None:
    queue = backlog(max_bytes=2000)
    seq = 1
    while queue.offer(chunk(seq, 100 * "x")) is not CloseReason.QUEUE_BYTES_OVERFLOW:
        assert queue.bytes <= 2000
        seq += 1
    [(id, one)] = taken(queue)
    assert id == seq - 1
    assert len(one["data"]["update"]["text"]) == 100 * (seq - 1) > 1500


def test_the_warning_and_its_rearm_go_by_what_the_merged_events_take() -> None:
    queue = backlog(max_bytes=2000)
    bare = chunk(1, "").size
    texts = ["x" * 100] * 14
    answers = [queue.offer(chunk(seq, text)) for seq, text in enumerate(texts, 1)]
    crossed = next(n for n in range(1, 15) if bare + 100 * n >= 1500)
    assert answers == [n == crossed for n in range(1, 15)]
    assert (queue.frames, queue.threshold(), queue.state) == (1, "bytes", State.WARNED)
    taken(queue)
    assert queue.offer(chunk(20, "x")) is False
    assert queue.state is State.OK


@pytest.mark.parametrize(
    "text", ["", "chunk", "chunk=", "chunk=data/x", "chunk=/", "chunk=/id", "chunk=/datum", "=/data", "chunk=/data/~2"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"pointer|type"):
        parse_rule(text)


@pytest.mark.parametrize("type", ["session_closed", "session_died", "client_evicted", "open", "a\nb", "x" * 129])
def test_a_type_that_ends_a_session_or_is_no_publishers_has_no_rule(type: str) -> None:
    with pytest.raises(ValueError, match="type"):
        parse_rule(f"{type}=/data/text")


def test_a_rule_is_split_at_its_first_pointer() -> None:
    assert parse_rule("a=b=/data/c=/d") == ("a=b", "/data/c=/d")
    assert parse_pointer("/data/c=/d") == ("c=", "d")
    assert parse_pointer("/data") == ()
    assert parse_pointer("/data//~01") == ("", "~1")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KINDS = st.sampled_from(["chunk", "plain", "note"])
SHAPES = st.integers(0, 1)


@given(
    st.lists(st.tuples(KINDS, SHAPES, TEXTS, st.booleans()), max_size=40),
    st.lists(st.integers(0, 39), max_size=6),
)
def test_merging_then_reading_equals_concatenating(events: list[tuple[str, int, str, bool]], drains: list[int]) -> None:
    """For any events, taken at any moments: same texts in the same order, each run with the id of its last."""

    def data(kind: str, shape: int, text: str) -> Any:
        return {"plain": text, "note": text, "chunk": {"shape": shape, "update": {"text": text}}}[kind]

    queue, read, runs, epoch = backlog(10_000), [], [], 0
    for seq, (kind, shape, text, terminal) in enumerate(events, 1):
        more = {"terminal": True} if terminal else {}
        queue.offer(frame(seq, payload(kind, data(kind, shape, text), **more), 1_700_000_000_000 + seq))
        alone = kind == "note" or terminal
        runs.append(((epoch, kind, shape if kind == "chunk" else 0, seq if alone else 0), seq, text))
        if seq in drains:
            read += taken(queue)
            epoch += 1
    read += taken(queue)
    expected = []
    for _, group in groupby(runs, key=lambda row: row[0]):
        rows = list(group)
        expected.append((rows[-1][1], "".join(text for _, _, text in rows)))
    texts = [one["data"]["update"]["text"] if one["type"] == "chunk" else one["data"] for _, one in read]
    assert list(zip([id for id, _ in read], texts, strict=True)) == expected


@given(st.lists(TEXTS, min_size=1, max_size=12))
def test_the_bytes_counted_are_the_bytes_of_the_envelope_at_every_step(texts: list[str]) -> None:
    for count in range(1, len(texts) + 1):
        queue = backlog()
        for seq, text in enumerate(texts[:count], 8):
            queue.offer(chunk(seq, text, 10**seq))
        counted = queue.bytes
        assert queue.frames == 1
        sse = queue.take(1)
        assert len(sse.split(b"\ndata: ")[1]) - 2 == counted
        assert queue.bytes == 0
