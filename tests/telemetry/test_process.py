"""What the process costs is what the kernel says of it."""

from __future__ import annotations

import os
import sys
import time

import pytest

from ringmere.telemetry import process
from ringmere.telemetry.process import ProcessCollector

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")


def look(collector: ProcessCollector) -> dict[str, float]:
    return {
        sample.name.removeprefix("ringmere_process_"): sample.value for m in collector.collect() for sample in m.samples
    }


def test_cpu_time_is_what_the_process_has_used() -> None:
    collector = ProcessCollector()
    before = look(collector)["cpu_seconds_total"]
    end = time.process_time() + 0.2
    while time.process_time() < end:
        sum(range(1000))
    spent = look(collector)["cpu_seconds_total"] - before
    assert 0.15 <= spent <= 1.0
    assert look(collector)["cpu_seconds_total"] == pytest.approx(time.process_time(), abs=0.1)


def test_open_files_are_counted_with_and_without_the_kernels_help(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = ProcessCollector()
    before = look(collector)["open_fds"]
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
    try:
        assert look(collector)["open_fds"] - before == 50
        assert process._open_files() == len(os.listdir("/proc/self/fd")) - 1
    finally:
        for each in opened:
            os.close(each)
    assert look(collector)["max_fds"] >= before


def test_memory_and_start_are_of_this_process() -> None:
    seen = look(ProcessCollector())
    with open("/proc/self/statm", "rb") as statm:
        pages = int(statm.read().split()[1])
    assert seen["resident_memory_bytes"] == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE"), rel=0.2)
    assert 0 < time.time() - seen["start_time_seconds"] < 3600


def test_where_there_is_no_proc_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_boot_time", lambda: None)
    assert look(ProcessCollector()) == {}
