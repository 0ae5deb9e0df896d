"""The commands in one list, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from ringmere.cli.bench import bench
from ringmere.cli.control import cancel
from ringmere.cli.doctor import register as add_doctor
from ringmere.cli.epoch import app as epoch
from ringmere.cli.publish import publish
from ringmere.cli.readers import readers
from ringmere.cli.serve import register as add_serve
from ringmere.cli.sessions import app as sessions
from ringmere.cli.settings import settings
from ringmere.cli.snapshot import app as snapshot
from ringmere.cli.tail import tail
from ringmere.cli.verify import verify
from ringmere.core.errors import InvalidInput, RingmereError, StartRefused, StreamShapeDiffers
from ringmere.settings import SettingError

OK, FAILED, USAGE = 0, 1, 2
INTERRUPTED = 130
"""What the library makes of a Ctrl-C that no command took."""
SHAPE_HINT = "start with the settings it was made with, or let --reconcile change what can be changed (never --shards)"
TRACEBACK = "RINGMERE_TRACEBACK"
"""Variable that lets an error nobody expected through, for those who look for its cause."""

app = typer.Typer(
    name="ringmere",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Durable event streaming on NATS JetStream: publish, follow, resume exactly.",
)
add_serve(app)
app.command()(publish)
app.command()(tail)
app.command()(cancel)
app.command()(verify)
app.command()(bench)
add_doctor(app)
app.add_typer(sessions, name="sessions")
app.add_typer(snapshot, name="snapshot")
app.command()(readers)
app.add_typer(epoch, name="epoch")
app.command()(settings)


@app.command()
def version(as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> None:
    """Print the version."""
    text = installed_version("ringmere")
    typer.echo(f'{{"version":"{text}"}}' if as_json else f"ringmere {text}")


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        result: Any = app(list(arguments), prog_name="ringmere", standalone_mode=False)
        if result == INTERRUPTED:
            return _fail("interrupted", FAILED)
        return result if isinstance(result, int) else OK
    except SystemExit:
        # A closed pipe (``ringmere tail … | head``), the one reason that leaves the library like this: the end.
        return OK
    except TyperException as error:
        return _fail(_message(error), USAGE)
    except StreamShapeDiffers as error:
        return _fail(f"{error}; {SHAPE_HINT}", USAGE)
    except (SettingError, StartRefused, InvalidInput) as error:
        return _fail(str(error), USAGE)
    except (RingmereError, OSError) as error:
        return _fail(str(error) or type(error).__name__, FAILED)
    except (KeyboardInterrupt, typer.Abort, asyncio.CancelledError):
        return _fail("interrupted", FAILED)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        return _fail(f"unexpected {type(error).__name__}: {error} ({TRACEBACK}=1 shows where)", FAILED)


def _message(error: TyperException) -> str:
    describe = getattr(error, "format_message", None)
    return str(describe() if describe is not None else error)


def _fail(message: str, code: int) -> int:
    """Print one line, whatever line breaks the message has; nothing where the help has said it all."""
    if message:
        print(f"ringmere: {' '.join(message.split())}", file=sys.stderr)
    return code
