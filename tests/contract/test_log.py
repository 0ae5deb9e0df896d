"""What every log promises (``ringmere.log.port``): in memory, and on JetStream with both readers and both tails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ringmere.core.cursor import EpochRow, Outcome, decide, event_id
from ringmere.core.errors import (
    EventTooLarge,
    InvalidSessionId,
    KeyReused,
    LogUnavailable,
    PublishUnconfirmed,
    WrongLastEventId,
)
from ringmere.log.port import Appended, Log, Row
from support.logs import Ear, Live, Rig, fill, jetstream_rig, memory_rig, read_all, row
from support.nats import eventually


@pytest.fixture(params=["memory", "direct-republish", "consumer-republish", "direct-consumer"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A site without any log yet: in memory, or JetStream with a reader and a tail."""
    made = memory_rig() if request.param == "memory" else jetstream_rig(tmp_path, *request.param.split("-"))
    async with made as site:
        yield site


async def test_an_append_returns_the_sequence_that_readers_see(rig: Rig) -> None:
    log = await rig.open()
    assert await fill(log, "s1", range(1, 6)) == [1, 2, 3, 4, 5]
    page = await log.page("s1", 3, 1 << 20)
    assert [(message.seq, message.payload) for message in page.messages] == [
        (seq, row(seq).payload) for seq in (3, 4, 5)
    ]
    assert not page.more


async def test_times_are_the_logs_own_and_ascend(rig: Rig) -> None:
    log = await rig.open()
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", range(3))
    await live.until(3)
    times = [message.time_ns for message in (await log.page("s1", 1, 1 << 20)).messages]
    assert times == sorted(times)
    assert [message[2] for message in live.messages] == times
    last = await log.last("s1")
    assert last is not None
    assert last.time_ns == times[-1]


async def test_sessions_of_a_stream_share_its_sequences_and_nothing_else(rig: Rig) -> None:
    log = await rig.open()
    for number in range(4):
        await fill(log, "a", [number])
        await fill(log, "b", [number])
    assert await read_all(log, "a") == [1, 3, 5, 7]
    assert await read_all(log, "b") == [2, 4, 6, 8]


async def test_the_ring_keeps_exactly_one_event_more_than_its_size_as_fence(rig: Rig) -> None:
    log = await rig.open(ring_size=3)
    for count, (first, stored, fenced) in enumerate(
        [(1, 1, False), (1, 2, False), (1, 3, False), (1, 4, True), (2, 4, True), (3, 4, True)], start=1
    ):
        await fill(log, "s1", [count])
        bounds = await log.bounds("s1")
        assert (bounds.first, bounds.last, bounds.stored) == (first, count, stored)
        assert bounds.fenced(log.ring_size) is fenced


async def test_rings_of_interleaved_sessions_are_trimmed_each_for_itself(rig: Rig) -> None:
    log = await rig.open(ring_size=2)
    await fill(log, "quiet", [1])
    for number in range(6):
        await fill(log, "busy", [number])
    assert await read_all(log, "quiet") == [1]
    assert await read_all(log, "busy") == [5, 6, 7]
    bounds = await log.bounds("busy")
    assert (bounds.tail, bounds.stream_first, bounds.first, bounds.stored) == (7, 1, 5, 3)


async def test_bounds_of_an_empty_session_name_the_streams_own(rig: Rig) -> None:
    log = await rig.open()
    bounds = await log.bounds("s1")
    assert (bounds.tail, bounds.stream_first, bounds.first, bounds.last, bounds.stored) == (0, 1, 0, 0, 0)
    await fill(log, "other", range(3))
    bounds = await log.bounds("s1")
    assert (bounds.tail, bounds.stream_first, bounds.first, bounds.last, bounds.stored) == (3, 1, 0, 0, 0)
    assert await log.last("s1") is None


