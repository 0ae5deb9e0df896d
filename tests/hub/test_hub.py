"""The hub: admission, memory bounds of the instance, beginning and end."""

from __future__ import annotations

import asyncio

import pytest

from ringmere.core.errors import Draining, LogUnavailable, SessionNotFound, SubscriberLimitExceeded
from ringmere.core.reasons import CloseReason
from ringmere.hub.subscriber import SubscribeOptions
from support.hub import S1, Client, arrived, over, world
from support.virtual import eventually


async def test_readers_beyond_the_instances_limit_are_told_when_to_come_back() -> None:
    async with world(max_connections=3) as w:
        for number in range(3):
            await w.connect(session=f"s{number}")
        with pytest.raises(SubscriberLimitExceeded) as refused:
            await w.connect(session="one-more")
        assert refused.value.retry_after == 5.0
        assert w.hub.slots == 3


async def test_a_session_that_nobody_wrote_is_unknown_only_where_sessions_are_required() -> None:
    async with world(require_session=True) as w:
        with pytest.raises(SessionNotFound):
            await w.connect()
        w.put(1)
        client = await w.connect(0)
        await arrived(client, 1)
        await w.hub.purge(S1)
        with pytest.raises(SessionNotFound):
            await w.connect()
        w.put(1)
        await w.connect()
        assert w.hub.slots == 2


async def test_one_start_of_a_channel_serves_all_who_wait_and_its_failure_fails_all() -> None:
    async with world() as w:
        await asyncio.gather(*(w.connect() for _ in range(20)))
        assert w.log.calls["subscribe"] == 1

        async def refuse(method: str, session: str) -> None:
            if method == "last":
                await asyncio.sleep(0.1)
                raise LogUnavailable("no leader")

        w.log.before = refuse
        results = await asyncio.gather(*(w.connect(session="s2") for _ in range(20)), return_exceptions=True)
        assert [type(result) for result in results] == [LogUnavailable] * 20
        assert w.log.calls["subscribe"] == 2
        assert w.hub.slots == 20
        w.log.before = None
        w.put(1, "s2")
        client = await w.connect(0, "s2")
        await arrived(client, 1)


async def test_a_start_that_hangs_neither_blocks_the_next_reader_nor_leaks_its_tail() -> None:
    async with world(channel_linger=1.0) as w:
        gate = asyncio.Event()

        async def hang(method: str, session: str) -> None:
            if method == "subscribe" and not gate.is_set():
                await gate.wait()

        w.log.before = hang
        with pytest.raises(LogUnavailable):
            await w.connect()
        await asyncio.sleep(3)
        gate.set()
        client = await w.connect()
        w.put(1)
        await arrived(client, 1)
        assert client.ids == [1]
        assert len(w.log._tails[S1]) == 1


async def test_a_channel_outlives_its_last_reader_for_a_while_and_then_goes() -> None:
    async with world(channel_linger=5.0) as w:
        client = await w.connect()
        w.put(3)
        await arrived(client, 3)
        client.leave()
        await asyncio.sleep(3)
        back = await w.connect(1)
        assert back.story == [2, 3, "replay_complete"]
        assert w.log.calls["subscribe"] == 1
        back.leave()
        await asyncio.sleep(7)
        assert w.hub.channels == []
        assert w.hub.window_budget.used == 0
        assert w.log._tails == {}


async def test_all_windows_together_are_bounded_and_the_least_recently_used_goes_first() -> None:
    async with world(window_bytes_total=20_000) as w:
        for number in range(10):
            await w.connect(session=f"s{number}")
        for round in range(5):
            for number in range(10):
                w.put(4, f"s{number}", size=200)
                await w.settle(0.05)
                assert w.hub.window_budget.used <= 20_000
                assert w.hub.stats().window_bytes == sum(c.window.size for c in w.hub.channels)
            assert round < 5
        sizes = {channel.session: channel.window.size for channel in w.hub.channels}
        assert sizes["s9"] > 0
        assert sizes["s0"] == 0
        late = await w.connect(0, "s0")
        await arrived(late, 20)
        assert len(late.ids) == 20


