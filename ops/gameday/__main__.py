"""``python -m ops.gameday``: put in all faults, or some, and write the record."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from ops.gameday.drills import DRILLS, Drill
from ops.gameday.first_day import first_day
from ops.gameday.record import FIRST_DAY, circumstances, write
from ops.gameday.round import hold
from ops.gameday.watch import GamedayError
from ops.prometheus.process import PrometheusError

from ringmere.core.errors import RingmereError

KEPT = Path(".data") / "gameday"
"""Where what was found is kept, a file for each fault: one that is put in again replaces only its own part."""


def main() -> int:
    """Run the command line; return 0 when all was as it should be."""
    parser = argparse.ArgumentParser(prog="python -m ops.gameday", description=__doc__)
    names = [drill.name for drill in DRILLS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--factor", type=float, default=20.0, help="how much shorter the alerts' times are (20)")
    parser.add_argument("--first-day", action="store_true", help="follow the README in a fresh clone, and nothing else")
    parser.add_argument("--record", action="store_true", help="only write the record again from what is kept")
    options = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    wrong = []
    if options.first_day:
        wrong += _keep(FIRST_DAY, first_day)
    elif not options.record:
        for drill in DRILLS:
            if not options.only or drill.name in options.only:
                print(f"{drill.name}: {drill.title}", flush=True)
                wrong += _keep(drill.name, partial(_hold, drill, options.factor))
    write(KEPT)
    return 1 if wrong else 0


def _hold(drill: Drill, factor: float) -> dict[str, Any]:
    return asyncio.run(hold(drill, factor))


def _keep(name: str, make: Callable[[], dict[str, Any]]) -> list[str]:
    """Keep what ``make`` finds unless something was wrong; return what was."""
    began = time.monotonic()
    made = {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "load": f"{os.getloadavg()[0]:.1f}"}
    try:
        found = {**made, "versions": circumstances(), **make()}
    except (GamedayError, PrometheusError, RingmereError, aiohttp.ClientError, OSError) as error:
        print(f"  failed: {error}", flush=True)
        return [str(error)]
    wrong = found.pop("trouble", [])
    print(f"  {time.monotonic() - began:.0f} s; {'; '.join(wrong) or 'as it should be'}", flush=True)
    for change in found.get("changes", []):
        print(f"    {change[0]:6.1f} s  {change[1]} {change[2]}", flush=True)
    # The record is of what is right; the exit code and the lines above tell of the rest.
    if not wrong:
        (KEPT / f"{name}.json").write_text(json.dumps(found, indent=1))
    return list(wrong)


if __name__ == "__main__":
    sys.exit(main())
