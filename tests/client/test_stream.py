"""Following a session against a real server that follows a script."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from ringmere.client.backoff import Backoff
from ringmere.client.errors import BrokenStream, ClientError, Refused
from ringmere.client.stream import Connected, Control, Event, Stream, Waiting, follow
from ringmere.core.errors import FrameTooLong, InvalidParameter, InvalidSessionId
from support.scripted import DEADLINE, answer, control, drop, event, scripted, stream

FAST = Backoff(retry=0.01, first=0.01, widest=0.02)
CLOSED = answer(204)


async def collect(following: Stream) -> list[Event | Control]:
    async with asyncio.timeout(DEADLINE), following:
        return [item async for item in following]


def ids(items: list[Event | Control]) -> list[int]:
    return [item.id for item in items if isinstance(item, Event)]


class States(list[Connected | Waiting]):
    """Hears of the connection and can be waited for."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    def __call__(self, state: Connected | Waiting) -> None:
        self.append(state)
        self.changed.set()

    @property
    def waits(self) -> list[Waiting]:
        return [state for state in self if isinstance(state, Waiting)]

    @property
    def connections(self) -> list[Connected]:
        return [state for state in self if isinstance(state, Connected)]


async def first_waits(following: Stream, states: States, count: int) -> list[Waiting]:
    """Follow until ``count`` waits were told, then leave."""

    async def drain() -> None:
        async for _ in following:
            continue

    async with asyncio.timeout(DEADLINE), following:
        task = asyncio.ensure_future(drain())
        while len(states.waits) < count:
            states.changed.clear()
            waiter = asyncio.ensure_future(states.changed.wait())
            await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
            assert not task.done(), task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return states.waits[:count]


async def test_items_come_typed_and_in_order_and_204_ends() -> None:
    async with scripted(stream(event(1, data={"n": 1}), control("replay_complete", replayedCount=1)), CLOSED) as server:
        items = await collect(follow(server.url, "s1", 0, backoff=FAST))
    first, second = items
    assert isinstance(first, Event)
    assert isinstance(second, Control)
    assert (first.id, first.type, first.data) == (1, "t", {"n": 1})
    assert (second.type, second.data) == ("replay_complete", {"replayedCount": 1})
    assert server.cursors == ["0", "1"]


async def test_nothing_is_sent_before_the_first_item_is_asked_for() -> None:
    async with scripted() as server:
        following = follow(server.url, "s1")
        await asyncio.sleep(0)
        await following.aclose()
        assert server.asked == []


async def test_the_request_asks_for_an_uncompressed_event_stream() -> None:
    async with scripted(CLOSED) as server:
        await collect(follow(server.url, "s1", headers={"Authorization": "Bearer x"}, params={"maxQueued": "32"}))
    (asked,) = server.asked
    assert asked.headers["accept"] == "text/event-stream"
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.headers["authorization"] == "Bearer x"
    assert asked.query == {"maxQueued": "32"}
    assert asked.cursor is None


async def test_sdk_1_no_total_timeout_ends_a_healthy_stream() -> None:
    parts = [part for number in range(1, 7) for part in (event(number), 0.1)]
    async with (
        scripted(stream(*parts, event(7, terminal=True))) as server,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.2)) as http,
    ):
        items = await collect(follow(server.url, "s1", 0, http=http))
        assert not http.closed
    assert ids(items) == [1, 2, 3, 4, 5, 6, 7]
    assert len(server.asked) == 1


async def test_sdk_2_200_clients_that_are_refused_at_once_come_back_spread() -> None:
    async with scripted() as server:
        url = server.url
    states = [States() for _ in range(200)]
    async with aiohttp.ClientSession() as http:
        waits = await asyncio.gather(
            *(first_waits(follow(url, "s1", http=http, on_state=heard), heard, 1) for heard in states)
        )
    shape = Backoff()
    delays = [wait.delay - shape.retry for (wait,) in waits]
    assert all(0 <= delay <= shape.first for delay in delays)
    tenths = [min(9, int(delay / shape.first * 10)) for delay in delays]
    assert max(tenths.count(tenth) for tenth in range(10)) <= 50


