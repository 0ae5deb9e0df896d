"""One command for the whole comparison: ``python -m ops.bench [--quick] [--only a,b] [--out FILE]``."""

from __future__ import annotations

import argparse
import datetime
import resource
import sys
import time
from pathlib import Path

from . import machine, report
from .cases import CASES, QUICK, Outcome, Scale
from .rig import HERE, NAIVE, RINGMERE, BenchError, build_tools


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ops.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny numbers: does it all run, and lose nothing?")
    parser.add_argument("--only", default="", help="cases, comma separated: " + ", ".join(CASES))
    parser.add_argument("--gateways", default="Ringmere,naive", help="which to measure (default: both)")
    parser.add_argument("--out", type=Path, help="where the page goes (default: RESULTS.md after a full run)")
    options = parser.parse_args()
    options.cases = [name for name in options.only.split(",") if name] or list(CASES)
    unknown = [name for name in options.cases if name not in CASES]
    options.contenders = [each for each in (NAIVE, RINGMERE) if each.name in options.gateways.split(",")]
    if unknown or not options.contenders:
        parser.error(f"--only takes {', '.join(CASES)}; --gateways takes Ringmere, naive")
    if options.out is None and not options.quick and not options.only and len(options.contenders) == 2:
        options.out = HERE / "RESULTS.md"
    return options


def main() -> int:
    options = _options()
    scale = QUICK if options.quick else Scale()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    begin = time.monotonic()
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    results: dict[str, dict[str, Outcome]] = {}
    try:
        tools = build_tools()
        for case in options.cases:
            for contender in options.contenders:
                print(f"{time.monotonic() - begin:6.0f} s  case {case}: {contender.name}", file=sys.stderr, flush=True)
                results.setdefault(case, {})[contender.name] = CASES[case](tools, contender, scale)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    text = report.page(results, scale, machine.describe(tools.nats_server), date, time.monotonic() - begin)
    if options.out is not None:
        options.out.write_text(text)
    print("\n".join(report.table(results, scale)))
    faults = [
        f"case {case}: {note}" for case, found in results.items() for note in found.get("Ringmere", Outcome()).notes
    ]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
