"""Cross-origin access: for named origins, and off by default."""

from __future__ import annotations

from support.doors import JSON, Gateway, Start
from support.raw_http import Answer, fetch

EVENTS = "/session/s1/events"
APP = "https://app.example"


def _cors(answer: Answer) -> list[str]:
    return [name for name in answer.headers if name.startswith("access-control-")]


async def _preflight(gateway: Gateway, origin: str, method: str = "GET") -> Answer:
    return await fetch(
        gateway.port,
        "OPTIONS",
        EVENTS,
        {
            "Origin": origin,
            "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": "last-event-id,authorization",
        },
    )


async def test_prx_3_a_named_origin_may_resume_and_publish(start: Start) -> None:
    gateway = await start(cors_origins=(APP,))
    answer = await _preflight(gateway, APP)
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == APP
    allowed = {name.strip().lower() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert allowed >= {
        "last-event-id", "authorization", "idempotency-key", "expected-last-event-id", "content-type",
    }  # fmt: skip
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers


async def test_prx_3_another_origin_gets_nothing(start: Start) -> None:
    gateway = await start(cors_origins=(APP,))
    for origin in ("https://evil.example", "https://app.example.evil.example", "null", APP.upper(), f"{APP}:444"):
        for answer in (await _preflight(gateway, origin), await gateway.get("/livez", Origin=origin)):
            assert _cors(answer) == [], origin
            assert answer.headers["vary"] == "Origin"


async def test_off_by_default(gateway: Gateway) -> None:
    for answer in (await _preflight(gateway, APP), await gateway.get("/livez", Origin=APP)):
        assert _cors(answer) == []
        assert "vary" not in answer.headers


async def test_streams_answers_and_problems_can_be_read_by_the_named_origin(start: Start) -> None:
    gateway = await start(cors_origins=(APP,))
    stream = await gateway.stream("s1", headers={"Origin": APP})
    posted = await gateway.post("s1", {"type": "t", "data": 1}, {"Origin": APP})
    refused = await fetch(gateway.port, "POST", EVENTS, {**JSON, "Origin": APP}, b"x")
    for answer in (stream.answer, posted, refused):
        assert answer.headers["access-control-allow-origin"] == APP
        exposed = {name.strip() for name in answer.headers["access-control-expose-headers"].split(",")}
        assert exposed >= {"X-Stream-Id", "X-Start-Event-Id", "X-Event-Epoch", "X-Cursor-Ignored", "Retry-After"}


async def test_a_star_names_every_origin_and_answers_with_the_one_that_asked(start: Start) -> None:
    gateway = await start(cors_origins=("*",))
    assert (await _preflight(gateway, APP)).headers["access-control-allow-origin"] == APP


async def test_a_request_without_an_origin_is_left_alone(start: Start) -> None:
    gateway = await start(cors_origins=(APP,))
    assert _cors(await gateway.get("/livez")) == []
