"""A worker: one gateway in a process of its own, started by its parent."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import AsyncExitStack

import structlog

from ringmere.core.errors import StartRefused, StreamShapeDiffers, Unavailable
from ringmere.http.app import App
from ringmere.http.server import Listener, listen
from ringmere.log.options import ConnectOptions
from ringmere.process import Stop, calm_collector, loop_factory
from ringmere.serve import Seat, run_instance
from ringmere.settings.derive import connect_options
from ringmere.telemetry import Telemetry
from ringmere.telemetry.logs import configure
from ringmere.workers.control import Ask, Assignment, Line, Opened, Page, Ready, Refused, Scrape, Snapshot

SCRAPE_TIMEOUT = 5.0
"""Seconds that a scrape waits for the parent, who waits less for the other workers."""
REFUSED = 2
"""Exit code of a worker that must not serve; its parent has been told why."""


class SharedSeat(Seat):
    """The seat of one of several workers: it shares the address, and its parent speaks for all."""

    def __init__(self, assignment: Assignment, line: Line) -> None:
        self.worker = assignment.worker
        self.patient = assignment.patient
        self._assignment = assignment
        self._line = line
        self._telemetry: Telemetry | None = None
        self._pages: dict[int, asyncio.Future[tuple[bytes, str]]] = {}
        self._scrapes = 0

    async def open_door(self, app: App) -> Listener:
        """Join the other workers on the address."""
        return await listen(app, self._assignment.host, self._assignment.port, shared=True)

    def opened(self, telemetry: Telemetry, door: Listener, options: ConnectOptions) -> None:
        """Tell the parent."""
        self._telemetry = telemetry
        self._line.send(Opened())

    def ready(self) -> None:
        """Tell the parent."""
        self._line.send(Ready())

    async def metrics(self, telemetry: Telemetry) -> tuple[bytes, str]:
        """Get the metrics of all workers from the parent. Raises ``Unavailable`` when it does not answer."""
        self._scrapes += 1
        number = self._scrapes
        self._pages[number] = asyncio.get_running_loop().create_future()
        try:
            self._line.send(Scrape(number))
            async with asyncio.timeout(SCRAPE_TIMEOUT):
                return await self._pages[number]
        except TimeoutError as error:
            raise Unavailable("the parent process did not collect the metrics in time") from error
        finally:
            del self._pages[number]

    async def obey(self) -> None:
        """Answer the parent until it is gone."""
        while (message := await self._line.receive()) is not None:
            if isinstance(message, Ask):
                self.push(message.number)
            elif isinstance(message, Page) and message.number in self._pages:
                page = self._pages[message.number]
                if not page.done():
                    page.set_result((message.body, message.content_type))

    async def report(self) -> None:
        """Send a snapshot now and then: it is what stays when this process is killed, and shows that it lives."""
        while True:
            await asyncio.sleep(self._assignment.push_every)
            if not self._line.crowded:
                self.push()

    def push(self, number: int = 0) -> None:
        """Send a snapshot, in answer to a question or without one."""
        self._line.send(Snapshot(number, self._telemetry.snapshot() if self._telemetry else []))


async def work(end: socket.socket) -> int:
    """Do what the parent on the other side of ``end`` assigns; return the exit code."""
    line = await Line.open(end)
    assignment = await line.receive()
    if not isinstance(assignment, Assignment):
        return 1
    configure(assignment.settings.log_level)
    structlog.contextvars.bind_contextvars(worker=assignment.worker)
    stop = Stop()
    stop.listen()
    seat = SharedSeat(assignment, line)
    options = connect_options(assignment.settings, os.environ, assignment.nats_url)
    async with AsyncExitStack() as house:
        house.push_async_callback(line.close)
        house.callback(asyncio.create_task(_end_with(seat, stop)).cancel)
        house.callback(asyncio.create_task(seat.report()).cancel)
        try:
            await run_instance(assignment.settings, options, seat, stop, None)
        except StreamShapeDiffers as error:
            line.send(Refused(str(error), error.stream, error.differences))
            return REFUSED
        except StartRefused as error:
            line.send(Refused(str(error)))
            return REFUSED
        # The last counts: of the goodbyes, too.
        seat.push()
    return 0


async def _end_with(seat: SharedSeat, stop: Stop) -> None:
    """End at once when the parent is gone: nobody would restart this worker or merge its numbers."""
    await seat.obey()
    stop.asked.set()
    stop.now.set()


def main() -> None:
    """Run this process. Arguments: its number, for those who list processes, and the descriptor of its end."""
    calm_collector()
    factory, _ = loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        code = runner.run(work(socket.socket(fileno=int(sys.argv[2]))))
    sys.exit(code)


if __name__ == "__main__":
    main()