@pytest.mark.parametrize("status", [429, 503])
async def test_sdk_2_retry_after_is_a_floor_and_jitter_only_adds(status: int) -> None:
    states = States()
    async with scripted(answer(status, {}, {"Retry-After": "5"})) as server:
        (wait,) = await first_waits(
            follow(server.url, "s1", backoff=Backoff(retry=1.0, first=2.0), on_state=states, roll=lambda: 0.25),
            states,
            1,
        )
    assert wait.delay == 5.5
    assert wait.cause == f"HTTP {status}"


async def test_sdk_2_the_servers_retry_is_a_floor_for_all_later_waits() -> None:
    states = States()
    steps = stream(b"retry: 30\n: ok\n\n"), answer(502), answer(500), CLOSED
    async with scripted(*steps) as server:
        await collect(follow(server.url, "s1", backoff=FAST, on_state=states, roll=lambda: 0.0))
    assert [wait.delay for wait in states.waits] == [0.03, 0.03, 0.03]


async def test_sdk_2_waits_widen_with_failures_and_start_anew_after_an_event() -> None:
    states = States()
    shape = Backoff(retry=0.0, first=0.01, widest=0.04)
    steps = *[answer(502)] * 4, stream(event(1)), answer(500), CLOSED
    async with scripted(*steps) as server:
        await collect(follow(server.url, "s1", backoff=shape, on_state=states, roll=lambda: 1.0))
    assert [round(wait.delay, 3) for wait in states.waits] == [0.01, 0.02, 0.04, 0.04, 0.01, 0.02]
    assert [wait.failures for wait in states.waits] == [1, 2, 3, 4, 1, 2]


async def test_an_error_frame_asks_for_its_own_wait_and_does_not_count_as_progress() -> None:
    states = States()
    refusal = stream(
        b"retry: 1\n" + control("stream_error", error="full", errorKind="subscriber_limit_exceeded", retryAfterMs=20)
    )
    async with scripted(refusal, refusal, CLOSED) as server:
        items = await collect(follow(server.url, "s1", backoff=FAST, on_state=states, roll=lambda: 0.0))
    assert [wait.delay for wait in states.waits] == [0.02, 0.02]
    assert [wait.failures for wait in states.waits] == [1, 2]
    assert [item.type for item in items] == ["stream_error", "stream_error"]


async def test_sdk_3_every_reconnect_uses_the_newest_cursor() -> None:
    def three(first: int) -> bytes:
        return b"".join(event(number) for number in range(first, first + 3))

    steps = stream(three(1), end="cut"), stream(three(4)), stream(three(7), end="cut"), CLOSED
    async with scripted(*steps) as server:
        items = await collect(follow(server.url, "s1", backoff=FAST))
    assert ids(items) == list(range(1, 10))
    assert server.cursors == [None, "3", "6", "9"]


async def test_sdk_4_comments_alone_keep_a_connection() -> None:
    parts = [part for _ in range(20) for part in (b": hb\n\n", 0.05)]
    async with scripted(stream(*parts, event(1, terminal=True))) as server:
        items = await collect(follow(server.url, "s1", heartbeat=0.2, backoff=FAST))
    assert ids(items) == [1]
    assert len(server.asked) == 1


async def test_sdk_4_silence_of_three_heartbeats_leads_to_a_resume_with_the_cursor() -> None:
    states = States()
    async with scripted(stream(event(4), end="hold"), CLOSED) as server:
        items = await collect(follow(server.url, "s1", heartbeat=0.05, backoff=FAST, on_state=states))
    assert ids(items) == [4]
    assert server.cursors == [None, "4"]
    assert [wait.cause for wait in states.waits] == ["silent for 0.15 s"]


