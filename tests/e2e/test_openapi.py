"""The description of the routes against a real gateway on a real log: no 5xx, no status or body that it does not name.

Requests are made up from the document itself, such as it allows and such as it forbids.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support.gateway import gateway

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 12
STREAMED_EXAMPLES = 3
"""Each takes as long as a stream lives."""
SESSIONS = ["s1", "s2", "a:b~c"]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


def is_stream(operation: Any) -> bool:
    return operation.method == "get" and operation.path.endswith("/events")


def check(operation: Any, mode: GenerationMode, examples: int) -> int:
    """Send requests that are made up for one operation; return how many of them succeeded."""
    done = 0

    @seed(1)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Case) -> None:
        nonlocal done
        if case.query and "wait" in case.query:
            case.query["wait"] = 0
        if mode is GenerationMode.POSITIVE and case.path_parameters and "id" in case.path_parameters:
            # Mostly the same few, so that requests meet what others have stored.
            case.path_parameters["id"] = SESSIONS[len(case.path_parameters["id"]) % len(SESSIONS)]
        if mode is GenerationMode.POSITIVE and operation.path == "/events":
            case.query = {**case.query, "session": ",".join(SESSIONS)}
            case.query.pop("match", None)
        if mode is GenerationMode.POSITIVE and operation.path == "/schemas/{type}":
            case.path_parameters = {"type": "text"}
        response = case.call(timeout=30)
        done += response.status_code < 300
        case.validate_response(response, checks=CHECKS)

    try:
        send()
    except Unsatisfiable:
        # Whatever one sends is allowed.
        assert mode is GenerationMode.NEGATIVE
    return done


def check_all(url: str) -> dict[str, int]:
    """Check each operation that a gateway describes; return how many requests of it succeeded."""
    described = schemathesis.openapi.from_url(f"{url}/openapi.json")
    described.config.update(base_url=url)
    succeeded = {}
    for result in described.get_all_operations():
        operation = result.ok()
        examples = STREAMED_EXAMPLES if is_stream(operation) else EXAMPLES
        succeeded[operation.label] = check(operation, GenerationMode.POSITIVE, examples)
        if operation.path_parameters or operation.query or operation.headers or operation.body:
            succeeded[operation.label] += check(operation, GenerationMode.NEGATIVE, examples)
    return succeeded


@pytest.mark.timeout(300)
async def test_every_answer_is_one_that_the_description_names(tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "text.json").write_text(json.dumps(TEXT))
    flags = ("--max-stream-age", "1s", "--heartbeat", "1s", "--schemas", str(schemas))
    async with gateway(tmp_path, *flags) as instance:
        succeeded = await asyncio.to_thread(check_all, instance.url)
        assert instance.output.count("Traceback") == 0
        assert await instance.status("/readyz") == 200
    never = {label for label, count in succeeded.items() if not count}
    # A stream's id is not to be guessed, and nothing here speaks WebSocket.
    assert never <= {"POST /streams/{id}/sessions", "GET /session/{id}/ws", "GET /ws"}
