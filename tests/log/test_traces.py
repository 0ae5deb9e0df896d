"""The trace context in a header block."""

from __future__ import annotations

import pytest

from ringmere.core.trace import TraceContext
from ringmere.log.traces import MAX_BLOCK, sampled_trace

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FOUND = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True)
SERVER = b"Nats-Stream: R\r\nNats-Sequence: 5\r\n\r\n"


@pytest.mark.parametrize("name", [b"traceparent", b"Traceparent", b"TRACEPARENT"])
@pytest.mark.parametrize("space", [b"", b" ", b"  "])
def test_the_header_is_found_in_any_case(name: bytes, space: bytes) -> None:
    assert sampled_trace(b"NATS/1.0\r\nA: b\r\n" + name + b":" + space + PARENT + b"\r\n" + SERVER) == FOUND


def test_the_state_comes_with_it_and_its_case_is_kept() -> None:
    block = b"NATS/1.0\r\nTracestate: congo=t61rcWkgMzE\r\ntraceparent: " + PARENT + b"\r\n" + SERVER
    assert sampled_trace(block) == FOUND._replace(state="congo=t61rcWkgMzE")


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0\r\nX-traceparent: " + PARENT + b"\r\n" + SERVER,
        b"NATS/1.0\r\nA: traceparent: " + PARENT + b"\r\n" + SERVER,
        b"NATS/1.0\r\ntraceparent: " + PARENT[:-2] + b"00\r\n" + SERVER,
        b"NATS/1.0\r\ntraceparent: garbage\r\n" + SERVER,
        b"NATS/1.0\r\ntraceparent: \xff\xfe\r\n" + SERVER,
        b"NATS/1.0\r\ntraceparent: " + PARENT,
        b"NATS/1.0\r\nA: " + b"b" * MAX_BLOCK + b"\r\ntraceparent: " + PARENT + b"\r\n" + SERVER,
    ],
)
def test_without_a_sampled_context_there_is_none(block: bytes) -> None:
    assert sampled_trace(block) is None
