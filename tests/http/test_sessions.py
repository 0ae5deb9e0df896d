"""Sessions as things (contract 10.4)."""

from __future__ import annotations

import pytest
from jsonschema_rs import validator_for

from ringmere.core.errors import LogUnavailable
from ringmere.http.openapi import document
from support.doors import Gateway
from support.raw_http import fetch


async def test_a_fresh_session_has_an_id_that_works_and_is_never_given_twice(gateway: Gateway) -> None:
    answers = [await fetch(gateway.port, "POST", "/session") for _ in range(20)]
    assert {answer.status for answer in answers} == {201}
    ids = {answer.json["sessionId"] for answer in answers}
    assert len(ids) == 20
    assert answers[0].headers["location"] == f"/session/{answers[0].json['sessionId']}"
    assert await gateway.publish(ids.pop(), 1) == [1]


async def test_closing_a_session_publishes_its_terminal_event(gateway: Gateway) -> None:
    stream = await gateway.stream("s1")
    answer = await fetch(gateway.port, "DELETE", "/session/s1")
    assert (answer.status, answer.body) == (204, b"")
    [frame] = await stream.all()
    assert (frame.id, frame.type) == (1, "session_closed")
    assert (await gateway.get("/session/s1")).json["closed"] is True


async def test_an_event_reopens_a_closed_session(gateway: Gateway) -> None:
    await fetch(gateway.port, "DELETE", "/session/s1")
    await gateway.publish("s1", 1)
    assert (await gateway.get("/session/s1")).json["closed"] is False


async def test_purging_a_session_removes_it(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    answer = await fetch(gateway.port, "DELETE", "/session/s1?purge=1")
    assert (answer.status, answer.body) == (204, b"")
    assert (await gateway.get("/sessions")).json["sessions"] == []
    assert await gateway.publish("s1", 1) == [4]
    assert (await fetch(gateway.port, "DELETE", "/session/s1?purge=maybe")).code == "invalid_purge"


async def test_sessions_are_listed_in_pages_by_prefix(gateway: Gateway) -> None:
    for session in ("b2", "a1", "b1", "b3"):
        await gateway.publish(session, 1, 2)
    everything = (await gateway.get("/sessions")).json
    assert [row["sessionId"] for row in everything["sessions"]] == ["a1", "b1", "b2", "b3"]
    assert "next" not in everything
    row = everything["sessions"][0]
    assert (row["firstEventId"], row["lastEventId"], row["events"], row["closed"]) == (3, 4, 2, False)
    assert row.keys() >= {"lastEventAt"}
    page = (await gateway.get("/sessions?prefix=b&limit=2")).json
    assert [row["sessionId"] for row in page["sessions"]] == ["b1", "b2"]
    rest = (await gateway.get(f"/sessions?prefix=b&limit=2&after={page['next']}")).json
    assert [row["sessionId"] for row in rest["sessions"]] == ["b3"]
    assert "next" not in rest


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=0", "invalid_limit"),
        ("limit=1001", "invalid_limit"),
        ("limit=x", "invalid_limit"),
        ("limit=1&limit=1", "invalid_limit"),
        ("prefix=*", "invalid_prefix"),
        ("prefix=a.b", "invalid_prefix"),
        ("after=%3E", "invalid_after"),
        ("after=" + "x" * 129, "invalid_after"),
    ],
)
async def test_a_list_refuses_what_it_does_not_understand(gateway: Gateway, query: str, code: str) -> None:
    answer = await gateway.get(f"/sessions?{query}")
    assert (answer.status, answer.code) == (400, code)


async def test_one_session_is_shown_with_its_readers(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    stream = await gateway.stream("s1")
    shown = (await gateway.get("/session/s1")).json
    assert (shown["sessionId"], shown["firstEventId"], shown["lastEventId"], shown["events"]) == ("s1", 1, 3, 3)
    assert len(shown["readers"]) == 1
    assert stream.answer.headers["x-stream-id"] in str(shown["readers"])


async def test_what_is_shown_is_what_the_description_says(gateway: Gateway) -> None:
    await gateway.numbers("s1", 3)
    await gateway.stream("s1")
    await gateway.stream("nothing-yet")
    parts = document("1")["components"]
    check = validator_for({"$ref": "#/components/schemas/ShownSession", "components": parts}).validate
    for session in ("s1", "nothing-yet"):
        shown = (await gateway.get(f"/session/{session}")).json
        check(shown)
        known = parts["schemas"]["ShownSession"]["properties"]
        assert set(shown) <= set(known)
        [reader] = shown["readers"]
        assert set(reader) <= set(parts["schemas"]["SessionReader"]["properties"])


async def test_an_unknown_session_is_404(gateway: Gateway) -> None:
    answer = await gateway.get("/session/nobody")
    assert (answer.status, answer.code) == (404, "session_not_found")


async def test_a_log_that_is_away_is_503_here_too(gateway: Gateway) -> None:
    async def away(method: str, session: str) -> None:
        raise LogUnavailable("away")

    gateway.log.before = away
    for target in ("/sessions", "/session/s1"):
        answer = await gateway.get(target)
        assert (answer.status, answer.code) == (503, "log_unavailable")


async def test_readers_that_are_behind_are_listed_and_no_others(gateway: Gateway) -> None:
    assert (await gateway.get("/readers")).json == {"readers": []}
    await gateway.stream("healthy")
    await gateway.numbers("healthy", 3)
    slow = await gateway.stream("slow")
    slow.connection.writer.transport.pause_reading()
    while not gateway.hub.stats().backlog_events:
        assert (await gateway.post("slow", [{"type": "t", "data": "x" * 60_000}] * 20)).status == 201
    [row] = (await gateway.get("/readers?limit=5")).json["readers"]
    assert (row["sessionId"], row["transport"], row["client"]) == ("slow", "sse", "127.0.0.1")
    assert row["backlogEvents"] > 0
    assert row["backlogBytes"] > 60_000


async def test_a_limit_of_readers_that_is_none_is_refused(gateway: Gateway) -> None:
    for limit in ("0", "1001", "x", "-1", "1&limit=2"):
        answer = await gateway.get(f"/readers?limit={limit}")
        assert (answer.status, answer.code) == (400, "invalid_limit"), limit