async def test_contains_is_true_only_for_what_is_stored_on_this_session(rig: Rig) -> None:
    log = await rig.open(ring_size=2)
    await fill(log, "a", [1])
    await fill(log, "b", range(4))
    assert [seq for seq in range(8) if await log.contains("a", seq)] == [1]
    assert [seq for seq in range(8) if await log.contains("b", seq)] == [3, 4, 5]


# Safe repetition (contract 2.3, 2.4).


async def test_pub_7_the_same_key_and_body_is_one_event(rig: Rig) -> None:
    log = await rig.open()
    assert await log.append("s1", row(1, "k")) == Appended(1, False)
    await fill(log, "s1", [2])
    assert await log.append("s1", row(1, "k")) == Appended(1, True)
    assert await read_all(log, "s1") == [1, 2]


async def test_pub_7_the_same_key_with_another_body_is_refused_and_not_stored(rig: Rig) -> None:
    log = await rig.open()
    await log.append("s1", row(1, "k"))
    with pytest.raises(KeyReused):
        await log.append("s1", row(2, "k"))
    assert await read_all(log, "s1") == [1]


async def test_pub_7_after_the_window_the_key_is_a_new_event(rig: Rig) -> None:
    log = await rig.open(duplicate_window=1.0)
    await log.append("s1", row(1, "k"))
    await rig.let_time_pass(1.6)
    assert await log.append("s1", row(2, "k")) == Appended(2, False)


async def test_a_key_belongs_to_its_session(rig: Rig) -> None:
    log = await rig.open()
    await log.append("a", row(1, "k"))
    assert await log.append("b", row(2, "k")) == Appended(2, False)


async def test_a_key_whose_event_has_left_the_ring_is_a_plain_duplicate(rig: Rig) -> None:
    log = await rig.open(ring_size=1)
    await log.append("s1", row(1, "k"))
    await fill(log, "s1", [2, 3])
    assert await log.append("s1", row(9, "k")) == Appended(1, True)


async def test_an_expectation_holds_or_names_the_last_id(rig: Rig) -> None:
    log = await rig.open()
    assert await log.append("s1", row(1), expected=0) == Appended(1)
    await fill(log, "other", range(3))
    assert await log.append("s1", row(2), expected=1) == Appended(5)
    for wrong in (0, 1, 4, 6):
        with pytest.raises(WrongLastEventId) as caught:
            await log.append("s1", row(3), expected=wrong)
        assert caught.value.current == 5
    with pytest.raises(WrongLastEventId) as caught:
        await log.append("empty", row(3), expected=5)
    assert caught.value.current == 0
    assert await read_all(log, "s1") == [1, 5]


async def test_a_retry_with_its_key_and_expectation_is_a_duplicate_not_a_conflict(rig: Rig) -> None:
    log = await rig.open()
    await log.append("s1", row(1))
    assert await log.append("s1", row(2, "k"), expected=1) == Appended(2, False)
    assert await log.append("s1", row(2, "k"), expected=1) == Appended(2, True)
    await fill(log, "s1", [3])
    assert await log.append("s1", row(2, "k"), expected=1) == Appended(2, True)
    with pytest.raises(KeyReused):
        await log.append("s1", row(9, "k"), expected=1)


async def test_a_conflict_does_not_use_up_its_key(rig: Rig) -> None:
    log = await rig.open()
    await log.append("s1", row(1))
    with pytest.raises(WrongLastEventId):
        await log.append("s1", row(2, "k"), expected=7)
    assert await log.append("s1", row(2, "k"), expected=1) == Appended(2, False)


async def test_of_racing_conditional_appends_exactly_one_wins(rig: Rig) -> None:
    log, other = await rig.open(), await rig.open()
    results = await asyncio.gather(
        *(instance.append("s1", row(number), expected=0) for number in range(10) for instance in (log, other)),
        return_exceptions=True,
    )
    assert [result for result in results if isinstance(result, Appended)] == [Appended(1)]
    assert {type(result) for result in results} == {Appended, WrongLastEventId}
    assert await read_all(log, "s1") == [1]


# Batches (contract 2.2).


