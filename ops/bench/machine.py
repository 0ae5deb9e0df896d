"""What the kernel knows: CPU time and memory of processes, the machine, and the versions that were measured."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the user and system time that a process has used, threads included; 10 ms steps."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def busy_seconds() -> float:
    """Return the time that all cores together were busy since boot, other people's processes included."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / _TICKS


def rss_kib(pid: int) -> int:
    """Return the resident memory of a process in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} has no memory: it has ended")


def settled_rss_kib(pid: int, calm: float, deadline: float = 20.0) -> int:
    """Return the resident memory once it has moved by less than 64 KiB for ``calm`` s, or at the deadline."""
    end = time.monotonic() + deadline
    since, seen = time.monotonic(), rss_kib(pid)
    while time.monotonic() < end and time.monotonic() - since < calm:
        time.sleep(0.1)
        now = rss_kib(pid)
        if abs(now - seen) >= 64:
            since, seen = time.monotonic(), now
    return rss_kib(pid)


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "not in a git checkout"
    return done.stdout.strip()


def describe(nats_server: Path) -> dict[str, str]:
    """Return what a reader needs to place the numbers: cores, memory, kernel, versions."""
    cpu = [
        line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    server = subprocess.run([nats_server, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    packages = ("ringmere", "aiohttp", "nats-py", "uvloop", "msgspec")
    return {
        "machine": f"{os.cpu_count()} cores ({cpu[0] if cpu else platform.machine()}), {memory_kib >> 20} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {version(name)}" for name in packages),
        "server": server,
        "revision": _revision(),
    }
