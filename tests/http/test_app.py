"""Routing: what a path means, and that an id is judged the same on all routes."""

from __future__ import annotations

import pytest

from ringmere.http.app import ID, ROUTES
from support.doors import JSON, Gateway
from support.raw_http import connection, fetch, request_bytes

BAD_IDS = [
    "*", ">", "%2A", "%2a", "%3E", ".", "..", "%2e", "%2e%2e", "a.b", "a%2eb", "%00", "a%00", "", "%20", "a%20b",
    "a%09b", "a%0D%0APUB%20ev.x%201%0D%0Az", "a%2Fb", "a%5Cb", "%25", "%252e", "%", "%zz", "x" * 129, "x" * 300,
    "%C3%A9", "%E9", "a+b", "a;b", "a,b", "a$b", "a!b", "a'b", "(a)", "%F0%9F%8C%8A", "%C2%B2",
]  # fmt: skip
WITH_ID = sorted({(method, path) for method, path, _ in ROUTES if ID in path})


@pytest.mark.parametrize(("method", "path"), WITH_ID)
async def test_sid_1_sid_2_what_is_no_session_id_is_refused_on_every_route(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    monkeypatch.setattr(gateway.app.door, "hub", None)  # whoever touches it fails with 500
    for bad in BAD_IDS:
        target = path.replace(ID, bad)
        body = b'{"type":"t","data":1}' if method == "POST" else None
        answer = await fetch(gateway.port, method, target, JSON, body)
        assert answer.status == 400, target
        if method != "HEAD":
            assert answer.code == "invalid_session_id", target
    monkeypatch.undo()
    assert await gateway.publish("good", 1) == [1]


async def test_sid_1_a_wildcard_with_a_cursor_reads_nobody_elses_events(gateway: Gateway) -> None:
    await gateway.numbers("s1", 2)
    for bad in ("*", "%3E"):
        answer = await gateway.get(f"/session/{bad}/events", Last_Event_ID="0")
        assert (answer.status, answer.code) == (400, "invalid_session_id")


async def test_raw_bytes_beyond_ascii_in_a_path_are_no_id(gateway: Gateway) -> None:
    async with connection(gateway.port) as raw:
        await raw.send("GET /session/é HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = await raw.answer()
        assert answer.status == 400
    assert (await gateway.get("/livez")).status == 200


async def test_every_character_of_an_id_works_plain_and_as_javascript_encodes_it(gateway: Gateway) -> None:
    session = "aZ09_:@~=-"
    await gateway.publish(session, 1)
    for spelled in (session, "aZ09_%3A%40~%3D-"):
        answer = await gateway.get(f"/session/{spelled}")
        assert (answer.status, answer.json["sessionId"]) == (200, session)
    assert await gateway.publish("x" * 128, 1) == [2]


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/session/a/b/events", "/session/a/events/", "/session/", "//livez", "/livez/", "/page"]
)
async def test_a_path_that_no_route_has_is_404_with_a_code(gateway: Gateway, path: str) -> None:
    answer = await gateway.get(path)
    if path == "/":
        assert answer.status == 200
    elif path == "/session/":
        assert answer.code == "invalid_session_id"
    else:
        assert (answer.status, answer.code) == (404, "not_found")


async def test_a_method_that_a_route_lacks_is_405_and_names_the_others(gateway: Gateway) -> None:
    answer = await fetch(gateway.port, "PUT", "/session/s1/events", JSON, b"{}")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, POST, OPTIONS"


async def test_options_names_the_methods_of_a_route(gateway: Gateway) -> None:
    answer = await fetch(gateway.port, "OPTIONS", "/session/s1/events")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["allow"] == "GET, HEAD, POST, OPTIONS"
    assert (await fetch(gateway.port, "OPTIONS", "*")).status == 404


async def test_head_of_a_plain_route_is_its_get_without_the_body(gateway: Gateway) -> None:
    get = await gateway.get("/livez")
    async with connection(gateway.port) as raw:
        await raw.send(request_bytes("HEAD", "/livez") + request_bytes("GET", "/livez"))
        head = await raw.answer(empty=True)
        assert head.headers["content-length"] == get.headers["content-length"]
        assert (await raw.answer()).body == get.body


async def test_an_absolute_request_target_is_routed_by_its_path(gateway: Gateway) -> None:
    answer = await gateway.get(f"http://127.0.0.1:{gateway.port}/livez")
    assert answer.status == 200


async def test_no_two_routes_share_a_method_and_a_path() -> None:
    keys = [(method, path) for method, path, _ in ROUTES]
    assert len(keys) == len(set(keys))
