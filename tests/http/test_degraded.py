"""Publishing while the log does not store: 503 at once, or live readers only for those who take that (contract 8.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringmere.core.errors import LogUnavailable, PublishUnconfirmed
from ringmere.core.limits import Limits
from support.doors import Gateway, Start
from support.raw_http import Answer, Stream, fetch

ALLOW = {"Degraded": "allow"}
GOOD = {"type": "t", "data": {"n": 1}}


@pytest.fixture
async def degraded(start: Start) -> Gateway:
    """An instance whose log has just ceased to store; its breaker probes too seldom to close by itself."""
    gateway = await start(limits=Limits(breaker_failures=2, breaker_pause=60.0))
    await gateway.numbers("s1", 3)
    await cease(gateway)
    return gateway


async def cease(gateway: Gateway) -> None:
    gateway.log.store.refuse(LogUnavailable("JetStream did not store the event"))
    for _ in range(2):
        assert (await gateway.post("s1", GOOD)).status == 503


def envelopes(frames: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(frame.field("data")) for frame in frames]


async def joined(gateway: Gateway, query: str = "") -> Stream:
    """Open a stream that has been told."""
    stream = await gateway.stream("s1", query)
    frames = await stream.take(1)
    assert frames[0].type == "log_degraded"
    return stream


async def test_after_a_few_failures_a_publish_is_refused_without_asking_the_log(degraded: Gateway) -> None:
    asked = degraded.log.calls["append"]
    answer = await degraded.post("s1", GOOD)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "log_unavailable", "60")
    answer = await degraded.post("s1", [GOOD, GOOD])
    assert (answer.status, answer.code) == (503, "log_unavailable")
    assert (await degraded.post("s1", [GOOD], query="?atomic=1")).status == 503
    assert (await fetch(degraded.port, "DELETE", "/session/s1")).status == 503
    assert degraded.log.calls["append"] == asked
    assert degraded.log.calls["append_many"] == degraded.log.calls["append_atomic"] == 0


async def test_a_publisher_that_allows_it_reaches_live_readers_and_no_log(degraded: Gateway) -> None:
    stream = await joined(degraded)
    answer = await degraded.post("s1", {**GOOD, "_meta": {"k": 1}}, ALLOW)
    assert (answer.status, answer.json) == (202, {"id": None, "degraded": True})
    [frame] = await stream.take(1)
    assert frame.id is None
    [envelope] = envelopes([frame])
    assert envelope.pop("_meta") == {"k": 1, "degraded": True, "serverTimestamp": pytest.approx(1.9e12, rel=0.3)}
    assert envelope == {"v": 1, "type": "t", "data": {"n": 1}}
    assert (await degraded.log.bounds("s1")).stored == 3


async def test_a_batch_goes_out_whole_and_in_order(degraded: Gateway) -> None:
    stream = await joined(degraded)
    rows = [{"type": "t", "data": {"n": n}} for n in range(100)]
    answer = await degraded.post("s1", rows, {**ALLOW, "Idempotency-Key": "k"})
    assert answer.status == 202
    assert answer.json == {"sessionId": "s1", "results": [{"id": None, "degraded": True}] * 100}
    frames = await stream.take(100)
    assert [frame.data["n"] for frame in frames] == list(range(100))
    assert {frame.id for frame in frames} == {None}


async def test_a_key_does_not_make_it_a_duplicate(degraded: Gateway) -> None:
    stream = await joined(degraded)
    for _ in range(2):
        answer = await degraded.post("s1", GOOD, {**ALLOW, "Idempotency-Key": "k"})
        assert answer.status == 202
    assert [frame.data for frame in await stream.take(2)] == [{"n": 1}] * 2


async def test_what_asks_for_a_condition_or_for_all_or_none_is_never_sent_degraded(degraded: Gateway) -> None:
    stream = await joined(degraded)
    refused = [
        await degraded.post("s1", GOOD, {**ALLOW, "Expected-Last-Event-Id": "3"}),
        await degraded.post("s1", [GOOD, GOOD], ALLOW, "?atomic=1"),
        await degraded.post("s1", [GOOD], {**ALLOW, "Expected-Last-Event-Id": "3"}, "?atomic=1"),
    ]
    assert [(answer.status, answer.code) for answer in refused] == [(503, "log_unavailable")] * 3
    await degraded.post("s1", {"type": "end", "data": None}, ALLOW)
    assert [frame.type for frame in await stream.take(1)] == ["end"]


async def test_while_the_log_stores_the_header_changes_nothing(gateway: Gateway) -> None:
    answer = await gateway.post("s1", GOOD, ALLOW)
    assert (answer.status, answer.json["id"]) == (201, 1)


async def test_before_the_breaker_opens_the_log_is_asked_also_for_those_who_allow_it(start: Start) -> None:
    gateway = await start(limits=Limits(breaker_failures=3, breaker_pause=60.0))
    for error in (LogUnavailable("no"), PublishUnconfirmed("who knows"), LogUnavailable("no")):
        gateway.log.store.refuse(error)
        assert (await gateway.post("s1", GOOD, ALLOW)).code == error.code
    assert (await gateway.post("s1", GOOD, ALLOW)).status == 202


@pytest.mark.parametrize("value", ["deny", "", "ALLOW", "allow, allow", "1"])
async def test_any_other_value_of_the_header_is_refused(gateway: Gateway, value: str) -> None:
    answer = await gateway.post("s1", GOOD, {"Degraded": value})
    assert (answer.status, answer.code) == (400, "invalid_degraded")
    assert (await gateway.log.bounds("s1")).stored == 0


async def test_a_bad_event_is_refused_by_the_same_rules(degraded: Gateway) -> None:
    stream = await joined(degraded)
    answers = [
        await degraded.post("s1", {"type": "open", "data": 1}, ALLOW),
        await degraded.post("s1", b'{"type":"t","data":NaN}', ALLOW),
        await degraded.post("s1", {"type": "t", "data": "x" * degraded.log.max_event_bytes}, ALLOW),
        await degraded.post("s1", [GOOD, {"type": "t"}], ALLOW),
    ]
    assert [answer.status for answer in answers] == [422, 400, 413, 422]
    await degraded.post("s1", {"type": "end", "data": None}, ALLOW)
    assert [frame.type for frame in await stream.take(1)] == ["end"]


async def test_without_nats_nothing_goes_out_either(degraded: Gateway) -> None:
    degraded.log.disconnect()
    answer = await degraded.post("s1", GOOD, ALLOW)
    assert (answer.status, answer.code) == (503, "log_unavailable")


async def test_the_faults_of_callers_open_nothing(start: Start) -> None:
    gateway = await start(limits=Limits(breaker_failures=1, breaker_pause=60.0))
    await gateway.post("s1", GOOD, {"Idempotency-Key": "k"})
    answers: list[Answer] = [
        await gateway.post("s1", {"type": "t", "data": 2}, {"Idempotency-Key": "k"}),
        await gateway.post("s1", GOOD, {"Expected-Last-Event-Id": "77"}),
        await gateway.post("s1", {"type": "t", "data": "x" * gateway.log.max_event_bytes}),
        await gateway.post("a.b", GOOD),
    ]
    assert [answer.status for answer in answers] == [422, 409, 413, 400]
    assert (await gateway.post("s1", GOOD)).status == 201


async def test_the_instance_stays_ready_and_its_health_names_the_shard(degraded: Gateway) -> None:
    assert (await degraded.get("/readyz")).status == 200
    health = (await degraded.get("/healthz")).json
    assert (health["status"], health["logDegraded"], health["logConnected"]) == ("degraded", [0], True)


async def test_a_healthy_instance_names_none(gateway: Gateway) -> None:
    await gateway.publish("s1", 1)
    health = (await gateway.get("/healthz")).json
    assert (health["status"], health["logDegraded"]) == ("ok", [])


async def test_a_stream_that_opens_meanwhile_gets_its_replay_then_the_notice_then_what_is_live(
    degraded: Gateway,
) -> None:
    stream = await degraded.stream("s1", "?last_event_id=1")
    frames = await stream.take(4)
    assert [frame.id or frame.type for frame in frames] == [2, 3, "replay_complete", "log_degraded"]
    assert frames[3].data["lastEventId"] == 3
    await degraded.post("s1", GOOD, ALLOW)
    assert [(frame.type, frame.id) for frame in await stream.take(1)] == [("t", None)]


async def test_the_feature_has_a_name(gateway: Gateway) -> None:
    assert "degraded_publish" in (await gateway.get("/capabilities")).json["features"]


async def test_over_http_the_end_is_told_and_events_have_ids_again(start: Start) -> None:
    gateway = await start(limits=Limits(breaker_failures=2, breaker_pause=0.1))
    await gateway.numbers("s1", 3)
    stream = await gateway.stream("s1")
    await cease(gateway)
    assert [frame.type for frame in await stream.take(1)] == ["log_degraded"]
    gateway.log.store.refuse(None)
    [restored] = await stream.take(1)
    assert restored.type == "log_restored"
    [id_] = await gateway.publish("s1", {"n": 4})
    assert [(frame.id, frame.data) for frame in await stream.take(1)] == [(id_, {"n": 4})]
