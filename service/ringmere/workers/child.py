"""One worker process as its parent sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ringmere.core.errors import StartRefused, StreamShapeDiffers
from ringmere.embedded import die_with
from ringmere.telemetry.merge import Family
from ringmere.workers.control import Ask, Assignment, Line, Message, Opened, Ready, Refused, Reread, Scrape, Snapshot

ANSWER_TIMEOUT = 1.0
"""Seconds that a scrape waits for a worker; then its last snapshot counts."""
MAX_ASKED = 8
"""Unanswered questions after which a worker is not asked again: it stands still."""


class Child:
    """One worker process, from its start to its end."""

    def __init__(self, assignment: Assignment, scrape: Callable[[Child, Scrape], None]) -> None:
        self.number = assignment.worker
        self.opened = asyncio.Event()
        self.ready = asyncio.Event()
        self.refused: StartRefused | None = None
        self.families: list[Family] = []
        """The last snapshot."""
        self.heard = time.monotonic()
        """When the process has last said anything."""
        self.process: asyncio.subprocess.Process | None = None
        self.line: Line | None = None
        self._assignment = assignment
        self._scrape = scrape
        self._early: signal.Signals | None = None
        self._asked = self._answered = 0
        self._answers: dict[int, asyncio.Future[list[dict[str, Any]]]] = {}

    async def run(self, environ: Mapping[str, str]) -> int:
        """Start the process and return its exit code when it has ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ringmere.workers.worker", str(self.number), str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL, env=dict(environ), pass_fds=(theirs.fileno(),),
                # It must not outlive this process even if it is stopped, or busy with a drain.
                preexec_fn=die_with(os.getpid(), signal.SIGKILL),
            )  # fmt: skip
        if self._early is not None:
            self.signal(self._early)
        self.line = await Line.open(ours)
        self.line.send(self._assignment)
        while (message := await self.line.receive()) is not None:
            self.heard = time.monotonic()
            self._take(message)
        await self.line.close()
        return await self.process.wait()

    async def snapshot(self) -> None:
        """Have the metrics of this moment in ``families``, or the last known ones when no answer comes in time."""
        await self._ask(0)

    async def readers(self, limit: int) -> list[dict[str, Any]]:
        """Return its readers that are furthest behind, none when no answer comes in time."""
        return await self._ask(limit)

    async def _ask(self, readers: int) -> list[dict[str, Any]]:
        if self.line is None or not self.running or self._asked - self._answered >= MAX_ASKED:
            return []
        self._asked += 1
        number = self._asked
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self.line.send(Ask(number, readers))
        done, _ = await asyncio.wait({answer}, timeout=ANSWER_TIMEOUT)
        self._answers.pop(number, None)
        return answer.result() if done else []

    def reread(self) -> None:
        """Have it read again what has changed; no signal, which would kill it before it listens."""
        if self.line is not None:
            self.line.send(Reread())

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self.process is not None and self.process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, as soon as there is one."""
        if self.process is None:
            self._early = number
        if self.process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def _take(self, message: Message) -> None:
        match message:
            case Opened():
                self.opened.set()
            case Ready():
                self.ready.set()
            case Snapshot(number, families, readers):
                if readers is None:
                    self.families = families
                self._answered = max(self._answered, number)
                if (answer := self._answers.pop(number, None)) is not None:
                    answer.set_result(readers or [])
            case Scrape():
                self._scrape(self, message)
            case Refused(text, stream, differences):
                self.refused = StreamShapeDiffers(stream, differences) if stream else StartRefused(text)