async def test_a_batch_keeps_its_order_and_gives_each_row_its_result(rig: Rig) -> None:
    log = await rig.open()
    await log.append("s1", row(1, "old"))
    rows = [row(2), row(1, "old"), Row(b"x" * (log.max_event_bytes + 1)), row(9, "old"), row(3)]
    results = await log.append_many("s1", rows)
    assert results[0] == Appended(2)
    assert results[1] == Appended(1, True)
    assert isinstance(results[2], EventTooLarge)
    assert isinstance(results[3], KeyReused)
    assert results[4] == Appended(3)
    assert await read_all(log, "s1") == [1, 2, 3]


async def test_a_batch_of_a_thousand_is_stored_in_order(rig: Rig) -> None:
    log = await rig.open()
    results = await log.append_many("s1", [row(number) for number in range(1000)])
    assert results == [Appended(seq) for seq in range(1, 1001)]
    page = await log.page("s1", 1, 1 << 20)
    assert [message.payload for message in page.messages] == [row(number).payload for number in range(1000)]


async def test_an_atomic_batch_is_stored_as_a_whole(rig: Rig) -> None:
    log = await rig.open()
    assert await log.append_atomic("s1", [row(n) for n in range(3)]) == [Appended(n) for n in (1, 2, 3)]
    assert await log.append_atomic("s1", [row(3)]) == [Appended(4)]
    thousand = await log.append_atomic("s1", [row(n) for n in range(1000)])
    assert thousand == [Appended(n) for n in range(5, 1005)]


