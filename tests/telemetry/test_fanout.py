"""One observer for several."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from ringmere.core.reasons import CloseReason
from ringmere.hub.observer import Account, Observer, Replay
from ringmere.telemetry.fanout import METHODS, Fanout


class Recorder(Observer):
    """Notes every call."""

    def __init__(self, calls: list[tuple[Any, ...]], only: set[str] | None = None) -> None:
        for name in METHODS:
            if only is None or name in only:
                setattr(self, name, lambda *args, name=name: calls.append((self, name, *args)))


def arguments(name: str) -> list[Any]:
    parameters = list(inspect.signature(getattr(Observer, name)).parameters.values())[1:]
    replay = Replay("contiguous", "log", 3, 100, 0.5)
    samples = {
        "int": 1, "str": "s", "float": 0.5, "bool": True, "CloseReason": CloseReason.DRAINING, "Replay": replay,
        "Account": Account(1, 0),
    }  # fmt: skip
    return [samples[str(parameter.annotation).split(" |")[0]] for parameter in parameters]


@pytest.mark.parametrize("name", METHODS)
def test_every_call_reaches_every_listener_in_order(name: str) -> None:
    calls: list[tuple[Any, ...]] = []
    first, second = Recorder(calls), Recorder(calls)
    getattr(Fanout([first, second]), name)(*arguments(name))
    assert calls == [(first, name, *arguments(name)), (second, name, *arguments(name))]


def test_keyword_arguments_reach_the_listeners() -> None:
    class Kept(Observer):
        seen = 0

        def live_gap(self, session: str) -> None:
            self.seen += len(session)

    both = [Kept(), Kept()]
    Fanout(both).live_gap(session="abc")
    assert [each.seen for each in both] == [3, 3]


def test_what_nobody_listens_to_stays_a_no_op_and_a_single_listener_is_called_directly() -> None:
    calls: list[tuple[Any, ...]] = []
    one = Recorder(calls, {"live_gap"})
    fanout = Fanout([one, Observer()])
    fanout.stream_opened("sse", "s", "x", None, None)
    assert fanout.live_gap is one.live_gap
    assert calls == []


def test_no_listeners_at_all_is_fine() -> None:
    Fanout([]).live_gap("s")
