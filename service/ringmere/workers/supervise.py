"""The parent of several workers: it holds the address and the embedded NATS, and passes signals on.

::

    embedded NATS (if asked for)
      └─ address      bound once; port 0 is chosen here
          └─ workers  each opens the address and connects to NATS itself

It serves nothing itself, so a stall of one worker is no stall of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

import structlog

from ringmere.log.options import ConnectOptions
from ringmere.notify import Notifier
from ringmere.process import Stop, loop_factory
from ringmere.serve import cannot_listen, say_hello, start_nats, until_told, watched
from ringmere.settings import Loaded, Settings
from ringmere.settings.derive import connect_options
from ringmere.settings.load import split_listen
from ringmere.workers.address import require_balancing, reserved
from ringmere.workers.control import Assignment
from ringmere.workers.crew import Crew

PUSH_EVERY = 2.0
"""Seconds between two snapshots that a worker sends by itself."""

logger = structlog.get_logger("ringmere")


def run(loaded: Loaded, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Serve with workers until a signal says otherwise. Raises ``StartRefused`` when they must not serve like this."""
    factory, loop_name = loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(supervise(loaded, environ, say, loop_name))


async def supervise(loaded: Loaded, environ: Mapping[str, str], say: Callable[[str], None], loop_name: str) -> None:
    """Start everything, wait for the end, and return when all workers are gone. ``say`` prints a line for people.

    Raises ``WorkersFailed`` when one of them did not end in order.
    """
    settings = loaded.settings
    require_balancing()
    stop = Stop()
    async with AsyncExitStack() as house:
        stop.listen()
        if settings.schemas:
            stop.listen_for_changes()
        notifier = await watched(environ, house)
        nats = await start_nats(settings, house)
        nats_url = nats.url if nats else None
        options = connect_options(settings, environ, nats_url)
        host, port = _hold(settings, house)
        push_every = min(PUSH_EVERY, notifier.watchdog / 4) if notifier.watchdog else PUSH_EVERY
        first = Assignment(0, settings, nats_url, split_listen(settings.listen)[0], port, False, push_every)
        crew = Crew(first, environ, notifier.watchdog)
        house.push_async_callback(crew.kill)
        crew.start()
        house.callback(asyncio.create_task(crew.watch()).cancel)
        house.callback(asyncio.create_task(crew.pass_on(stop.changed)).cancel)
        greet = _greet(crew, notifier, options, (host, port), loaded, say, loop_name)
        house.callback(asyncio.create_task(greet).cancel)
        await until_told(stop, crew.trouble(), nats)
        logger.info("draining", workers=settings.workers)
        notifier.stopping("saying goodbye to all streams")
        await crew.drain(stop)
    logger.info("stopped")


def _hold(settings: Settings, house: AsyncExitStack) -> tuple[str, int]:
    try:
        return house.enter_context(reserved(*split_listen(settings.listen)))
    except OSError as error:
        raise cannot_listen(settings, error) from error


async def _greet(
    crew: Crew,
    notifier: Notifier,
    options: ConnectOptions,
    address: tuple[str, int],
    loaded: Loaded,
    say: Callable[[str], None],
    loop_name: str,
) -> None:
    """Tell people when a door is open, and the service manager when all workers serve."""
    await crew.opened.wait()
    url = say_hello(say, address, options, loop_name, loaded)
    notifier.status(f"waiting for NATS at {options.addresses()}, door open on {url}")
    await crew.ready.wait()
    notifier.ready(f"serving on {url} with {loaded.settings.workers} workers")