async def test_a_server_that_accepts_and_never_answers_is_given_up_and_tried_again() -> None:
    async def silent(request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    states = States()
    async with scripted(silent, CLOSED) as server:
        await collect(follow(server.url, "s1", connect_timeout=0.05, backoff=FAST, on_state=states))
    assert [wait.cause for wait in states.waits] == ["no answer within 0.05 s"]


async def test_sdk_5_events_after_a_verdict_are_passed_on_but_marked_until_the_reload() -> None:
    verdict = control("state_resync_required", reason="ring_evicted", lastDeliveredId=1, earliestAvailableId=7)
    reloaded = asyncio.Event()
    steps = stream(
        event(1), verdict, event(7), control("replay_complete", replayedCount=1), event(8), reloaded.wait,
        event(9, terminal=True),
    )  # fmt: skip
    seen: list[tuple[int, bool]] = []
    async with scripted(steps) as server, asyncio.timeout(DEADLINE), follow(server.url, "s1") as following:
        async for item in following:
            if isinstance(item, Event):
                seen.append((item.id, item.in_sync))
                assert item.in_sync is (following.resync is None)
            if following.last_id == 8:
                assert following.resync is not None
                assert (following.resync.reason, following.resync.last_delivered_id) == ("ring_evicted", 1)
                following.reloaded()
                assert following.resync is None
                reloaded.set()
    assert seen == [(1, True), (7, False), (8, False), (9, True)]


async def test_sdk_5_the_latch_survives_a_reconnect() -> None:
    verdict = control("state_resync_required", reason="epoch_reset", lastDeliveredId=50, earliestAvailableId=1)
    steps = stream(verdict, event(1), end="cut"), stream(event(2)), CLOSED
    async with scripted(*steps) as server:
        items = await collect(follow(server.url, "s1", 50, backoff=FAST))
    assert [(item.id, item.in_sync) for item in items if isinstance(item, Event)] == [(1, False), (2, False)]


async def test_a_reload_with_an_id_goes_on_right_behind_it() -> None:
    verdict = control("state_resync_required", reason="ring_evicted", lastDeliveredId=1, earliestAvailableId=7)
    steps = stream(verdict, event(7), event(8), event(9), end="hold"), stream(event(8), event(9, terminal=True))
    seen: list[tuple[int, bool]] = []
    async with scripted(*steps) as server, asyncio.timeout(DEADLINE), follow(server.url, "s1", 1) as following:
        async for item in following:
            if isinstance(item, Event):
                seen.append((item.id, item.in_sync))
            if following.resync is not None and following.last_id == 8:
                following.reloaded(at=7)
    assert seen == [(7, False), (8, False), (8, True), (9, True)]
    assert server.cursors == ["1", "7"]


async def test_a_snapshot_frame_from_the_gateway_is_the_reload() -> None:
    parts = (
        control("state_resync_required", reason="ring_evicted", lastDeliveredId=1, earliestAvailableId=7),
        control("session_snapshot", lastEventId=6, state={}),
        event(7, terminal=True),
    )
    async with scripted(stream(*parts)) as server:
        items = await collect(follow(server.url, "s1", 1))
    assert [item.in_sync for item in items if isinstance(item, Event)] == [True]


async def test_a_state_with_a_loss_right_behind_it_is_no_reload() -> None:
    loss = {"reason": "ring_evicted", "detail": "snapshot_stale", "lastDeliveredId": 1, "earliestAvailableId": 9}
    state = control("session_snapshot", lastEventId=6, state={})
    steps = stream(control("state_resync_required", **loss), state, event(9), end="cut"), stream(event(10)), CLOSED
    async with scripted(*steps) as server, follow(server.url, "s1", 1, backoff=FAST) as following:
        items = await collect(following)
        assert following.resync is not None
        assert following.resync.stale
    assert [(item.id, item.in_sync) for item in items if isinstance(item, Event)] == [(9, False), (10, False)]
    assert server.cursors == ["1", "9", "10"]


async def test_sdk_6_an_eviction_is_a_notice_and_the_stream_goes_on_from_its_cursor() -> None:
    states = States()
    parts = b"".join(event(number) for number in range(1, 6))
    eviction = control("client_evicted", reason="queue_overflow", droppedAfter=5)
    steps = stream(parts, eviction), stream(event(6, terminal=True))
    async with scripted(*steps) as server:
        items = await collect(follow(server.url, "s1", 0, backoff=FAST, on_state=states))
    assert ids(items) == [1, 2, 3, 4, 5, 6]
    assert [item.type for item in items if isinstance(item, Control)] == ["client_evicted"]
    assert server.cursors == ["0", "5"]
    assert len(states.waits) == 1


async def test_par_6_an_event_frame_without_an_id_does_not_blank_the_cursor() -> None:
    async with scripted(stream(event(4), control("slow_client_warning", queueSize=12)), CLOSED) as server:
        await collect(follow(server.url, "s1", backoff=FAST))
    assert server.cursors == [None, "4"]


async def test_par_8_an_event_of_800_kb_is_delivered() -> None:
    text = "x" * 800_000
    async with scripted(stream(event(1, data=text, terminal=True))) as server:
        (item,) = await collect(follow(server.url, "s1"))
    assert isinstance(item, Event)
    assert item.data == text


async def test_a_frame_beyond_the_limit_ends_the_iteration_with_its_error() -> None:
    async with scripted(stream(event(1), event(2, data="x" * 5000))) as server:
        following = follow(server.url, "s1", max_event_bytes=4000)
        assert ids([await anext(following)]) == [1]
        with pytest.raises(FrameTooLong):
            await anext(following)
    assert len(server.asked) == 1


async def test_hov_3_a_live_stream_that_broke_before_its_first_event_resumes_where_it_began() -> None:
    headers = {"X-Start-Event-Id": "41"}
    steps = stream(b": ok\n\n", end="cut", headers=headers), stream(event(42, terminal=True))
    async with scripted(*steps) as server:
        assert ids(await collect(follow(server.url, "s1", backoff=FAST))) == [42]
    assert server.cursors == [None, "41"]


async def test_an_anchor_block_is_a_cursor_as_well() -> None:
    async with scripted(stream(b"id: 41\n\n", end="cut"), CLOSED) as server:
        await collect(follow(server.url, "s1", backoff=FAST, params={"anchor": "1"}))
    assert server.cursors == [None, "41"]


async def test_from_start_is_asked_for_until_the_first_event_came() -> None:
    headers = {"X-Start-Event-Id": "41"}
    steps = stream(b": ok\n\n", end="cut", headers=headers), stream(event(1), end="cut"), CLOSED
    async with scripted(*steps) as server:
        await collect(follow(server.url, "s1", "start", backoff=FAST))
    assert [(asked.query, asked.cursor) for asked in server.asked] == [
        ({"from": "start"}, None), ({"from": "start"}, None), ({}, "1"),
    ]  # fmt: skip


async def test_the_epoch_token_goes_back_with_a_cursor_of_its_own_log_only() -> None:
    steps = (
        stream(event(5), end="cut", headers={"X-Event-Epoch": "aa-0"}),
        stream(b": ok\n\n", end="cut", headers={"X-Event-Epoch": "bb-0"}),
        stream(event(1), end="cut", headers={"X-Event-Epoch": "bb-0"}),
        CLOSED,
    )
    async with scripted(*steps) as server:
        await collect(follow(server.url, "s1", backoff=FAST))
    assert [(asked.cursor, asked.headers.get("x-event-epoch")) for asked in server.asked] == [
        (None, None), ("5", "aa-0"), ("5", "aa-0"), ("1", "bb-0"),
    ]  # fmt: skip


async def test_prx_6_the_end_behind_a_terminal_event_is_the_end_and_nothing_more_is_asked() -> None:
    async with scripted(stream(event(2), event(3, "session_closed"))) as server:
        following = follow(server.url, "s1", 1)
        assert ids(await collect(following)) == [2, 3]
        assert following.ended
    assert len(server.asked) == 1


async def test_a_connection_cut_behind_a_terminal_event_is_no_end() -> None:
    async with scripted(stream(event(3, terminal=True), end="cut"), CLOSED) as server:
        await collect(follow(server.url, "s1", backoff=FAST))
    assert server.cursors == [None, "3"]


async def test_a_later_event_reopens_a_session() -> None:
    async with scripted(stream(event(3, terminal=True), event(4)), CLOSED) as server:
        await collect(follow(server.url, "s1", backoff=FAST))
    assert server.cursors == [None, "4"]


async def test_a_terminal_event_before_an_eviction_is_no_end() -> None:
    parts = event(3, terminal=True), control("client_evicted", reason="queue_overflow", droppedAfter=3)
    async with scripted(stream(*parts), CLOSED) as server:
        await collect(follow(server.url, "s1", backoff=FAST))
    assert server.cursors == [None, "3"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410])
