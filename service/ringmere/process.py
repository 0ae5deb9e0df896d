"""What an instance asks of its operating system: signals, open files, an event loop."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable

import structlog

logger = structlog.get_logger("ringmere")


SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """What SIGTERM and SIGINT ask: the first an orderly end (``asked``), the second an immediate one (``now``).

    A third meets the interpreter's own handlers again and does not wait for anything. SIGHUP asks for something else:
    what an operator has changed is to be read again (``changed``).
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.now = asyncio.Event()
        self.changed = asyncio.Event()

    def listen(self) -> None:
        """Take the two signals over from the interpreter, for the running loop."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.heard)

    def listen_for_changes(self) -> None:
        """Take SIGHUP over, which would end the process."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.changed.set)

    def heard(self) -> None:
        """One more signal has come."""
        if not self.asked.is_set():
            self.asked.set()
            return
        self.now.set()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)


COLLECTOR = (2000, 10, 1000)
"""Thresholds of the garbage collector: young objects as usual, everything that lives about never."""


def calm_collector() -> None:
    """Keep the garbage collector from walking over every reader while the loop stands still.

    A reader is some ninety objects that live long and are freed by their counts. With the usual thresholds a full
    collection comes whenever their number has grown by a quarter, and stops all readers for 0.5 s at 9,000.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR)


def raise_file_limit() -> int:
    """Raise the number of files this process may open as far as it may, and return it."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:
            logger.warning("file_limit_kept", limit=soft, reason=str(error))
            return soft
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def loop_factory() -> tuple[Callable[[], asyncio.AbstractEventLoop], str]:
    """Return the faster event loop where there is one, and its name."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop, "asyncio"
    return uvloop.new_event_loop, "uvloop"
