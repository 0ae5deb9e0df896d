"""The results as a page: what was measured, the numbers with their ratios, and where the CPU time went."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .cases import P99_LIMIT_MS, QUICK, RATE_KEPT, Outcome, Scale
from .rig import RING_SIZE

Results = Mapping[str, Mapping[str, Outcome]]


@dataclass(frozen=True)
class Row:
    """One line of the table. ``met(ringmere, naive)`` judges the target; ``more``: a higher number is better."""

    case: str
    key: str
    label: str
    show: Callable[[float], str]
    more: bool
    target: str = ""
    met: Callable[[float, float], bool] | None = None
    alone: bool = False
    """Whether there is nothing to compare it with."""


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _decimal(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def rows(scale: Scale) -> tuple[Row, ...]:
    """Return the table's lines for a scale."""
    fan = f"1 session × {scale.fanout_readers:,} readers"
    slow = f"same at {scale.slow_rate:.0f} events/s"
    many = f"{scale.sessions:,} sessions × 1 reader"
    fast = f"same at {scale.delay_rate:,.0f} events/s"
    again = f"{scale.replay_readers:,} readers replay {scale.replay_events:,} events, cold"
    calm = "KiB per idle stream"
    each = scale.idle_readers
    return (
        Row("a", "deliveries_per_s", f"{fan}, flat out: deliveries/s", _count, True, "≥ 50×", _times(50)),
        Row("a", "cpu_s_per_million", f"{slow}: gateway CPU s per million deliveries", _decimal, False),
        Row("a", "slow_p99_ms", f"{slow}: p99 delay, ms", _decimal, False),
        Row("b", "max_events_per_s", f"{many}: highest rate kept, events/s", _count, True, "≥ 4×", _times(4)),
        Row("b", "p50_ms", f"{fast}: p50 delay, ms", _decimal, False),
        Row("b", "p99_ms", f"{fast}: p99 delay, ms", _decimal, False, "≤ 10 ms", _at_most(10)),
        Row("b", "server_us", f"{fast}: CPU of nats-server, µs per event", _decimal, False),
        Row("b", "server_us_without_heads", f"{fast}, without head streams: the same", _decimal, False),
        Row("c", "seconds", f"{again}: s until all have all", _decimal, False, "≥ 50×", _times(1 / 50, less=True)),
        Row(
            "d",
            "own_sessions_kib",
            f"{calm}, {each:,} sessions × 1 reader",
            _decimal,
            False,
            "≤ 16 KiB",
            _at_most(16),
        ),
        Row(
            "d",
            "one_session_kib",
            f"{calm}, 1 session × {each:,} readers",
            _decimal,
            False,
            "≤ 16 KiB",
            _at_most(16),
        ),
        *_scrape_rows(scale.scrape_readers),
    )


def _scrape_rows(readers: int) -> tuple[Row, ...]:
    streams = {"own_sessions": f"{readers:,} sessions × 1 reader", "one_session": f"1 session × {readers:,} readers"}
    return tuple(
        row
        for key, where in streams.items()
        for row in (
            Row("e", f"scrape_{key}_ms", f"scrape, {where}: median, ms", _decimal, False, alone=True),
            Row("e", f"scrape_{key}_cpu_ms", "same: gateway CPU, ms", _decimal, False, "≤ 10 ms", _at_most(10), True),
        )
    )


def _times(factor: float, *, less: bool = False) -> Callable[[float, float], bool]:
    if less:
        return lambda ours, naive: ours <= factor * naive
    return lambda ours, naive: ours >= factor * naive


def _at_most(limit: float) -> Callable[[float, float], bool]:
    return lambda ours, naive: ours <= limit


def table(results: Results, scale: Scale) -> list[str]:
    """Return the comparison; a ratio above 1 is in Ringmere's favour on every line."""
    lines = ["| measurement | Ringmere | naive | ratio | target |", "| --- | ---: | ---: | ---: | --- |"]
    for row in rows(scale):
        found = {
            name: out.numbers[row.key] for name, out in results.get(row.case, {}).items() if row.key in out.numbers
        }
        if not found:
            continue
        ours, naive = found.get("Ringmere"), found.get("naive")
        ratio, verdict = "", "" if scale is QUICK else row.target
        if ours is not None and naive is not None:
            above, below = (ours, naive) if row.more else (naive, ours)
            ratio = f"{above / below:,.1f}×" if below else "–"
        if row.met and verdict and ours is not None and (naive is not None or row.alone):
            verdict += ": met" if row.met(ours, naive or 0.0) else ": **missed**"
        shown = [row.show(value) if value is not None else "" for value in (ours, naive)]
        lines.append(f"| {row.label} | {shown[0]} | {shown[1]} | {ratio} | {verdict} |")
    return lines


