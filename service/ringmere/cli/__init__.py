"""The ``ringmere`` command.

Every command ends with 0 (done), 1 (it did not work out) or 2 (it cannot work like this: a wrong
argument, a refused start), and says why in one line on stderr.
"""

from __future__ import annotations

import sys

from ringmere.cli.app import run

__all__ = ["main", "run"]


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sys.exit(run(sys.argv[1:]))
