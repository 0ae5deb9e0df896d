"""What every log promises of the trace context of a message: kept, told to who asks, and never part of the event."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ringmere.core.errors import KeyReused
from ringmere.core.trace import TraceContext
from support.logs import Live, Rig, jetstream_rig, memory_rig, row
from support.nats import eventually

TRACE = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True, "congo=t61rcWkgMzE")
UNSAMPLED = TRACE._replace(sampled=False)

Told = list[tuple[int, int, TraceContext]]


@pytest.fixture(params=["memory", "republish", "consumer"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    if request.param == "memory":
        async with memory_rig() as made:
            yield made
    else:
        async with jetstream_rig(tmp_path, "consumer", request.param) as made:
            yield made


async def test_who_asks_is_told_of_sampled_contexts_right_behind_their_message(rig: Rig) -> None:
    log = await rig.open()
    live = Live()
    told: Told = []
    order: list[str] = []

    def sink(seq: int, previous: int, time_ns: int, payload: bytes) -> None:
        live(seq, previous, time_ns, payload)
        order.append(f"message {seq}")

    def traces(seq: int, time_ns: int, trace: TraceContext) -> None:
        told.append((seq, time_ns, trace))
        order.append(f"trace {seq}")

    await log.subscribe("s", sink, traces)
    await log.append("s", row(1)._replace(trace=TRACE))
    await log.append("s", row(2))
    await log.append("s", row(3)._replace(trace=UNSAMPLED))
    await log.append_many("s", [row(4)._replace(trace=TRACE)])
    await log.append_atomic("s", [row(5)._replace(trace=TRACE), row(6)._replace(trace=TRACE)])
    await live.until(6)
    await eventually(lambda: len(told) == 4, "four contexts")
    assert told == [(seq, time_ns, TRACE) for seq, _, time_ns, _ in live.messages if seq in (1, 4, 5, 6)]
    assert order == ["message 1", "trace 1", "message 2", "message 3", "message 4", "trace 4", "message 5", "trace 5",
                     "message 6", "trace 6"]  # fmt: skip


async def test_who_does_not_ask_gets_the_same_messages(rig: Rig) -> None:
    log = await rig.open()
    live = Live()
    await log.subscribe("s", live)
    await log.append("s", row(1)._replace(trace=TRACE))
    await live.until(1)
    assert live.messages[0][3] == row(1).payload


@pytest.mark.parametrize("first", [None, TRACE])
async def test_a_retry_under_another_trace_is_still_the_same_event(rig: Rig, first: TraceContext | None) -> None:
    log = await rig.open()
    stored = await log.append("s", row(1, "k")._replace(trace=first))
    again = await log.append("s", row(1, "k")._replace(trace=TRACE._replace(span_id="00f067aa0ba902b8")))
    assert (again.seq, again.duplicate) == (stored.seq, True)
    with pytest.raises(KeyReused):
        await log.append("s", row(2, "k")._replace(trace=first))
    batch = [row(7, "b/0"), row(8, "b/1")]
    sure = await log.append_atomic("s", [each._replace(trace=TRACE) for each in batch])
    assert [each.seq for each in await log.append_atomic("s", batch)] == [each.seq for each in sure]
