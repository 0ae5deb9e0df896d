"""The ``ringmere`` command.

Every command ends with 0 (done), 1 (it did not work out) or 2 (it cannot work like this: a wrong
argument, a refused start), and says why in one line on stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main", "run"]


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    # A health check runs every few seconds: it does not wait for what the other commands need.
    from ringmere.cli import health

    if health.is_health_check(arguments):
        return health.main(arguments[1:], os.environ)
    from ringmere.cli.app import run as run_app

    return run_app(arguments)