async def test_an_atomic_batch_with_a_wrong_expectation_stores_nothing(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", [1])
    with pytest.raises(WrongLastEventId) as caught:
        await log.append_atomic("s1", [row(2), row(3)], expected=0)
    assert caught.value.current == 1
    assert await log.append_atomic("s1", [row(2), row(3)], expected=1) == [Appended(2), Appended(3)]
    assert await read_all(log, "s1") == [1, 2, 3]


async def test_an_atomic_batch_with_one_row_too_large_stores_nothing(rig: Rig) -> None:
    log = await rig.open()
    with pytest.raises(EventTooLarge):
        await log.append_atomic("s1", [row(1), Row(b"x" * (log.max_event_bytes + 1)), row(2)])
    assert (await log.bounds("s1")).stored == 0


async def test_a_repeated_atomic_batch_is_a_duplicate_also_with_its_expectation(rig: Rig) -> None:
    log = await rig.open()
    rows = [row(n, f"k/{n}") for n in range(3)]
    first = await log.append_atomic("s1", rows, expected=0)
    await fill(log, "s1", [9])
    assert await log.append_atomic("s1", rows, expected=0) == [Appended(one.seq, True) for one in first]
    assert await read_all(log, "s1") == [1, 2, 3, 4]


async def test_an_atomic_batch_that_shares_a_key_with_another_request_stores_nothing(rig: Rig) -> None:
    log = await rig.open()
    await log.append("s1", row(1, "k/1"))
    for rows in ([row(0, "k/0"), row(1, "k/1")], [row(0), row(1, "k/1")], [row(0, "new"), row(1, "new")]):
        with pytest.raises(KeyReused):
            await log.append_atomic("s1", rows)
    assert await read_all(log, "s1") == [1]


async def test_an_atomic_batch_stays_together_among_other_publishers(rig: Rig) -> None:
    log, other = await rig.open(), await rig.open()
    batches = [log.append_atomic("s1", [row(n) for n in range(20)]) for _ in range(5)]
    singles = [other.append("s1", row(n)) for n in range(100)]
    done = await asyncio.gather(*batches, *singles)
    for batch in done[:5]:
        assert isinstance(batch, list)
        assert [one.seq for one in batch] == list(range(batch[0].seq, batch[0].seq + 20))
    assert await read_all(log, "s1") == list(range(1, 201))


# Reading ranges.


@pytest.mark.parametrize("max_bytes", [1, 200, 1000, 1 << 20])
async def test_pages_join_to_the_whole_range_whatever_their_size(rig: Rig, max_bytes: int) -> None:
    log = await rig.open()
    for number in range(30):
        await fill(log, "a", [number])
        await fill(log, "b", [number])
    assert await read_all(log, "a", 1, max_bytes) == list(range(1, 60, 2))
    assert await read_all(log, "a", 40, max_bytes) == list(range(41, 60, 2))


async def test_a_page_begins_at_its_start_even_when_that_was_the_end_of_the_page_before(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(20))
    start = 1
    for _ in range(3):
        page = await log.page("s1", start, 150)
        assert page.messages[0].seq == start
        assert page.more
        start = page.messages[-1].seq


async def test_messages_larger_than_a_page_do_not_stop_a_replay(rig: Rig) -> None:
    log = await rig.open()
    big = b'{"type":"t","data":"%b"}' % (b"x" * 900_000)
    for _ in range(3):
        await log.append("s1", Row(big))
    page = await log.page("s1", 0, 1000)
    assert [(message.seq, len(message.payload)) for message in page.messages] == [(1, len(big))]
    assert page.more
    page = await log.page("s1", 1, 1000)
    assert [message.seq for message in page.messages] == [1, 2]
    assert page.more
    assert await read_all(log, "s1", 1, 1000) == [1, 2, 3]
    assert await log.contains("s1", 2)


async def test_two_replays_of_a_session_do_not_disturb_each_other(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(40))
    both = await asyncio.gather(read_all(log, "s1", 1, 200), read_all(log, "s1", 1, 200))
    assert both == [list(range(1, 41))] * 2


async def test_a_replay_goes_on_with_what_was_appended_while_it_read(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(10))
    page = await log.page("s1", 1, 200)
    assert page.more
    second = await log.page("s1", page.messages[-1].seq, 200)
    await fill(log, "s1", range(10))
    assert await read_all(log, "s1", second.messages[-1].seq, 200) == list(range(second.messages[-1].seq, 21))


async def test_a_page_beyond_the_end_is_empty(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(3))
    for start in (4, 1000):
        page = await log.page("s1", start, 1000)
        assert (page.messages, page.more) == ([], False)
    assert (await log.page("unknown", 1, 1000)).messages == []


async def test_newer_says_for_each_session_whether_something_follows(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "a", range(2))
    await fill(log, "b", range(2))
    assert await log.newer([("a", 0), ("a", 1), ("a", 2), ("b", 3), ("b", 4), ("none", 0)]) == [
        True,
        True,
        False,
        True,
        False,
        False,
    ]
    assert await log.newer([]) == []
    assert await log.newer([("a", 2)] * 300) == [False] * 300


# Live.


async def test_the_tail_delivers_each_message_with_the_one_before_it(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "a", [0])
    live = Live()
    await log.subscribe("a", live)
    for number in range(3):
        await fill(log, "b", [number])
        await fill(log, "a", [number])
    await live.until(3)
    assert [(seq, previous, payload) for seq, previous, _, payload in live.messages] == [
        (3, 1, row(0).payload),
        (5, 3, row(1).payload),
        (7, 5, row(2).payload),
    ]


async def test_the_chain_of_previous_sequences_holds_in_a_full_ring(rig: Rig) -> None:
    log = await rig.open(ring_size=1)
    live = Live()
    await log.subscribe("s1", live)
    await fill(log, "s1", range(6))
    await live.until(6)
    assert [(seq, previous) for seq, previous, _, _ in live.messages] == [(n, n - 1) for n in range(1, 7)]


async def test_a_closed_tail_is_silent_and_others_go_on(rig: Rig) -> None:
    log = await rig.open()
    one, two = Live(), Live()
    tail = await log.subscribe("s1", one)
    await log.subscribe("s1", two)
    await fill(log, "s1", [1])
    await two.until(1)
    await one.until(1)
    tail.close()
    await fill(log, "s1", [2])
    await two.until(2)
    assert one.seqs == [1]


async def test_mdc_4_two_instances_number_a_session_together(rig: Rig) -> None:
    logs = [await rig.open(), await rig.open()]
    lives = [Live(), Live()]
    for log, live in zip(logs, lives, strict=True):
        await log.subscribe("s1", live)
    answers = await asyncio.gather(*(logs[n % 2].append("s1", row(n)) for n in range(1000)))
    for live in lives:
        await live.until(1000)
    assert sorted(answer.seq for answer in answers) == list(range(1, 1001))
    assert lives[0].messages == lives[1].messages
    told = {answer.seq: row(number).payload for number, answer in enumerate(answers)}
    assert {seq: payload for seq, _, _, payload in lives[0].messages} == told


async def test_clk_1_order_is_the_logs_whatever_clock_a_publisher_has(rig: Rig) -> None:
    log = await rig.open()
    for number in range(1, 11):
        clock = 1_700_000_000_000 - (3_600_000 if number % 2 else 0)
        await log.append("s1", row(number, _meta=f'{{"serverTimestamp":{clock}}}'))
    page = await log.page("s1", 6, 1 << 20)
    assert [message.seq for message in page.messages] == [6, 7, 8, 9, 10]
    assert [message.payload.split(b'"n":')[1][:2] for message in page.messages] == [
        b"6}",
        b"7}",
        b"8}",
        b"9}",
        b"10",
    ]


# Leaving: purge, expiry, another log.


async def test_res_3_a_purged_session_is_empty_and_its_numbers_go_on(rig: Rig) -> None:
    log, other = await rig.open(), await rig.open()
    ears = Ear(), Ear()
    log.listen(ears[0])
    other.listen(ears[1])
    await fill(log, "s1", range(5))
    await fill(log, "s2", [1])
    await log.purge("s1")
    await eventually(lambda: [ear.purged for ear in ears] == [["s1"], ["s1"]], "both instances hear of the purge")
    for instance in (log, other):
        bounds = await instance.bounds("s1")
        assert (bounds.stored, bounds.first, bounds.last, bounds.tail) == (0, 0, 0, 6)
        assert bounds.purged_to == 5
        assert await instance.head("s1") is None
        assert await instance.last("s1") is None
        assert await instance.session("s1") is None
        verdict = decide(2, bounds, ring_size=instance.ring_size, present=False, head=None)
        assert (verdict.outcome, verdict.earliest) == (Outcome.RING_EVICTED, 7)
    assert await fill(other, "s1", [1]) == [7]
    assert await read_all(log, "s1") == [7]
    assert await read_all(log, "s2") == [6]
    assert (await log.bounds("s2")).purged_to == 0
    head = await _head(log, "s1")
    assert head.seq == 7


async def test_res_3_expired_events_leave_a_head_behind(rig: Rig) -> None:
    log = await rig.open(log_ttl=1.0, duplicate_window=0.5)
    await fill(log, "s1", range(5))
    await log.append("s2", row(1, terminal="true"))
    await _head(log, "s1")
    await rig.let_time_pass(1.1)
    await eventually(lambda: _is_empty(log, "s1", "s2"), "everything expires")
    bounds = await log.bounds("s1")
    assert (bounds.tail, bounds.stream_first, bounds.first, bounds.last) == (6, 7, 0, 0)
    head = await _head(log, "s1")
    assert (head.seq, head.payload, head.terminal) == (5, row(4).payload, False)
    assert (await _head(log, "s2")).terminal
    assert await log.head("unknown") is None
    assert decide(5, bounds, ring_size=log.ring_size, present=False, head=5).outcome is Outcome.CONTIGUOUS
    assert decide(4, bounds, ring_size=log.ring_size, present=False, head=5).outcome is Outcome.RING_EVICTED
    assert await fill(log, "s1", [6]) == [7]
    live_bounds = await log.bounds("s1")
    assert decide(2, live_bounds, ring_size=log.ring_size, present=False).outcome is Outcome.RING_EVICTED


async def test_without_heads_an_expired_session_is_unknown(rig: Rig) -> None:
    log = await rig.open(head_ttl=0)
    await fill(log, "s1", [1])
    assert await log.head("s1") is None


async def test_epo_1_ids_of_a_log_that_was_made_anew_are_recognised(rig: Rig) -> None:
    log = await rig.open()
    ear = Ear()
    log.listen(ear)
    await fill(log, "s1", range(50))
    birth = log.epochs("s1").birth
    await rig.recreate()
    table = await log.check_epoch("s1")
    assert table.rows == (EpochRow(0, 1, True), EpochRow(1, 1))
    assert table.birth == birth
    assert log.epochs("s1") == table
    await eventually(lambda: (0, table) in ear.tables, "the listener hears of the new row")
    assert await fill(log, "s1", range(5)) == [1, 2, 3, 4, 5]
    assert [table.known(cursor) for cursor in (50, 6, 5)] == [False, False, False]
    assert table.known(event_id(1, 5))
    assert [table.id_of(seq) for seq in (1, 5)] == [event_id(1, 1), event_id(1, 5)]
    with pytest.raises(WrongLastEventId) as caught:
        await log.append("s1", row(6), expected=50)
    assert caught.value.current == event_id(1, 5)


async def test_epo_1_a_cursor_beyond_the_tail_is_seen_by_the_bounds(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "s1", range(5))
    bounds = await log.bounds("s1")
    outcomes = [
        decide(cursor, bounds, ring_size=8000, present=await log.contains("s1", cursor)).outcome
        for cursor in (50, 6, 5)
    ]
    assert outcomes == [Outcome.EPOCH_RESET, Outcome.EPOCH_RESET, Outcome.CONTIGUOUS]


# Lists.


async def test_sessions_are_listed_in_order_with_what_they_hold(rig: Rig) -> None:
    log = await rig.open(ring_size=2, shards=3)
    for name in ("b1", "a2", "a1", "c", "a3"):
        await fill(log, name, range(4))
    await log.append("a2", row(1, terminal="true"))
    listed = await log.sessions("", "", 10)
    assert [state.session for state in listed.sessions] == ["a1", "a2", "a3", "b1", "c"]
    assert listed.next is None
    a1, a2 = listed.sessions[:2]
    assert (a1.stored, a1.closed, a2.closed) == (3, False, True)
    assert await log.session("a1") == a1
    bounds, last = await log.bounds("a1"), await log.last("a1")
    assert last is not None
    assert (a1.first, a1.last, a1.last_time_ns) == (bounds.first, bounds.last, last.time_ns)
    assert await log.session("none") is None


async def test_lists_are_paged_and_filtered(rig: Rig) -> None:
    log = await rig.open(shards=3)
    names = sorted(f"{prefix}{number:03}" for prefix in ("a", "b", "c") for number in range(70))
    await asyncio.gather(*(fill(log, name, [1]) for name in names))
    found: list[str] = []
    after = ""
    while True:
        page = await log.sessions("b", after, 30)
        found += [state.session for state in page.sessions]
        if page.next is None:
            break
        assert len(page.sessions) == 30
        after = page.next
    assert found == [name for name in names if name.startswith("b")]
    assert [state.session for state in (await log.sessions("", "b069", 3)).sessions] == ["c000", "c001", "c002"]
    assert (await log.sessions("zz", "", 3)).sessions == []


async def test_a_new_session_is_in_the_next_first_page(rig: Rig) -> None:
    log = await rig.open()
    await fill(log, "a", [1])
    assert len((await log.sessions("", "", 10)).sessions) == 1
    await fill(log, "b", [1])
    assert [state.session for state in (await log.sessions("", "", 10)).sessions] == ["a", "b"]


# What must not get through.

BAD_IDS = ["*", ">", "a b", "a\r\nPUB x 1\r\nz", "a\tb", "x" * 300, "é", "", "a.b", "a/b", "%2a"]


@pytest.mark.parametrize("bad", BAD_IDS)
async def test_sid_1_sid_2_what_is_no_session_id_reaches_no_subject(rig: Rig, bad: str) -> None:
    log = await rig.open()
    await fill(log, "s1", [1])
    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: log.append(bad, row(1)),
        lambda: log.append_many(bad, [row(1)]),
        lambda: log.append_atomic(bad, [row(1), row(2)]),
        lambda: log.subscribe(bad, Live()),
        lambda: log.bounds(bad),
        lambda: log.contains(bad, 1),
        lambda: log.last(bad),
        lambda: log.head(bad),
        lambda: log.page(bad, 1, 1000),
        lambda: log.newer([(bad, 0)]),
        lambda: log.check_epoch(bad),
        lambda: log.session(bad),
        lambda: log.purge(bad),
    ]
    for call in calls:
        with pytest.raises(InvalidSessionId):
            await call()
    assert await read_all(log, "s1") == [1]
    assert (await log.bounds("s1")).tail == 1


