"""The log that comes later: it says that it is not there, then is the log that arrived."""

from __future__ import annotations

import inspect

import pytest

from ringmere.core.errors import LogUnavailable
from ringmere.core.event import make_payload
from ringmere.log.late import LateLog
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from ringmere.log.port import Log, Row


class Heard:
    def __init__(self) -> None:
        self.states: list[bool] = []

    def log_connected(self, connected: bool) -> None:
        self.states.append(connected)

    def epochs_changed(self, shard: int, table: object) -> None: ...

    def session_purged(self, session: str) -> None: ...

    def degraded_event(self, session: str, payload: bytes) -> None: ...

    def cancel_noticed(self, session: str, task: str) -> None: ...
    def copies_seen(self, copies: object) -> None: ...
    def storing_doubted(self, shard: int) -> None: ...
    def tail_not_reopened(self, shard: int, reason: str) -> None: ...


ROW = Row(make_payload("note", 1).payload)
CALLS = [
    ("append", "s", ROW),
    ("append_atomic", "s", [ROW]),
    ("subscribe", "s", lambda *_: None),
    ("bounds", "s"),
    ("contains", "s", 1),
    ("last", "s"),
    ("head", "s"),
    ("page", "s", 1, 1),
    ("newer", [("s", 1)]),
    ("check_epoch", "s"),
    ("sessions", "", "", 10),
    ("session", "s"),
    ("purge", "s"),
    ("publish_degraded", "s", [ROW.payload]),
    ("probe", 0),
    ("doubt_storing", 0),
]


def late() -> LateLog:
    return LateLog(ring_size=5, log_ttl=60.0, max_event_bytes=1000)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
async def test_before_it_arrives_every_call_says_that_the_log_is_away(call: tuple) -> None:
    name, *arguments = call
    with pytest.raises(LogUnavailable):
        await getattr(late(), name)(*arguments)


async def test_before_it_arrives_every_row_of_a_batch_has_the_error() -> None:
    results = await late().append_many("s", [ROW, ROW])
    assert [type(result) for result in results] == [LogUnavailable, LogUnavailable]


async def test_when_it_arrives_the_listener_hears_of_it_and_calls_reach_it() -> None:
    log, heard = late(), Heard()
    log.listen(heard)
    assert not log.connected
    log.arrive(MemoryLog(MemoryStore(ring_size=5)))
    assert log.connected
    assert heard.states == [True]
    stored = await log.append("s", ROW)
    assert (await log.page("s", 1, 1000)).messages[0].seq == stored.seq
    await log.close()


def test_it_offers_every_method_of_the_port() -> None:
    promised = {name for name, _ in inspect.getmembers(Log, inspect.isfunction) if not name.startswith("_")}
    assert promised
    assert promised <= set(dir(LateLog))
