"""One instance, wired from the bottom up, and its orderly end.

::

    embedded NATS (if asked for)
      └─ log          may come later: the doors open at once and say 503 until it is there
          └─ hub      tells telemetry, which watches
              └─ doors

The end runs the other way: no new streams, goodbyes, hub, doors, log, NATS. What differs between an instance
that is alone in its process and one of several workers is its *seat*.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog

from ringmere.core.errors import LogUnavailable, StartRefused
from ringmere.core.limits import Limits
from ringmere.embedded import EmbeddedServer, EmbeddedServerError
from ringmere.http.app import App, build_app
from ringmere.http.options import HttpOptions
from ringmere.http.server import Listener, listen
from ringmere.hub.hub import Hub
from ringmere.log.jetstream import open_log
from ringmere.log.late import LateLog
from ringmere.log.options import ConnectOptions
from ringmere.notify import Notifier
from ringmere.process import Stop, calm_collector, loop_factory, raise_file_limit
from ringmere.schemas import SchemaKeeper
from ringmere.settings import Loaded, Settings
from ringmere.settings.derive import coalesce_rules, connect_options, limits, log_settings, trusted_proxies
from ringmere.settings.load import split_listen
from ringmere.telemetry import Telemetry

FILE_RESERVE = 256
"""File descriptors kept for everything but readers: NATS, listeners, publishers, files."""
USUAL_EVENT_BYTES = 1024 * 1024 - 64 * 1024
"""Largest event until NATS has said what it takes: its own default less the headers' share."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5.0
"""Seconds between two tries to reach NATS at start."""
LOOK = 0.1
"""Seconds between two looks whether a connection that was lost right after the start is back."""

NOTE = '{"type":"note","data":"hello"}'

logger = structlog.get_logger("ringmere")