def _runs(results: Results) -> list[str]:
    """Return a line for each run: the loss counted in it and the CPU time of every process."""
    lines = [
        "| case | gateway | run | events/s in | delivered | lost | twice | out of order | p50 / p99 / max ms | s "
        "| CPU s: gateway | nats-server | publisher | reader | others |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case, contenders in results.items():
        for name, out in contenders.items():
            for run in out.runs:
                read, rate = run.read, run.published.get("rate")
                delays = f"{read['p50_ms']:.1f} / {read['p99_ms']:.1f} / {read['max_ms']:.1f}" if rate else ""
                cpu = " | ".join(
                    f"{run.cpu[part]:.2f}" if part in run.cpu else ""
                    for part in ("gateway", "nats-server", "publisher", "reader", "others")
                )
                sent = f"{rate:,.0f}" if rate else ""
                lines.append(
                    f"| {case} | {name} | {run.label} | {sent} | {read['events']:,} | {read['lost']} "
                    f"| {read['duplicated']} | {read['reordered']} | {delays} | {run.seconds:.1f} | {cpu} |"
                )
    return lines


def _notes(results: Results) -> list[str]:
    lines = []
    for case, contenders in results.items():
        for name, out in contenders.items():
            lines += [f"- {case}, {name}: {note}" for note in out.notes]
            if out.numbers.get("kept_rate") == 0:
                lines.append(
                    f"- {case}, {name}: the fixed rate is above what it can keep; its delays are those of a queue."
                )
    return lines or ["- none: in every run each event reached each reader once and in order."]


def _share_of_others(results: Results) -> float:
    """Return the share of the machine's CPU time that processes outside the bench used during its runs."""
    runs = [run for found in results.values() for out in found.values() for run in out.runs if "others" in run.cpu]
    seconds = sum(run.seconds for run in runs) * (os.cpu_count() or 1)
    return sum(run.cpu["others"] for run in runs) / seconds if seconds else 0.0


def page(results: Results, scale: Scale, described: Mapping[str, str], date: str, seconds: float) -> str:
    """Return RESULTS.md."""
    return _PAGE.format(
        date=date,
        minutes=f"{seconds / 60:.0f}",
        facts="\n".join(f"- {name}: {text}" for name, text in described.items()),
        table="\n".join(table(results, scale)),
        ring=f"{RING_SIZE:,}",
        window=f"{scale.fanout_window:,}",
        step=f"{scale.step_seconds:g}",
        kept=f"{RATE_KEPT:.0%}",
        limit=f"{P99_LIMIT_MS:g}",
        growth=f"{scale.growth:g}",
        bisections=scale.bisections,
        others=f"{_share_of_others(results):.0%}",
        notes="\n".join(_notes(results)),
        runs="\n".join(_runs(results)),
    )


_PAGE = """# Bench results

Written by `python -m ops.bench` on {date}; the run took {minutes} minutes. Every number belongs to this
machine, where gateway, NATS server, publisher and reader share the cores; the ratio is what carries over.
Processes outside the bench used {others} of the CPU time meanwhile: above a few percent, highest rates are too low
and delays too long.

{facts}

## Ringmere and the naive gateway

{table}

A ratio above 1 is in Ringmere's favour, whichever way the number points.

The naive gateway (`naive.py`) is aiohttp on uvloop with one nats-py ordered consumer for each SSE connection and
one write for each event. Both ran in turn, each on a nats-server of the same binary and settings with an empty
file store, with rings of {ring} events. Events have 200 bytes and are published straight to JetStream over one
connection, pipelined and acknowledged. The readers are one C program. The server is told to be patient
(`max_pending` 2 GB, `write_deadline` 60 s): with its defaults it cuts the naive gateway off, which then loses
events.

How each number comes about:

- *flat out*: the publisher keeps the session at most {window} events ahead of its slowest reader. Deliveries over
  the time from the first to the last of them.
- *highest rate kept*: steps of {step} s, each on a fresh stack. A step is kept when at least {kept} of the rate was
  published, every event reached its reader once and in order, and the p99 delay is ≤ {limit} ms. The rate rises by
  the factor {growth} until it is not kept twice in a row; then the last interval is halved {bisections} times.
- *delay*: from the publisher's write to the reader's read, by one clock; the reader looks every 0.2 ms. A publisher
  that is held up for more than 5 ms stamps the time that was due, so waiting is not hidden.
- *replay*: the gateway is started again, then all readers connect with `Last-Event-ID: 0`. From the first connect
  to the last event; the median of the runs (one run when it takes longer than 10 s).
- *idle*: resident memory of the gateway before and after, both settled, over the number of streams.
- *scrape*: `GET /metrics` over a kept connection, 20 a second, while the streams are open and silent; the CPU time is
  what the gateway used beyond that of as long a time without scrapes. It holds the event loop for as long.

## Loss and faults

Counted in every run, for each reader, from a counter in the data of each event.

{notes}

## Runs

CPU seconds are those between the first publish and the last delivery; the reader's also hold its connecting.
*Others* is what the rest of the machine used meanwhile.

{runs}
"""
