"""The degraded subjects as other programs see them, and the probe against servers that cannot store."""

from __future__ import annotations

import asyncio

import pytest

from ringmere.core.errors import Unavailable
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.degraded import Degraded
from ringmere.log.jetstream import LogSettings, open_log
from ringmere.log.shards import PROBE, degraded_subject, event_subject
from support.nats import Cluster, api, eventually


async def test_what_another_program_puts_on_a_subject_of_no_session_is_passed_over(connection: Connection) -> None:
    events: list[tuple[str, bytes]] = []
    doubts: list[int] = []
    degraded = Degraded(connection, 2.0, lambda session, payload: events.append((session, payload)), doubts.append)
    await degraded.start()
    for subject in ("ringmere.degraded.0.a/b", f"ringmere.degraded.x.{PROBE}", f"ringmere.degraded.\u0663.{PROBE}"):
        connection.send(subject, b"1")
    await degraded.publish(1, "s", [b"2"])
    await eventually(lambda: bool(events), "the good one arrives")
    assert (events, doubts) == ([("s", b"2")], [])
    degraded.close()


async def test_a_closed_one_hears_nothing(connection: Connection) -> None:
    events: list[str] = []
    degraded = Degraded(connection, 2.0, lambda session, _: events.append(session), lambda _: None)
    await degraded.start()
    degraded.close()
    await degraded.publish(0, "s", [b"1"])
    again = Degraded(connection, 2.0, lambda session, _: events.append(f"{session} again"), lambda _: None)
    await again.start()
    await again.publish(0, "s", [b"2"])
    await eventually(lambda: bool(events), "the second hears it")
    assert events == ["s again"]


async def test_a_probe_fails_without_quorum_and_stores_again_with_it(nats_cluster: Cluster) -> None:
    log = await open_log(ConnectOptions(servers=nats_cluster.urls), LogSettings(replicas=3))
    try:
        await log.probe(0)
        survivor = await nats_cluster.leader(log.connection, "RINGMERE_0")
        assert survivor is not None
        others = [node for node in nats_cluster.nodes if node is not survivor]
        for node in others:
            await node.kill()
        await eventually(lambda: log.connected, "the instance is on the node that is left")
        for _ in range(3):
            with pytest.raises(Unavailable):
                await log.probe(0)
        await asyncio.gather(*(node.start() for node in others))

        async def stores() -> bool:
            try:
                await log.probe(0)
            except Unavailable:
                return False
            return True

        await eventually(stores, "a probe is stored", 60)
        info = await api(log.connection, "STREAM.INFO.RINGMERE_0", {"subjects_filter": ">"})
        assert set(info["state"]["subjects"]) == {event_subject(0, PROBE)}
        assert degraded_subject(0, PROBE) not in info["config"]["subjects"]
    finally:
        await log.close()