async def test_sid_3_a_cursor_of_another_session_shows_nothing_of_it(rig: Rig) -> None:
    log = await rig.open()
    for number in range(5):
        await fill(log, "s1", [number])
        await fill(log, "s2", [number])
    await fill(log, "s1", [6])
    for foreign in (5, 11):
        assert not await log.contains("s2", foreign)
        payloads = [message.seq for message in (await log.page("s2", foreign, 1 << 20)).messages]
        assert all(seq % 2 == 0 for seq in payloads)
    assert (await log.page("s2", 11, 1 << 20)).messages == []


async def test_pub_6_an_event_too_large_is_refused_and_the_next_one_is_stored(rig: Rig) -> None:
    log = await rig.open()
    ear = Ear()
    log.listen(ear)
    with pytest.raises(EventTooLarge) as caught:
        await log.append("s1", Row(b'{"type":"t","data":"%b"}' % (b"x" * 1_100_000)))
    assert caught.value.limit == log.max_event_bytes
    assert await log.append("s2", row(1)) == Appended(1)
    largest = Row(b'{"type":"t","data":"%b"}' % (b"x" * (log.max_event_bytes - 22)), "k" * 255)
    assert len(largest.payload) == log.max_event_bytes
    assert await log.append("s" * 128, largest, expected=0) == Appended(2)
    assert ear.connections == []


