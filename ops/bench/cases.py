"""The measurements. Each takes a contender and returns plain numbers; loss is counted in every one of them."""

from __future__ import annotations

import http.client
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from . import machine
from .rig import CACHE, RING_SIZE, BenchError, Contender, Reader, Stack, Tools, publish, stack

P99_LIMIT_MS = 250.0
RATE_KEPT = 0.98
SCRAPE_PAUSE = 0.05
"""Seconds from one scrape to the next."""


@dataclass(frozen=True)
class Scale:
    """How large the measurements are."""

    fanout_readers: int = 1000
    fanout_seconds: float = 8.0
    fanout_window: int = 1000
    slow_rate: float = 50.0
    slow_seconds: float = 20.0
    sessions: int = 1000
    step_seconds: float = 5.0
    first_rate: float = 4000.0
    growth: float = 1.5
    bisections: int = 3
    top_rate: float = 400_000.0
    delay_rate: float = 20_000.0
    replay_readers: int = 200
    replay_events: int = RING_SIZE
    replay_repeats: int = 3
    idle_readers: int = 2000
    idle_seconds: float = 5.0
    scrape_readers: int = 10_000
    scrapes: int = 200
    calm: float = 2.0
    patience: float = 60.0


QUICK = Scale(
    fanout_readers=20, fanout_seconds=0.5, fanout_window=200, slow_rate=50.0, slow_seconds=1.0,
    sessions=20, step_seconds=0.5, first_rate=500.0, growth=2.0, bisections=0, top_rate=500.0, delay_rate=500.0,
    replay_readers=5, replay_events=400, replay_repeats=1, idle_readers=50, idle_seconds=0.2,
    scrape_readers=50, scrapes=10, calm=0.2, patience=20.0,
)  # fmt: skip


@dataclass
class Measured:
    """One measurement: what the publisher and the reader report, and CPU seconds by process."""

    published: dict[str, Any]
    read: dict[str, Any]
    cpu: dict[str, float]
    seconds: float
    label: str = ""

    @property
    def faults(self) -> list[str]:
        """What was not right; empty when every event reached every reader once and in order."""
        keys = ("refused", "aborted", "incomplete", "lost", "duplicated", "reordered", "id_disorder")
        found = [f"{key} {self.read[key]}" for key in keys if self.read[key]]
        found += [
            f"{name} {count}" for name, count in self.read["frames"].items() if count and name != "replay_complete"
        ]
        return found + [f"frame {text}" for text in self.read["samples"][:1]]


@dataclass
class Outcome:
    """The numbers of one case and contender by name, plus the runs behind them."""

    numbers: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    runs: list[Measured] = field(default_factory=list)


def measure(on: Stack, readers: int, sessions: int, patience: float, window: int = 0, **options: object) -> Measured:
    """Open the streams, publish while they read, wait until all is delivered, and account for the time used."""
    on_progress = CACHE / f"progress-{time.monotonic_ns()}"
    prefix = f"s{time.monotonic_ns()}-"
    reader = Reader(on, readers, sessions, prefix=prefix, progress=on_progress)
    try:
        reader.wait_ready()
        begin, busy = time.monotonic(), machine.busy_seconds()
        gateway, nats = machine.cpu_seconds(on.gateway.pid), _server_cpu(on)
        limits: dict[str, object] = {"window": window, "progress": on_progress} if window else {}
        published = publish(on, sessions, prefix=prefix, **limits, **options)
        read = reader.expect(published["rounds"], patience)
        on.gateway.check()
        cpu = {
            "gateway": machine.cpu_seconds(on.gateway.pid) - gateway,
            "nats-server": _server_cpu(on) - nats,
            "publisher": published["cpu_s"],
            "reader": read["cpu_s"],
        }
        cpu["others"] = max(0.0, machine.busy_seconds() - busy - sum(cpu.values()))
        return Measured(published, read, cpu, time.monotonic() - begin)
    finally:
        reader.kill()
        on_progress.unlink(missing_ok=True)