def run(loaded: Loaded, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Serve until a signal says otherwise. Raises ``StartRefused`` when the instance must not serve like this."""
    calm_collector()
    factory, loop_name = loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(loaded, environ, say, loop_name))


class Seat:
    """How an instance meets the world. ``worker`` is its number among several, None when it is alone."""

    worker: int | None = None
    patient: bool = False
    """Whether the door opens only when the log is there: others answer meanwhile."""

    async def open_door(self, app: App) -> Listener:
        """Begin to listen. Raises ``OSError`` when the address cannot be had."""
        raise NotImplementedError

    async def metrics(self, telemetry: Telemetry, accept: str) -> tuple[bytes, str]:
        """Render what a scrape of this instance gets, in the format that ``accept`` asks for."""
        return telemetry.render(accept)

    async def readers(self, hub: Hub, limit: int) -> list[dict[str, Any]]:
        """Return the readers that are furthest behind."""
        return hub.laggards(limit)

    def opened(self, hub: Hub, telemetry: Telemetry, door: Listener, options: ConnectOptions) -> None:
        """The door is open."""

    def ready(self) -> None:
        """``/readyz`` says 200 for the first time."""

    def stopping(self) -> None:
        """The drain begins."""


class Alone(Seat):
    """The only instance of its process: it speaks to people and to the service manager itself."""

    def __init__(self, loaded: Loaded, say: Callable[[str], None], loop_name: str, notifier: Notifier) -> None:
        self._loaded = loaded
        self._say = say
        self._loop_name = loop_name
        self._notifier = notifier
        self._url = ""

    async def open_door(self, app: App) -> Listener:
        """Open the address of the settings."""
        return await listen(app, *split_listen(self._loaded.settings.listen))

    def opened(self, hub: Hub, telemetry: Telemetry, door: Listener, options: ConnectOptions) -> None:
        """Print the address."""
        self._url = say_hello(self._say, door.addresses[0], options, self._loop_name, self._loaded)
        self._notifier.status(f"waiting for NATS at {options.addresses()}, door open on {self._url}")

    def ready(self) -> None:
        """Tell the service manager: the unit is started when it serves."""
        self._notifier.ready(f"serving on {self._url}")

    def stopping(self) -> None:
        """Tell the service manager."""
        self._notifier.stopping("saying goodbye to all streams")


async def serve(loaded: Loaded, environ: Mapping[str, str], say: Callable[[str], None], loop_name: str) -> None:
    """Wire the floors, wait for the end, take everything down again. ``say`` prints a line for people."""
    stop = Stop()
    async with AsyncExitStack() as house:
        stop.listen()
        notifier = await watched(environ, house)
        nats = await start_nats(loaded.settings, house)
        options = connect_options(loaded.settings, environ, nats.url if nats else None)
        await run_instance(loaded.settings, options, Alone(loaded, say, loop_name, notifier), stop, nats)
    logger.info("stopped")


async def run_instance(
    settings: Settings, options: ConnectOptions, seat: Seat, stop: Stop, nats: EmbeddedServer | None
) -> None:
    """Run one instance until ``stop`` asks for its end, and take it down in order.

    Raises ``StartRefused`` when it must not serve like this.
    """
    async with AsyncExitStack() as house:
        log = LateLog(
            settings.ring_size, settings.log_ttl, settings.max_event_bytes or USUAL_EVENT_BYTES, settings.shards
        )
        house.push_async_callback(log.close)
        telemetry = Telemetry(settings.traces)
        house.push_async_callback(telemetry.close)
        bounds = limits(settings, raise_file_limit() - FILE_RESERVE)
        schemas = SchemaKeeper(settings)
        if settings.schemas:
            stop.listen_for_changes()
            house.callback(asyncio.create_task(schemas.follow(stop.changed)).cancel)
        rules = coalesce_rules(settings)
        hub = Hub(log, bounds, telemetry.observer, require_session=settings.require_session, coalesce=rules)
        telemetry.watch(hub.stats)
        # Entered before the hub starts, so that it closes after the hub has.
        entrance = await house.enter_async_context(AsyncExitStack())

        async def open_door() -> None:
            door = await _open_door(settings, hub, telemetry, seat, schemas)
            entrance.push_async_callback(door.close)
            seat.opened(hub, telemetry, door, options)

        async def arrive() -> None:
            await _arrive(log, settings, options, bounds, hub)
            if seat.patient:
                await open_door()
            seat.ready()

        if not seat.patient:
            await open_door()
        await hub.start()
        house.push_async_callback(hub.close)
        await until_told(stop, arrive(), nats)
        seat.stopping()
        await _drain(hub, stop)


async def watched(environ: Mapping[str, str], house: AsyncExitStack) -> Notifier:
    """Return the way to the service manager, with pings that end with ``house``."""
    notifier = Notifier(environ)
    pings = asyncio.create_task(notifier.watch())
    house.callback(pings.cancel)
    return notifier


async def start_nats(settings: Settings, house: AsyncExitStack) -> EmbeddedServer | None:
    """Start the embedded NATS server if there is to be one; it ends with ``house``."""
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


async def _open_door(settings: Settings, hub: Hub, telemetry: Telemetry, seat: Seat, schemas: SchemaKeeper) -> Listener:
    def metrics(accept: str) -> Awaitable[tuple[bytes, str]]:
        return seat.metrics(telemetry, accept)

    def readers(limit: int) -> Awaitable[list[dict[str, Any]]]:
        return seat.readers(hub, limit)

    options = HttpOptions(
        stream_errors=settings.stream_errors,
        cors_origins=settings.cors_origin,
        metrics=metrics,
        readers=readers,
        schemas=lambda: schemas.current,
        version=version("ringmere"),
        worker=seat.worker,
        trusted_proxies=trusted_proxies(settings),
    )
    try:
        return await seat.open_door(build_app(hub, options))
    except OSError as error:
        raise cannot_listen(settings, error) from error


def cannot_listen(settings: Settings, error: OSError) -> StartRefused:
    """Return the refusal that names the address and what to do."""
    reason = error.strerror or str(error)
    return StartRefused(f"cannot listen on {settings.listen}: {reason}; choose another with --listen")


async def _arrive(log: LateLog, settings: Settings, options: ConnectOptions, bounds: Limits, hub: Hub) -> None:
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
            break
    while not hub.ready:  # noqa: ASYNC110 (a connection has no event of its own for this)
        await asyncio.sleep(LOOK)


async def until_told(stop: Stop, arrival: Coroutine[Any, Any, None], nats: EmbeddedServer | None) -> None:
    """Return when a signal has come; raise what makes serving impossible before that. Keeps ``nats`` running."""
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


def say_hello(
    say: Callable[[str], None], address: tuple[str, int], options: ConnectOptions, loop_name: str, loaded: Loaded
) -> str:
    """Print the address and, for a newcomer's embedded instance, what to do with it; return the URL."""
    host, port = address
    settings = loaded.settings
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}"
    nats = "embedded NATS" if settings.embedded else "NATS"
    workers = f", {settings.workers} workers" if settings.workers > 1 else ""
    say(f"listening on {url} (ringmere {version('ringmere')}, {loop_name}{workers}, {nats} at {options.addresses()})")
    for wrong, meant in loaded.misspelt.items():
        logger.warning("misspelt_variable", variable=wrong, did_you_mean=meant)
    if settings.embedded:
        local = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        say(f"open {local}/ in a browser, or try in two other terminals:")
        events = f"{local}/session/demo/events"
        say(f"  curl -N '{events}?from=start'")
        say(f"  curl {events} -H content-type:application/json -d '{NOTE}'")
    return url