async def test_a_final_status_raises_with_its_code_and_is_not_tried_again(status: int) -> None:
    problem = {"code": "session_not_found", "detail": "no such session", "status": status}
    async with scripted(answer(status, problem, content_type="application/problem+json")) as server:
        with pytest.raises(Refused) as caught:
            await collect(follow(server.url, "s1", backoff=FAST))
    assert (caught.value.status, caught.value.code) == (status, "session_not_found")
    assert caught.value.problem == problem
    assert len(server.asked) == 1


async def test_a_refusal_without_a_problem_document_has_a_code_too() -> None:
    async with scripted(answer(403, content_type="text/html")) as server:
        with pytest.raises(Refused) as caught:
            await collect(follow(server.url, "s1"))
    assert caught.value.code == "http_403"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_a_passing_status_is_tried_again(status: int) -> None:
    async with scripted(answer(status, {}), CLOSED) as server:
        await collect(follow(server.url, "s1", 7, backoff=FAST))
    assert server.cursors == ["7", "7"]


async def test_a_connection_that_closes_instead_of_an_answer_is_tried_again() -> None:
    states = States()
    # The HTTP library itself repeats a GET once when its connection closes before the answer.
    async with scripted(drop, drop, CLOSED) as server:
        await collect(follow(server.url, "s1", 7, backoff=FAST, on_state=states))
    assert server.cursors == ["7", "7", "7"]
    assert len(states.waits) == 1