def _server_cpu(on: Stack) -> float:
    return sum(machine.cpu_seconds(pid) for pid in on.servers)


def fanout(tools: Tools, who: Contender, scale: Scale) -> Outcome:
    """1 session, many readers: flat out behind a window, then at a fixed low rate."""
    out = Outcome()
    with stack(tools, who) as on:
        run = measure(on, scale.fanout_readers, 1, scale.patience, scale.fanout_window, seconds=scale.fanout_seconds)
        run.label = "flat out"
        out.runs.append(run)
        out.numbers["deliveries_per_s"] = run.read["events"] / max(run.read["span_s"], 1e-6)
        out.notes += run.faults
    with stack(tools, who) as on:
        run = measure(on, scale.fanout_readers, 1, scale.patience, rate=scale.slow_rate, seconds=scale.slow_seconds)
        run.label = "fixed rate"
        out.runs.append(run)
        out.numbers["cpu_s_per_million"] = run.cpu["gateway"] / max(run.read["events"], 1) * 1e6
        out.numbers["slow_p99_ms"] = run.read["p99_ms"]
        out.notes += run.faults
    return out


def many_sessions(tools: Tools, who: Contender, scale: Scale) -> Outcome:
    """1 reader in each of many sessions: the highest rate that is kept, and the delay at a fixed rate."""
    out = Outcome()

    def step(rate: float, contender: Contender = who) -> Measured:
        with stack(tools, contender) as on:
            return measure(on, scale.sessions, scale.sessions, 30.0, rate=rate, seconds=scale.step_seconds)

    best = _highest_rate(step, scale, out)
    out.numbers["max_events_per_s"] = best
    run = step(scale.delay_rate)
    run.label = "fixed rate"
    out.runs.append(run)
    out.numbers["p50_ms"] = run.read["p50_ms"]
    out.numbers["p99_ms"] = run.read["p99_ms"]
    out.numbers["kept_rate"] = float(_kept(run, scale.delay_rate))
    out.numbers["server_us"] = _server_us(run)
    out.notes += run.faults
    if who.without_heads:
        run = step(scale.delay_rate, replace(who, arguments=(*who.arguments, *who.without_heads)))
        run.label = "fixed rate, " + " ".join(who.without_heads)
        out.runs.append(run)
        out.numbers["server_us_without_heads"] = _server_us(run)
        out.notes += run.faults
    return out


def _server_us(run: Measured) -> float:
    return run.cpu["nats-server"] / max(run.read["events"], 1) * 1e6


def _kept(run: Measured, rate: float) -> bool:
    """Say whether a rate was kept: published as asked, nothing lost, p99 delay within the limit."""
    return not run.faults and run.published["rate"] >= RATE_KEPT * rate and run.read["p99_ms"] <= P99_LIMIT_MS


def _highest_rate(step: Callable[[float], Measured], scale: Scale, out: Outcome) -> float:
    """Raise the rate until it is not kept twice in a row, then halve the last interval some times."""

    def keeps(rate: float) -> bool:
        for _ in range(2):
            try:
                run = step(rate)
            except BenchError as error:
                out.notes.append(f"at {rate:.0f}/s: {str(error)[:200]}")
                continue
            kept = _kept(run, rate)
            run.label = f"step {rate:,.0f}: " + ("kept" if kept else "; ".join(run.faults) or "too late")
            out.runs.append(run)
            if kept:
                return True
        return False

    low, high = 0.0, scale.first_rate
    while high <= scale.top_rate and keeps(high):
        low, high = high, high * scale.growth
    if low == 0.0 or high > scale.top_rate:
        return low
    for _ in range(scale.bisections):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def replay(tools: Tools, who: Contender, scale: Scale) -> Outcome:
    """Many readers replay the same ring from cursor 0 from a gateway that has just started."""
    out = Outcome()
    prefix = "replay-"
    times = []
    with stack(tools, who) as on:
        publish(on, 1, prefix=prefix, rounds=scale.replay_events)
        for _ in range(scale.replay_repeats):
            on.start_gateway()
            gateway, nats = machine.cpu_seconds(on.gateway.pid), machine.cpu_seconds(on.nats.pid)
            begin = time.monotonic()
            count, limit = scale.replay_events, 3 * scale.patience
            reader = Reader(on, scale.replay_readers, 1, prefix=prefix, cursor=0, events=count, limit=limit)
            try:
                reader.wait_ready(scale.patience)
                read = reader.result(4 * scale.patience)
            finally:
                reader.kill()
            cpu = {
                "gateway": machine.cpu_seconds(on.gateway.pid) - gateway,
                "nats-server": machine.cpu_seconds(on.nats.pid) - nats,
                "reader": read["cpu_s"],
            }
            run = Measured({}, read, cpu, time.monotonic() - begin, f"{read['complete_s']:.3f} s")
            out.runs.append(run)
            out.notes += run.faults
            times.append(read["complete_s"])
            if times[0] > 10.0:
                break
    out.numbers["seconds"] = statistics.median(times)
    return out


