"""Log lines: what is written, how often, in which form."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from ringmere.core.reasons import CloseReason
from ringmere.hub.observer import Account
from ringmere.telemetry.logs import LogObserver, configure


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def tell_all(observer: LogObserver) -> None:
    observer.stream_opened("sse", "s1", "x1", 5, "192.0.2.1")
    observer.stream_closed("sse", "s1", "x1", CloseReason.WRITE_TIMEOUT, 1.23456, Account(9, 2, 4, 900))
    observer.warned("s1", "x1", "bytes")
    observer.evicted("s1", "x1", CloseReason.QUEUE_OVERFLOW)
    observer.fell_back("s1", "x1", CloseReason.QUEUE_OVERFLOW)
    observer.cursor_ignored("s1", "malformed")
    observer.resync("s1", "epoch_reset", "foreign_cursor", "x1")
    observer.live_gap("s1")
    observer.skipped("s1", 7, "not_json")
    observer.log_connected(True)
    observer.log_connected(False)
    observer.log_degraded(2, "no quorum")
    observer.log_restored(2, 12.3456)
    observer.tail_not_reopened(1, "no leader")
    observer.epoch_added(3, "b-1")
    observer.cancel("requested", "s1", "t1")
    observer.cancel("repeated", "s1", "t1")
    observer.cancel("failed", "s1", "t1")
    observer.cancel("delivered", "s1", "t1")


def test_a_call_is_one_line_and_no_two_calls_have_a_line_of_the_same_name() -> None:
    with capture_logs() as lines:
        tell_all(LogObserver())
    names = [line["event"] for line in lines]
    assert len(names) == len(set(names)) == 17


def test_a_stream_ends_with_its_reason_age_and_count() -> None:
    with capture_logs() as lines:
        LogObserver().stream_closed("sse", "s1", "x1", CloseReason.WRITE_TIMEOUT, 1.23456, Account(9, 2, 4, 900))
    assert lines == [
        {"event": "stream_closed", "log_level": "info", "transport": "sse", "session": "s1", "stream": "x1",
         "reason": "write_timeout", "seconds": 1.235, "events": 9, "replayed": 4, "bytes": 900, "lag": 2}
    ]  # fmt: skip


def test_warnings_that_others_can_cause_are_limited_and_the_rest_counted() -> None:
    clock = Clock()
    observer = LogObserver(clock)
    with capture_logs() as lines:
        for seq in range(50):
            observer.skipped("s1", seq, "not_json")
        observer.skipped("s1", 51, "not_utf8")
        clock.now += 1.0
        observer.skipped("s2", 52, "not_json")
        clock.now += 1.0
        observer.skipped("s2", 53, "not_json")
    assert [(line["seq"], line.get("suppressed")) for line in lines] == [(0, None), (51, None), (52, 49), (53, None)]


def test_streams_are_never_limited() -> None:
    with capture_logs() as lines:
        observer = LogObserver(Clock())
        for number in range(5):
            observer.stream_opened("sse", "s", str(number), None, None)
    assert len(lines) == 5


def read_lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_lines_carry_level_time_and_logger_from_both_kinds_of_loggers(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", json=True)
    LogObserver().stream_opened("sse", "s1", "x1", None, None)
    logging.getLogger("some.library").warning("careful %s", "now", extra={"port": 4222})
    own, foreign = read_lines(capsys)
    assert (own["event"], own["level"], own["logger"], own["session"]) == (
        "stream_opened",
        "info",
        "ringmere.hub",
        "s1",
    )
    assert (foreign["event"], foreign["level"], foreign["logger"]) == ("careful now", "warning", "some.library")
    assert foreign["port"] == 4222
    assert own["timestamp"].endswith("Z")


def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure("WARNING", json=True)
    tell_all(LogObserver())
    assert {line["level"] for line in read_lines(capsys)} == {"warning"}


def test_an_exception_stays_on_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", json=True)
    try:
        raise ValueError("a\nb")
    except ValueError:
        structlog.get_logger("x").exception("broken")
        logging.getLogger("y").exception("broken too")
    lines = read_lines(capsys)
    assert [line["event"] for line in lines] == ["broken", "broken too"]
    assert all(line["exception"][0]["exc_type"] == "ValueError" for line in lines)


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "people"])
def test_a_traceback_tells_no_value_of_a_variable(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", json=as_json)

    def publish(payload: str) -> None:
        raise ValueError(len(payload))

    try:
        publish("Zq7" + "payload")
    except ValueError:
        structlog.get_logger("x").exception("broken")
        logging.getLogger("y").exception("broken too")
    told = capsys.readouterr().err
    assert told.count("ValueError") >= 2
    assert "Zq7payload" not in told


def test_control_characters_in_a_field_cannot_make_a_second_line(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (True, False):
        configure("info", json=as_json)
        structlog.get_logger("x").info("event", field="a\nforged line\r\x1b[31m")
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "\x1b" not in err


@pytest.mark.parametrize(("terminal", "as_json"), [(True, False), (False, True)])
def test_the_form_follows_the_terminal(
    terminal: bool, as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    configure("info")
    structlog.get_logger("x").info("hello")
    assert capsys.readouterr().err.startswith("{") is as_json
