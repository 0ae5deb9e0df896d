"""One instance, wired from the bottom up, and its orderly end.

::

    embedded NATS (if asked for)
      └─ log          may come later: the doors open at once and say 503 until it is there
          └─ hub      tells telemetry, which watches
              └─ doors

The end runs the other way: no new streams, goodbyes, hub, doors, log, NATS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog

from ringmere.core.errors import LogUnavailable, StartRefused
from ringmere.core.limits import Limits
from ringmere.embedded import EmbeddedServer, EmbeddedServerError
from ringmere.http.app import build_app
from ringmere.http.options import HttpOptions
from ringmere.http.server import Listener, listen
from ringmere.hub.hub import Hub
from ringmere.log.jetstream import open_log
from ringmere.log.late import LateLog
from ringmere.log.options import ConnectOptions
from ringmere.process import Stop, calm_collector, loop_factory, raise_file_limit
from ringmere.settings import Loaded, Settings
from ringmere.settings.derive import coalesce_rules, connect_options, limits, log_settings
from ringmere.settings.load import split_listen
from ringmere.telemetry import Telemetry

FILE_RESERVE = 256
"""File descriptors kept for everything but readers: NATS, listeners, publishers, files."""
USUAL_EVENT_BYTES = 1024 * 1024 - 64 * 1024
"""Largest event until NATS has said what it takes: its own default less the headers' share."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5.0
"""Seconds between two tries to reach NATS at start."""

NOTE = '{"type":"note","data":"hello"}'

logger = structlog.get_logger("ringmere")


def run(loaded: Loaded, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Serve until a signal says otherwise. Raises ``StartRefused`` when the instance must not serve like this."""
    calm_collector()
    factory, loop_name = loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(loaded, environ, say, loop_name))


async def serve(loaded: Loaded, environ: Mapping[str, str], say: Callable[[str], None], loop_name: str) -> None:
    """Wire the floors, wait for the end, take everything down again. ``say`` prints a line for people."""
    settings = loaded.settings
    stop = Stop()
    async with AsyncExitStack() as house:
        stop.listen()
        nats = await _start_nats(settings, house)
        options = connect_options(settings, environ, nats.url if nats else None)
        log = LateLog(settings.ring_size, settings.log_ttl, settings.max_event_bytes or USUAL_EVENT_BYTES)
        house.push_async_callback(log.close)
        telemetry = Telemetry()
        bounds = limits(settings, raise_file_limit() - FILE_RESERVE)
        rules = coalesce_rules(settings)
        hub = Hub(log, bounds, telemetry.observer, require_session=settings.require_session, coalesce=rules)
        telemetry.watch(hub.stats)
        door = await _open_door(settings, hub, telemetry)
        house.push_async_callback(door.close)
        await hub.start()
        house.push_async_callback(hub.close)
        _say_hello(say, door, options, loop_name, loaded)
        await _until_told(stop, _arrive(log, settings, options, bounds), nats)
        await _drain(hub, stop)
    logger.info("stopped")


async def _start_nats(settings: Settings, house: AsyncExitStack) -> EmbeddedServer | None:
    if not settings.embedded:
        return None
    nats = _own_nats(settings)
    house.push_async_callback(nats.stop)
    try:
        await nats.start()
    except (EmbeddedServerError, OSError) as error:
        raise StartRefused(f"the embedded NATS server did not start: {error}") from error
    return nats


def _own_nats(settings: Settings) -> EmbeddedServer:
    # The child keeps the directory even if this process should change its own.
    return EmbeddedServer(Path(settings.data_dir).absolute())


async def _open_door(settings: Settings, hub: Hub, telemetry: Telemetry) -> Listener:
    options = HttpOptions(
        stream_errors=settings.stream_errors,
        cors_origins=settings.cors_origin,
        metrics=telemetry.render,
        version=version("ringmere"),
    )
    host, port = split_listen(settings.listen)
    try:
        return await listen(build_app(hub, options), host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartRefused(f"cannot listen on {settings.listen}: {reason}; choose another with --listen") from error


async def _arrive(log: LateLog, settings: Settings, options: ConnectOptions, bounds: Limits) -> None:
    """Open the log as soon as NATS is there. Raises ``StartRefused`` when waiting would not help."""
    pause = FIRST_PAUSE
    while True:
        try:
            opened = await open_log(options, log_settings(settings), bounds)
        except LogUnavailable as error:
            logger.warning("waiting_for_nats", servers=options.addresses(), reason=str(error), next_try=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            log.arrive(opened)
            logger.info("ready", servers=options.addresses(), tail=opened.tail)
            return


async def _until_told(stop: Stop, arrival: Coroutine[Any, Any, None], nats: EmbeddedServer | None) -> None:
    """Return when a signal has come; raise what makes serving impossible before that."""
    tasks: set[asyncio.Task[Any]] = {asyncio.create_task(stop.asked.wait()), asyncio.create_task(arrival)}
    if nats is not None:
        tasks.add(asyncio.create_task(_keep_running(nats)))
    pending = set(tasks)
    try:
        while not stop.asked.is_set():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_running(nats: EmbeddedServer) -> None:
    """Start the embedded server again when it ends by itself; readers get what they missed from the log."""
    while nats.process is not None:
        code = await nats.process.wait()
        logger.error("embedded_nats_ended", exit_code=code, log=str(nats.log_file))
        await asyncio.sleep(FIRST_PAUSE)
        try:
            await nats.start()
        except (EmbeddedServerError, OSError) as error:
            raise StartRefused(f"the embedded NATS server did not start again: {error}") from error


async def _drain(hub: Hub, stop: Stop) -> None:
    """Say goodbye to all streams, unless a second signal wants the end at once."""
    logger.info("draining")
    drained = asyncio.create_task(hub.drain())
    now = asyncio.create_task(stop.now.wait())
    await asyncio.wait({drained, now}, return_when=asyncio.FIRST_COMPLETED)
    for task in (drained, now):
        task.cancel()
    await asyncio.wait({drained, now})


def _say_hello(
    say: Callable[[str], None], door: Listener, options: ConnectOptions, loop_name: str, loaded: Loaded
) -> None:
    """Print the address and, for a newcomer's embedded instance, what to do with it."""
    host, port = door.addresses[0]
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}"
    nats = "embedded NATS" if loaded.settings.embedded else "NATS"
    say(f"listening on {url} (ringmere {version('ringmere')}, {loop_name}, {nats} at {options.addresses()})")
    for wrong, meant in loaded.misspelt.items():
        logger.warning("misspelt_variable", variable=wrong, did_you_mean=meant)
    if loaded.settings.embedded:
        local = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        say(f"open {local}/ in a browser, or try in two other terminals:")
        events = f"{local}/session/demo/events"
        say(f"  curl -N '{events}?from=start'")
        say(f"  curl {events} -H content-type:application/json -d '{NOTE}'")
