"""A short soak: churn, and then the instance is as it was; the long form is `make soak`."""

from __future__ import annotations

from ops.soak import Samples, judge, soak


async def test_churn_of_readers_and_sessions_leaves_nothing_behind() -> None:
    faults, figures = await soak(20, 40, seed=3)
    assert faults == []
    assert figures["visits"] > 200
    assert figures["events"] > 500


def test_a_growth_of_memory_or_of_tasks_is_a_fault() -> None:
    at = [float(second) for second in range(100)]
    steady = Samples(at, [100_000_000] * 100, [50] * 100)
    assert judge(steady, 100, 10, 12)[0] == []
    leaking = Samples(at, [100_000_000 + second * 1_000_000 for second in range(100)], [50] * 100)
    assert judge(leaking, 100, 10, 12)[0][0].startswith("memory grew")
    piling = Samples(at, [100_000_000] * 100, [50 + second for second in range(100)])
    assert judge(piling, 100, 10, 12)[0][0].startswith("tasks grew")
    assert judge(steady, 100, 10, 40)[0] == ["40 tasks are left without readers, 10 were there before the first"]
