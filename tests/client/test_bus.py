"""One object to publish, run tasks and cancel them."""

from __future__ import annotations

import logging

import pytest

from ringmere.client.backoff import Backoff
from ringmere.client.bus import Bus
from ringmere.client.errors import Unreachable
from ringmere.core.errors import InvalidCancel, InvalidSessionId
from support.doors import running

FAST = Backoff(retry=0.0, first=0.01, widest=0.05)


async def test_emit_stores_what_it_can_and_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as gateway, Bus(f"http://127.0.0.1:{gateway.port}") as bus:
        stored = await bus.emit("s", {"type": "t", "data": 1})
        assert stored is not None
        assert stored.id == 1
        with caplog.at_level(logging.WARNING, "ringmere.client"):
            for session, event in (("a.b", {"type": "t", "data": 1}), ("s", {"type": ""}), ("s", {"data": {1}})):
                assert await bus.emit(session, event) is None
        assert bus.unsent == {"invalid_session_id": 1, "invalid_event": 2}
        said = [record.getMessage() for record in caplog.records if record.name == "ringmere.client"]
        assert len(said) == 3, caplog.text
        assert "'a.b'" in said[0]


async def test_emit_gives_up_when_nobody_answers() -> None:
    async with Bus("http://127.0.0.1:9", backoff=FAST, patience=0.05) as bus:
        assert await bus.emit("s", {"type": "t", "data": 1}) is None
        assert bus.unsent == {"unreachable": 1}


async def test_a_cancel_is_told_to_whoever_looks() -> None:
    async with running() as gateway, Bus(f"http://127.0.0.1:{gateway.port}") as bus:
        assert await bus.cancelled("s", "t") is None
        done = await bus.cancel("s", "t", "enough ☃")
        assert done.reason == "enough ☃"
        assert await bus.cancelled("s", "t") == await bus.cancel("s", "t") == done


async def test_what_is_no_id_or_reason_does_not_leave_the_process() -> None:
    async with Bus("http://127.0.0.1:9", backoff=FAST, patience=0.05) as bus:
        for session, task in (("a.b", "t"), ("s", ""), ("s", "*")):
            with pytest.raises(InvalidSessionId):
                await bus.cancel(session, task)
            with pytest.raises(InvalidSessionId):
                bus.task(session, task)
        with pytest.raises(InvalidCancel):
            await bus.cancel("s", "t", "x" * 501)
        with pytest.raises(Unreachable):
            await bus.cancel("s", "t")
