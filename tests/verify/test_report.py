"""When a round is good, and what is said of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringmere.core.errors import InvalidParameter
from ringmere.verify.judge import Findings
from ringmere.verify.plan import Plan
from ringmere.verify.report import Fault, Report


def report(allow_resync: bool = False, faults: tuple[Fault, ...] = (), **found: Any) -> Report:
    findings = Findings(**{"sent": 10, "acknowledged": 10, "due": 40, "delivered": 40, **found})
    return Report(Plan(max_silence=5.0, allow_resync=allow_resync), findings, 1.0, 0.0, faults)


def test_a_round_without_anything_wrong_is_good() -> None:
    assert report().good
    assert report(unconfirmed=3, unstored=2, retries=9, silence=5.0).good


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ({"lost": 2}, "2 lost"),
        ({"duplicated": 1}, "1 duplicated"),
        ({"out_of_order": 1}, "1 out of order"),
        ({"unknown": 1}, "never stored"),
        ({"altered": 1}, "altered"),
        ({"misnumbered": 1}, "another id"),
        ({"backwards": 1}, "not above"),
        ({"refused": 1}, "refused"),
        ({"silence": 5.1}, "silence of 5.1 s"),
        ({"acknowledged": 0}, "nothing is proven"),
        ({"broken": ["r: x"]}, "give up"),
        ({"resyncs": {"ring_evicted": 2}}, "2 resyncs (ring_evicted"),
    ],
)
def test_each_wrong_is_named_and_makes_it_bad(found: dict[str, Any], word: str) -> None:
    bad = report(**found)
    assert not bad.good
    [problem] = bad.problems()
    assert word in problem
    assert bad.as_object()["problems"] == [problem]
    assert bad.as_object()["ok"] is False


def test_told_losses_are_acceptable_only_when_allowed() -> None:
    assert report(allow_resync=True, resyncs={"ring_evicted": 2}, told=5).good
    assert not report(allow_resync=True, resyncs={"ring_evicted": 2}, told=5, lost=1).good


def test_trouble_around_the_round_makes_it_bad() -> None:
    assert report().with_trouble(["gateway 1 ended by itself"]).problems() == ["gateway 1 ended by itself"]


def test_lines_are_for_people_and_the_object_is_json() -> None:
    made = report(faults=(Fault(1.0, "NATS killed", 2.0), Fault(9.0, "NATS killed", 2.0)), exhibits=["r never got 7"])
    lines = dict(made.lines())
    assert lines["faults"] == "2 × NATS killed"
    assert lines["delivered"] == "40 of 40 due"
    assert lines["example"] == "r never got 7"
    assert json.loads(json.dumps(made.as_object()))["faults"][1] == {"at": 9.0, "what": "NATS killed", "seconds": 2.0}


def test_a_plan_that_could_not_tell_silence_from_good_order_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="raise --max-silence or --rate"):
        Plan(sessions=10, readers=10, rate=0.5, max_silence=10.0, heartbeat=15.0)
    Plan(sessions=10, readers=10, rate=0.5, max_silence=10.0, heartbeat=3.0)
    Plan(sessions=10, readers=10, rate=10.0, max_silence=10.0, heartbeat=15.0)


def test_a_session_without_a_reader_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="as many readers"):
        Plan(sessions=10, readers=9)
