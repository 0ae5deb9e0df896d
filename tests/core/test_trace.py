"""W3C trace context: what is taken, and that everything else counts as absent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmere.core.limits import MAX_TRACESTATE_CHARS
from ringmere.core.trace import TraceContext, parse_trace

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_context_is_read_and_written_back_as_it_was() -> None:
    found = parse_trace(PARENT, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
    assert found == TraceContext(TRACE, SPAN, True, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
    assert found.headers() == {"traceparent": PARENT, "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"}


def test_without_a_state_only_one_header_is_passed_on() -> None:
    found = parse_trace(PARENT)
    assert found is not None
    assert found.headers() == {"traceparent": PARENT}


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)])
def test_only_the_lowest_flag_says_sampled(flags: str, sampled: bool) -> None:
    found = parse_trace(f"00-{TRACE}-{SPAN}-{flags}")
    assert found is not None
    assert found.sampled is sampled


@pytest.mark.parametrize(
    "parent",
    [
        "", "garbage", "00", f"00-{TRACE}", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}-1", f"{PARENT}-more",
        f"{PARENT} ", f" {PARENT}", f"0-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01x", PARENT.replace("4", "٤", 1),
        f"{PARENT}\n",
    ],
)  # fmt: skip
def test_what_is_no_traceparent_counts_as_absent(parent: str) -> None:
    assert parse_trace(parent, "a=b") is None


def test_a_later_version_may_say_more_behind_a_dash() -> None:
    assert parse_trace(f"cc-{TRACE}-{SPAN}-01-what-will-be") == TraceContext(TRACE, SPAN, True)
    assert parse_trace(f"cc-{TRACE}-{SPAN}-01") == TraceContext(TRACE, SPAN, True)


@pytest.mark.parametrize("state", ["no member", "a=b\r\nNats-Msg-Id: x", "a=ü", "a=" + "b" * MAX_TRACESTATE_CHARS])
def test_a_state_that_is_malformed_or_too_long_is_left_out(state: str) -> None:
    assert parse_trace(PARENT, state) == TraceContext(TRACE, SPAN, True)


@given(st.text(max_size=80), st.text(max_size=600))
def test_any_text_gives_a_context_that_is_safe_in_a_header_or_none(parent: str, state: str) -> None:
    for found in (parse_trace(parent, state), parse_trace(PARENT, state)):
        for value in found.headers().values() if found is not None else ():
            assert len(value) <= MAX_TRACESTATE_CHARS
            assert value.isascii()
            assert value.isprintable()
