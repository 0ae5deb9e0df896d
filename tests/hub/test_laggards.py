"""Who is furthest behind, over all sessions of an instance."""

from __future__ import annotations

from ringmere.core.limits import KIB
from support.hub import Client, arrived, over, world


async def test_the_longest_backlog_comes_first_whatever_its_session_and_who_keeps_up_is_left_out() -> None:
    async with world() as w:
        slow, slower, healthy = await w.stalled("s1"), await w.stalled("s2"), await w.connect(session="s1")
        w.put(3, "s1")
        w.put(5, "s2")
        await w.settle()
        rows = w.hub.laggards(10)
        assert [(row["sessionId"], row["backlogEvents"], row["behindEvents"]) for row in rows] == [
            ("s2", 5, 5),
            ("s1", 3, 3),
        ]
        assert [row["streamId"] for row in rows] == [c.reader.stream_id for c in (slower, slow) if c.reader]
        assert [row["sessionId"] for row in w.hub.laggards(1)] == ["s2"]
        first = rows[0]
        assert (first["transport"], first["state"], first["warned"], first["maxQueued"]) == ("sse", "live", False, 256)
        assert first["backlogBytes"] > 0
        assert (first["positionId"], first["lastEventId"]) == (0, 8)
        slower.resume()
        await arrived(slower, 5)
        assert [row["sessionId"] for row in w.hub.laggards(10)] == ["s1"]
        await arrived(healthy, 3)


async def test_a_row_says_for_how_long_its_oldest_event_has_waited() -> None:
    async with world() as w:
        await w.stalled()
        w.put(1)
        await w.settle()
        before = w.hub.laggards(1)[0]["behindSeconds"]
        await w.settle(7)
        w.put(1)
        await w.settle()
        later = w.hub.laggards(1)[0]
        assert 6.5 < later["behindSeconds"] - before < 8.5


async def test_a_row_says_that_its_reader_was_warned_and_whom_its_session_has_lost() -> None:
    async with world() as w:
        gone = await w.stalled(max_queued=16)
        w.put(17)
        await over(gone)
        await w.stalled(max_queued=16)
        w.put(12)
        await w.settle()
        [row] = w.hub.laggards(10)
        assert (row["warned"], row["sessionEvictions"], row["backlogEvents"]) == (True, 1, 12)


async def test_a_reader_that_reads_the_log_through_a_full_transport_comes_last_with_what_memory_knows() -> None:
    async with world(page_bytes=500, window_bytes=KIB) as w:
        w.put(50)
        reading = Client(high_water=200)
        await w.connect(0, client=reading)
        await w.stalled("s2")
        w.put(1, "s2")
        await w.settle()
        last, first = reversed(w.hub.laggards(10))
        assert (first["sessionId"], first["backlogEvents"]) == ("s2", 1)
        assert (last["state"], last["backlogEvents"], last["behindEvents"]) == ("catching_up", 0, None)
        assert 0 < last["positionId"] < 50
        reading.leave()
        assert [row["sessionId"] for row in w.hub.laggards(10)] == ["s2"]