async def test_a_drain_says_goodbye_to_all_and_lets_nobody_in() -> None:
    async with world() as w:
        clients = [await w.connect() for _ in range(10)]
        clients.append(await w.stalled())
        gate = asyncio.Event()

        async def hold(method: str, session: str) -> None:
            if method == "bounds":
                await gate.wait()

        w.log.before = hold
        coming = asyncio.create_task(w.connect(0))
        await w.settle()
        assert w.hub.ready
        draining = asyncio.create_task(w.hub.drain())
        await w.settle()
        gate.set()
        with pytest.raises(Draining):
            await coming
        with pytest.raises(Draining):
            await w.connect()
        await draining
        assert not w.hub.ready
        for client in clients[:-1]:
            assert client.types == ["server_draining"]
            assert client.finished
            assert await over(client) is CloseReason.DRAINING
        assert await over(clients[-1]) is CloseReason.DRAINING
        assert clients[-1].aborted


async def test_a_close_ends_every_stream_at_once_also_those_that_do_not_read() -> None:
    async with world() as w:
        live, stalled = await w.connect(), await w.stalled()
        w.put(3)
        await w.settle()
        admitted = await w.hub.subscribe(S1, SubscribeOptions())

        async def hang(method: str, session: str) -> None:
            await asyncio.Event().wait()

        w.log.before = hang
        starting = asyncio.create_task(w.connect(session="s2"))
        reading = asyncio.create_task(w.connect(session="s3"))
        await w.settle()
        await w.hub.close()
        for task in (starting, reading):
            with pytest.raises(LogUnavailable):
                await task
        assert live.finished
        assert stalled.aborted
        assert admitted.ended
        assert await over(live) is await over(stalled) is CloseReason.SHUTDOWN
        assert w.hub.slots == 0


async def test_a_fault_in_one_sessions_turn_does_not_touch_the_others() -> None:
    async with world(faults_expected=True) as w:
        broken, healthy = await w.connect(), await w.connect(session="s2")

        def fail(data: bytes) -> None:
            raise ZeroDivisionError("a fault of this program")

        assert broken.reader is not None
        broken.reader.write = fail
        w.put(1)
        w.put(1)
        broken.reader.flowing = True
        w.put(1, "s2")
        await arrived(healthy, 1)
        await eventually(lambda: broken.over)
        assert len(w.faults) == 1
        w.put(1, "s2")
        await arrived(healthy, 2)


async def test_the_gauges_say_how_much_waits() -> None:
    async with world() as w:
        clients = [await w.stalled(), await w.stalled(), await w.connect()]
        w.put(5)
        await w.settle()
        stats = w.hub.stats()
        assert stats.subscribers == {"sse": 3, "websocket": 0}
        assert stats.sessions_live == 1
        assert (stats.backlog_events, stats.backlog_events_max) == (10, 5)
        assert stats.backlog_bytes == 2 * stats.backlog_bytes_max > 0
        assert stats.log_connected
        clients[0].resume()
        clients[1].leave()
        assert w.hub.stats().backlog_bytes == 0


async def test_a_session_lists_its_readers_the_laggard_first() -> None:
    async with world() as w:
        w.put(1)
        slow = await w.stalled()
        quick = await w.connect()
        for _ in range(3):
            w.put(1)
            await w.settle()
        row = await w.hub.session(S1)
        assert (row["firstEventId"], row["lastEventId"], row["events"], row["closed"]) == (1, 4, 4, False)
        assert slow.reader is not None
        assert quick.reader is not None
        assert {reader["streamId"] for reader in row["readers"]} == {slow.reader.stream_id, quick.reader.stream_id}
        assert row["readers"][0]["streamId"] == slow.reader.stream_id
        assert row["readers"][0]["backlogEvents"] == 3
        with pytest.raises(SessionNotFound):
            await w.hub.session("nobody")


async def test_unframed_readers_get_the_same_events() -> None:
    async with world() as w:
        plain = await w.connect(client=Client(framed=False))
        framed = await w.connect()
        w.put(200)
        await arrived(plain, 200)
        replayed = await w.connect(20, client=Client(framed=False))
        await arrived(replayed, 180)
        assert plain.ids == framed.ids == [*range(1, 201)]
        assert replayed.ids == [*range(21, 201)]
