"""Publishing through the hub: ids, batches, expectations, what the observer hears (contract 2)."""

from __future__ import annotations

import pytest

from ringmere.core.cursor import event_id
from ringmere.core.errors import LogUnavailable, WrongLastEventId
from ringmere.hub.publish import Published
from support.hub import S1, event, world


async def test_an_answer_carries_the_id_that_readers_see_and_tells_a_duplicate() -> None:
    async with world() as w:
        client = await w.connect()
        draft = event(1)._replace(key="k")
        first = await w.hub.publish(S1, draft)
        again = await w.hub.publish(S1, draft)
        assert (first, again) == (Published(1, False), Published(1, True))
        await w.settle()
        assert client.ids == [1]


async def test_a_batch_answers_row_by_row_and_an_atomic_one_stores_all_or_none() -> None:
    async with world() as w:
        large = event(0, size=2_000_000)
        rows = await w.hub.publish_batch(S1, [event(1), large, event(2)])
        assert [getattr(row, "id", None) for row in rows] == [1, None, 2]
        with pytest.raises(WrongLastEventId) as conflict:
            await w.hub.publish_batch(S1, [event(1), event(2)], atomic=True, expected_id=1)
        assert conflict.value.current == 2
        rows = await w.hub.publish_batch(S1, [event(1), event(2)], atomic=True, expected_id=2)
        assert [getattr(row, "id", None) for row in rows] == [3, 4]


async def test_an_expectation_of_another_epoch_is_never_met() -> None:
    async with world() as w:
        await w.hub.publish(S1, event(1))
        w.store.recreate()
        await w.hub.publish(S1, event(1))
        with pytest.raises(WrongLastEventId) as conflict:
            await w.hub.publish(S1, event(2), expected_id=1)
        assert conflict.value.current == event_id(1, 1)
        stored = await w.hub.publish(S1, event(2), expected_id=event_id(1, 1))
        assert stored.id == event_id(1, 2)


async def test_a_log_that_is_away_stores_nothing_and_says_so() -> None:
    async with world() as w:
        w.log.disconnect()
        with pytest.raises(LogUnavailable):
            await w.hub.publish(S1, event(1))
        w.log.reconnect()
        assert (await w.hub.publish(S1, event(1))).id == 1