async def test_a_page_of_a_proxy_is_no_stream() -> None:
    async with scripted(answer(200, "<html>", content_type="text/html")) as server:
        with pytest.raises(BrokenStream):
            await collect(follow(server.url, "s1"))


async def test_data_that_is_not_the_protocols_ends_the_iteration_behind_what_was_good() -> None:
    async with scripted(stream(event(1) + b"data: hello\n\n")) as server:
        following = follow(server.url, "s1")
        assert ids([await anext(following)]) == [1]
        with pytest.raises(BrokenStream):
            await anext(following)
        with pytest.raises(StopAsyncIteration):
            await anext(following)


async def test_a_cancelled_anext_loses_nothing() -> None:
    go_on = asyncio.Event()
    steps = stream(event(1), go_on.wait, event(2), event(3, terminal=True))
    async with scripted(steps) as server, asyncio.timeout(DEADLINE), follow(server.url, "s1") as following:
        assert ids([await anext(following)]) == [1]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(following), 0.02)
        go_on.set()
        assert ids([await anext(following), await anext(following)]) == [2, 3]
    assert len(server.asked) == 1


async def test_a_cancelled_wait_goes_on_with_the_next_anext() -> None:
    states = States()
    async with scripted(answer(500), CLOSED) as server, asyncio.timeout(DEADLINE):
        following = follow(server.url, "s1", backoff=Backoff(retry=0.1, first=0.01), on_state=states)
        waiting = asyncio.ensure_future(anext(following))
        await states.changed.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(StopAsyncIteration):
            await anext(following)
        assert len(server.asked) == 2
    assert len(states.waits) == 1


async def test_the_state_of_the_connection_is_told() -> None:
    states = States()
    steps = stream(event(1), end="cut", headers={"X-Stream-Id": "u1"}), answer(503, {}), CLOSED
    async with scripted(*steps) as server:
        await collect(follow(server.url, "s1", 0, backoff=FAST, on_state=states))
    assert states.connections == [Connected(1, 0, "u1")]
    assert [wait.failures for wait in states.waits] == [1, 2]


async def test_closing_drops_the_connection_and_ends_the_iteration() -> None:
    async with scripted(stream(event(1), end="hold")) as server, asyncio.timeout(DEADLINE):
        following = follow(server.url, "s1")
        await anext(following)
        await following.aclose()
        await following.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(following)


@pytest.mark.parametrize("session", ["*", "a b", "", "a/b"])
def test_a_session_that_is_none_is_refused_before_anything_is_sent(session: str) -> None:
    with pytest.raises(InvalidSessionId):
        follow("http://127.0.0.1:1", session)


@pytest.mark.parametrize("cursor", [-1, 2**53])
def test_a_number_that_is_no_cursor_is_refused(cursor: int) -> None:
    with pytest.raises(InvalidParameter):
        follow("http://127.0.0.1:1", "s1", cursor)


async def test_an_address_that_is_none_raises_instead_of_trying_for_ever() -> None:
    for url in ("nonsense", "ftp://127.0.0.1"):
        with pytest.raises(ClientError):
            await collect(follow(url, "s1"))