async def test_a_log_that_is_away_says_so_on_every_question(rig: Rig) -> None:
    log = await rig.open()
    ear = Ear()
    log.listen(ear)
    await fill(log, "s1", [1])
    await rig.cut(log)
    assert not log.connected
    assert ear.connections == [False]
    questions: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: log.append("s1", row(1)),
        lambda: log.append_atomic("s1", [row(1), row(2)]),
        lambda: log.subscribe("s1", Live()),
        lambda: log.bounds("s1"),
        lambda: log.contains("s1", 1),
        lambda: log.last("s1"),
        lambda: log.head("s1"),
        lambda: log.page("s1", 1, 1000),
        lambda: log.newer([("s1", 0)]),
        lambda: log.check_epoch("s1"),
        lambda: log.sessions("", "", 10),
        lambda: log.session("s1"),
        lambda: log.purge("s1"),
    ]
    for question in questions:
        with pytest.raises(LogUnavailable):
            await question()
    results = await log.append_many("s1", [row(1), row(2)])
    assert [type(result) for result in results] in ([LogUnavailable] * 2, [type(results[0])] * 2)
    assert all(isinstance(result, LogUnavailable) for result in results)
    assert not any(isinstance(result, PublishUnconfirmed) for result in results)


async def _head(log: Log, session: str) -> Any:
    """Return the head as soon as the head stream has the session's last message."""
    found: list[Any] = []

    async def there() -> bool:
        head = await log.head(session)
        found.append(head)
        return head is not None

    await eventually(there, f"the head of {session}")
    return found[-1]


async def _is_empty(log: Log, *sessions: str) -> bool:
    return not any([(await log.bounds(session)).stored for session in sessions])
