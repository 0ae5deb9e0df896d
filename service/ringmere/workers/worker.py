"""A worker: one gateway in a process of its own, started by its parent."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import structlog

from ringmere.core.errors import StartRefused, StreamShapeDiffers, Unavailable
from ringmere.http.app import App
from ringmere.http.server import Listener, listen
from ringmere.hub.hub import Hub
from ringmere.log.options import ConnectOptions
from ringmere.process import Stop, calm_collector, loop_factory
from ringmere.serve import Seat, run_instance
from ringmere.settings.derive import connect_options
from ringmere.telemetry import Telemetry
from ringmere.telemetry.logs import configure
from ringmere.workers.control import Ask, Assignment, Line, Opened, Page, Ready, Refused, Reread, Scrape, Snapshot

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
        self._hub: Hub | None = None
        self._pages: dict[int, asyncio.Future[tuple[bytes, str]]] = {}
        self._scrapes = 0

    async def open_door(self, app: App) -> Listener:
        """Join the other workers on the address."""
        return await listen(app, self._assignment.host, self._assignment.port, shared=True)

    def opened(self, hub: Hub, telemetry: Telemetry, door: Listener, options: ConnectOptions) -> None:
        """Tell the parent."""
        self._hub, self._telemetry = hub, telemetry
        self._line.send(Opened())

    def ready(self) -> None:
        """Tell the parent."""
        self._line.send(Ready())

    async def metrics(self, telemetry: Telemetry, accept: str) -> tuple[bytes, str]:
        """Get the metrics of all workers from the parent. Raises ``Unavailable`` when it does not answer."""
        return await self._collected(accept, 0)

    async def readers(self, hub: Hub, limit: int) -> list[dict[str, Any]]:
        """Get the laggards of all workers from the parent. Raises ``Unavailable`` when it does not answer."""
        body, _ = await self._collected("", limit)
        return msgspec.json.decode(body, type=list[dict[str, Any]])

    async def _collected(self, accept: str, readers: int) -> tuple[bytes, str]:
        self._scrapes += 1
        number = self._scrapes
        self._pages[number] = asyncio.get_running_loop().create_future()
        try:
            self._line.send(Scrape(number, accept, readers))
            async with asyncio.timeout(SCRAPE_TIMEOUT):
                return await self._pages[number]
        except TimeoutError as error:
            raise Unavailable("the parent process did not ask all workers in time") from error
        finally:
            del self._pages[number]

    async def obey(self, stop: Stop) -> None:
        """Answer the parent until it is gone; ``stop`` also takes what it has to say about changes."""
        while (message := await self._line.receive()) is not None:
            if isinstance(message, Ask):
                self._answer(message)
            elif isinstance(message, Reread):
                stop.changed.set()
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

    def _answer(self, question: Ask) -> None:
        if question.readers and self._hub is not None:
            self._line.send(Snapshot(question.number, readers=self._hub.laggards(question.readers)))
        else:
            self.push(question.number)

    def push(self, number: int = 0) -> None:
        """Send a snapshot of the metrics, in answer to a question or without one."""
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
    await seat.obey(stop)
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
