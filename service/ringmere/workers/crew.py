"""The workers of one parent: kept running, asked for their numbers, drained."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Mapping

import msgspec
import structlog

from ringmere.core.errors import RingmereError
from ringmere.notify import without_manager
from ringmere.process import Stop
from ringmere.telemetry.merge import Family, counter, gauge, lasting, merge, render, snapshot
from ringmere.telemetry.process import ProcessCollector
from ringmere.workers.child import Child
from ringmere.workers.control import Assignment, Page, Scrape

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds before a worker that died is started again; doubled each time it does not last."""
LASTING = 60.0
"""Seconds after which a worker has lasted: the next pause is the first again."""
DRAIN_SLACK = 15.0
"""Seconds beyond the drain's own span until workers are told again to end."""
END_SLACK = 10.0
"""Seconds from a second signal to SIGKILL."""
ORDERLY = (0, -signal.SIGTERM, -signal.SIGINT)
"""Exit codes of a worker that was told to end: also of one that was not up yet, or nearly down."""

logger = structlog.get_logger("ringmere")


class WorkersFailed(RingmereError):
    """Workers did not end in order."""

    code = "workers_failed"


class Crew:
    """All workers. :meth:`start` them, :meth:`drain` them; :meth:`kill` makes sure that none stays."""

    def __init__(self, assignment: Assignment, environ: Mapping[str, str], watchdog: float) -> None:
        settings = assignment.settings
        self.opened = asyncio.Event()
        """A door is open."""
        self.ready = asyncio.Event()
        """Every worker has been ready."""
        self.restarts = 0
        self._environ = without_manager(environ)
        # While none can serve, the first one says so. The others follow when it serves, and open when they do.
        self._assignments = [
            msgspec.structs.replace(assignment, worker=each, patient=each > 0) for each in range(settings.workers)
        ]
        self._grace = settings.drain_grace
        self._watchdog = watchdog
        self._workers: dict[int, Child] = {}
        self._retired: list[Family] = []
        self._process = ProcessCollector()
        self._going = asyncio.Event()
        """The first worker has been ready, or all is over."""
        self._stopping = asyncio.Event()
        self._failed: list[int] = []
        self._refusal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._scrapes: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start all workers and keep them running."""
        self._tasks = {asyncio.create_task(self._keep(assignment)) for assignment in self._assignments}
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def trouble(self) -> None:
        """Wait for what makes serving impossible and raise it: ``StartRefused``."""
        await asyncio.shield(self._refusal)

    async def pass_on(self, changed: asyncio.Event) -> None:
        """Tell all workers each time that ``changed`` is set, for ever. One that starts later reads what there is."""
        while True:
            await changed.wait()
            changed.clear()
            for worker in self._workers.values():
                worker.reread()

    async def drain(self, stop: Stop) -> None:
        """Let all workers say goodbye; ``stop.now`` ends them at once. Raises :class:`WorkersFailed`."""
        self._stop()
        self._signal(signal.SIGTERM)
        ended = asyncio.create_task(self._all_ended())
        now = asyncio.create_task(stop.now.wait())
        await asyncio.wait({ended, now}, timeout=self._grace + DRAIN_SLACK, return_when=asyncio.FIRST_COMPLETED)
        now.cancel()
        if not ended.done():
            # Another one than before: two pending signals of the same number are one.
            self._signal(signal.SIGINT)
            await asyncio.wait({ended}, timeout=END_SLACK)
        await self.kill()
        if self._failed:
            raise WorkersFailed(f"not every worker ended in order: {sorted(self._failed)}")

    async def kill(self) -> None:
        """Kill what still runs and wait until it is gone."""
        self._stop()
        self._signal(signal.SIGKILL)
        await self._all_ended()

    def _stop(self) -> None:
        self._stopping.set()
        self._going.set()

    async def _all_ended(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def watch(self) -> None:
        """Kill a worker that has said nothing for the watchdog's interval, for ever; it is started again."""
        silent: set[Child] = set()
        while self._watchdog:
            await asyncio.sleep(self._watchdog / 4)
            limit = time.monotonic() - self._watchdog
            late = {each for each in self._workers.values() if each.opened.is_set() and each.heard < limit}
            # Twice in a row: when this process itself stood still, what they said is only read after the first look.
            for worker in late & silent:
                logger.error("worker_hung", worker=worker.number, silent=round(time.monotonic() - worker.heard, 1))
                worker.signal(signal.SIGKILL)
            silent = late

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Render the metrics of all workers, those that have ended included, and of this process."""
        workers = list(self._workers.values())
        await asyncio.gather(*(worker.snapshot() for worker in workers))
        # Read after the wait: a worker that ended meanwhile counts once, among the retired.
        living = [worker.families for worker in self._workers.values()]
        open_doors = sum(worker.opened.is_set() for worker in self._workers.values())
        return render(
            [
                *merge([self._retired, snapshot(self._process), *living]),
                gauge("ringmere_workers", "Worker processes whose door is open.", open_doors),
                counter("ringmere_worker_restarts", "Workers started again after they died.", self.restarts),
            ],
            accept,
        )

    async def readers(self, limit: int) -> tuple[bytes, str]:
        """Return the readers of all workers that are furthest behind, as JSON; each row has its worker's number."""
        workers = list(self._workers.values())
        answers = await asyncio.gather(*(worker.readers(limit) for worker in workers))
        rows = [{**row, "worker": each.number} for each, found in zip(workers, answers, strict=True) for row in found]
        rows.sort(key=lambda row: (row["backlogEvents"], row["backlogBytes"], row["ageSeconds"]), reverse=True)
        return msgspec.json.encode(rows[:limit]), "application/json"

    async def _keep(self, assignment: Assignment) -> None:
        pause = FIRST_PAUSE
        been_ready = False
        if assignment.patient:
            await self._going.wait()
        while not self._stopping.is_set():
            worker = self._workers[assignment.worker] = Child(assignment, self._scraped)
            started = time.monotonic()
            looks = {asyncio.create_task(self._once_open(worker)), asyncio.create_task(self._once_ready(worker))}
            try:
                code = await worker.run(self._environ)
            finally:
                for look in looks:
                    look.cancel()
            self._retire(worker)
            been_ready = been_ready or worker.ready.is_set()
            if self._stopping.is_set():
                if code not in ORDERLY:
                    logger.error("worker_failed", worker=worker.number, exit_code=code)
                    self._failed.append(worker.number)
                return
            # What others could start with has changed since, and may change again.
            others_serve = any(other.opened.is_set() for other in self._workers.values())
            if worker.refused is not None and not been_ready and not others_serve:
                raise worker.refused
            if time.monotonic() - started > LASTING:
                pause = FIRST_PAUSE
            reason = None if worker.refused is None else str(worker.refused)
            logger.error("worker_ended", worker=worker.number, exit_code=code, next_start=pause, reason=reason)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            pause = min(2 * pause, LONGEST_PAUSE)
            self.restarts += not self._stopping.is_set()
            served = any(other.opened.is_set() for other in self._workers.values())
            assignment = msgspec.structs.replace(assignment, patient=served)

    async def _once_open(self, worker: Child) -> None:
        await worker.opened.wait()
        self.opened.set()

    async def _once_ready(self, worker: Child) -> None:
        await worker.ready.wait()
        self._going.set()
        workers = self._workers.values()
        if len(workers) == len(self._assignments) and all(each.ready.is_set() for each in workers):
            self.ready.set()

    def _retire(self, worker: Child) -> None:
        """Keep the counts of a worker that has ended: no counter goes back."""
        del self._workers[worker.number]
        self._retired = merge([self._retired, lasting(worker.families)])

    def _scraped(self, worker: Child, asked: Scrape) -> None:
        async def answer() -> None:
            made = self.readers(asked.readers) if asked.readers else self.metrics(asked.accept)
            body, content_type = await made
            if worker.line is not None:
                worker.line.send(Page(asked.number, body, content_type))

        task = asyncio.create_task(answer())
        self._scrapes.add(task)
        task.add_done_callback(self._scrapes.discard)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._refusal.done():
            self._refusal.set_exception(error)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            worker.signal(number)