def idle(tools: Tools, who: Contender, scale: Scale) -> Outcome:
    """Memory that an open, silent stream costs the gateway: all in one session, and each in its own."""
    out = Outcome()
    for name, sessions in (("one_session_kib", 1), ("own_sessions_kib", scale.idle_readers)):
        with stack(tools, who) as on:
            before = machine.settled_rss_kib(on.gateway.pid, scale.calm)
            reader = Reader(on, scale.idle_readers, sessions, prefix="idle-")
            try:
                reader.wait_ready(scale.patience)
                time.sleep(scale.idle_seconds)
                after = machine.settled_rss_kib(on.gateway.pid, scale.calm)
                read = reader.quit()
            finally:
                reader.kill()
            if read["closed"]:
                out.notes.append(f"{read['closed']} streams ended while idle")
            out.numbers[name] = (after - before) / scale.idle_readers
    return out


def scrape(tools: Tools, who: Contender, scale: Scale) -> Outcome:
    """What a look at the metrics costs while many streams are open: all in one session, and each in its own."""
    out = Outcome()
    if who.metrics is None:
        return out
    for name, sessions in (("one_session", 1), ("own_sessions", scale.scrape_readers)):
        with stack(tools, who) as on:
            reader = Reader(on, scale.scrape_readers, sessions, prefix="scrape-")
            try:
                reader.wait_ready(scale.patience)
                machine.settled_rss_kib(on.gateway.pid, scale.calm)
                idle = _gateway_cpu(on, lambda: time.sleep(scale.scrapes * SCRAPE_PAUSE))
                times: list[float] = []
                busy = _gateway_cpu(on, lambda times=times: _scrape(on, who.metrics or "", scale.scrapes, times))
                read = reader.quit()
            finally:
                reader.kill()
            if read["closed"]:
                out.notes.append(f"{read['closed']} streams ended while idle")
            out.numbers[f"scrape_{name}_ms"] = statistics.median(times) * 1e3
            out.numbers[f"scrape_{name}_cpu_ms"] = max(0.0, busy - idle) / scale.scrapes * 1e3
    return out


def _gateway_cpu(on: Stack, act: Callable[[], None]) -> float:
    before = machine.cpu_seconds(on.gateway.pid)
    act()
    return machine.cpu_seconds(on.gateway.pid) - before


def _scrape(on: Stack, path: str, count: int, times: list[float]) -> None:
    """Fetch the metrics ``count`` times over one connection, as often as :data:`SCRAPE_PAUSE` allows."""
    connection = http.client.HTTPConnection("127.0.0.1", on.port, timeout=10)
    try:
        for _ in range(count):
            begin = time.perf_counter()
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise BenchError(f"{path} was answered {response.status}")
            times.append(time.perf_counter() - begin)
            time.sleep(max(0.0, SCRAPE_PAUSE - times[-1]))
    finally:
        connection.close()


CASES: dict[str, Callable[[Tools, Contender, Scale], Outcome]] = {
    "a": fanout,
    "b": many_sessions,
    "c": replay,
    "d": idle,
    "e": scrape,
}
