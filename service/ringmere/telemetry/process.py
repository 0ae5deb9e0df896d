"""What the process costs: CPU, memory, open files, since when. From ``/proc``, so on Linux only.

prometheus_client has a collector for this. It counts open files by listing them, which held the event loop for
8 ms at 10,000 streams where it was measured; here the kernel is asked for their number.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_SELF = Path("/proc/self")
_STARTED = 19
_USER, _SYSTEM = 11, 12
_RESIDENT = 21
"""Fields of ``/proc/self/stat`` behind the name of the process."""


class ProcessCollector(Collector):
    """Counts what this process uses; there is nothing to see where there is no ``/proc``."""

    def __init__(self) -> None:
        self._booted = _boot_time()

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Look at the process now."""
        if self._booted is None:
            return
        fields = (_SELF / "stat").read_bytes().rpartition(b")")[2].split()
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        cpu = (int(fields[_USER]) + int(fields[_SYSTEM])) / ticks
        yield CounterMetricFamily(f"{_PREFIX}cpu_seconds", "CPU time used, user and system.", value=cpu)
        yield _gauge("resident_memory_bytes", "Memory in RAM.", int(fields[_RESIDENT]) * page)
        yield _gauge("open_fds", "Open files, sockets included: one for each reader.", _open_files())
        yield _gauge("max_fds", "Open files that the process may have.", _most_files())
        started = self._booted + int(fields[_STARTED]) / ticks
        yield _gauge("start_time_seconds", "When the process started, since 1970.", started)


_PREFIX = "ringmere_process_"


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def _boot_time() -> float | None:
    """Return when the machine was started, None where nothing says so."""
    try:
        lines = Path("/proc/stat").read_bytes().splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith(b"btime ")), None)


def _open_files() -> int:
    """Return the number of open files: since Linux 6.2 the size of their directory, before that it has none."""
    return (_SELF / "fd").stat().st_size or len(os.listdir(_SELF / "fd"))


def _most_files() -> float:
    import resource  # not to be had on every system

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
