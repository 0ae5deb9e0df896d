"""``ringmere serve``: one instance of the service, until a signal ends it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import typer

from ringmere.cli.flags import with_settings
from ringmere.settings import load


def register(app: typer.Typer) -> None:
    """Add the command, with a flag for every setting, to ``app``."""
    app.command("serve")(with_settings(serve))


def serve(flags: Mapping[str, Any]) -> None:
    """Serve sessions over HTTP until SIGTERM or Ctrl-C.

    Each flag can also be given as a variable, see `ringmere settings`. SIGTERM says goodbye to all
    streams first; a second one ends at once.
    """
    loaded = load(flags, os.environ)
    # The service and its libraries: nothing that the other commands need to wait for.
    from ringmere.telemetry.logs import configure

    configure(loaded.settings.log_level)
    if loaded.settings.workers > 1:
        from ringmere.workers.supervise import run as run_workers

        run_workers(loaded, os.environ, _say)
    else:
        from ringmere.serve import run

        run(loaded, os.environ, _say)


def _say(line: str) -> None:
    print(line, flush=True)
