"""A task that can be cancelled: each race has one right answer, and one event tells it (contract 10.3)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from ringmere.client import worker
from ringmere.client.backoff import Backoff
from ringmere.client.bus import Bus
from ringmere.client.errors import Refused, TaskCancelled, Unreachable
from ringmere.client.worker import Task
from ringmere.log.memory import MemoryLog
from ringmere.log.memory_store import MemoryStore
from support.doors import Gateway, running
from support.nats import eventually
from support.scripted import answer, scripted

FAST = Backoff(retry=0.0, first=0.01, widest=0.05)
WITHIN = 20.0
NO = {"sessionId": "s", "taskId": "t", "cancelled": False}
YES = {"sessionId": "s", "taskId": "t", "cancelled": True, "requestedAt": 7, "reason": "why"}


class Site:
    """Two instances on one store: the worker's, and the one that cancels come in at."""

    def __init__(self, near: Gateway, far: Gateway) -> None:
        self.near = near
        self.far = far
        self.bus = Bus(url(near), backoff=FAST)
        self.boss = Bus(url(far), backoff=FAST)

    async def told(self) -> list[tuple[str, Any]]:
        """Return type and data of all events of the session."""
        page = await self.near.log.page("s", 0, 1 << 20)
        envelopes = [json.loads(message.payload) for message in page.messages]
        return [(envelope["type"], envelope["data"]) for envelope in envelopes]

    async def watched(self) -> None:
        """Wait until the worker's instance holds its question."""
        await self.near.until(lambda: self.near.hub.cancels.waiters > 0, "the worker watches")


def url(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.port}"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    store = MemoryStore()
    async with running(log=MemoryLog(store)) as near, running(log=MemoryLog(store)) as far:
        made = Site(near, far)
        async with made.bus, made.boss:
            yield made


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def forever() -> None:
    await asyncio.Event().wait()


async def work(bus: Bus, body: Callable[[Task], Awaitable[object]], **options: Any) -> None:
    """Run task ``t`` of session ``s`` with a body, and see that it ends."""
    async with asyncio.timeout(WITHIN), bus.task("s", "t", **options) as task:
        await body(task)


async def test_a_task_that_nobody_cancels_runs_and_its_end_is_told(site: Site) -> None:
    async with site.bus.task("s", "t") as task:
        assert not task.cancelled
        task.result = {"pieces": 3}
    assert await site.told() == [("task_completed", {"taskId": "t", "result": {"pieces": 3}})]
    async with site.bus.task("s", "t2"):
        pass
    assert (await site.told())[1:] == [("task_completed", {"taskId": "t2"})]
    await site.near.until(lambda: site.near.hub.cancels.waiters == 0, "nobody watches a task that has ended")


async def test_can_2_a_task_that_is_cancelled_before_it_starts_never_runs(site: Site) -> None:
    flag = await site.boss.cancel("s", "t", "no longer wanted")
    ran = False
    with pytest.raises(TaskCancelled, match="no longer wanted"):
        async with site.bus.task("s", "t"):
            ran = True
    assert not ran
    told = ("task_cancelled", {"taskId": "t", "requestedAt": flag.requested_at, "reason": "no longer wanted"})
    assert await site.told() == [told]
    with pytest.raises(TaskCancelled):
        async with site.bus.task("s", "t"):
            ran = True
    assert not ran
    assert await site.told() == [told], "however often it is taken from the queue"


async def test_a_task_that_is_cancelled_at_its_start_does_not_run_to_its_end(site: Site) -> None:
    read = site.near.log.cancels.read

    async def then_cancel(session: str, task: str) -> Any:
        found = await read(session, task)
        site.near.log.cancels.read = read  # type: ignore[method-assign]
        await site.far.log.cancels.request(session, task, None)
        return found

    site.near.log.cancels.read = then_cancel  # type: ignore[method-assign]
    async with asyncio.timeout(WITHIN):
        with pytest.raises(TaskCancelled):
            async with site.bus.task("s", "t"):
                await forever()
    assert [kind for kind, _ in await site.told()] == ["task_cancelled"]


async def test_a_task_that_is_cancelled_while_it_runs_is_interrupted(site: Site) -> None:
    cleaned: list[bool] = []

    async def body(task: Task) -> None:
        task.on_cancel(lambda: cleaned.append(task.cancelled))
        await site.watched()
        await site.boss.cancel("s", "t", "enough")
        try:
            await forever()
        finally:
            cleaned.append(True)

    with pytest.raises(TaskCancelled) as error:
        await work(site.bus, body)
    assert (error.value.session, error.value.task, error.value.reason) == ("s", "t", "enough")
    assert cleaned == [True, True]
    assert [kind for kind, _ in await site.told()] == ["task_cancelled"]
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0, "the worker itself goes on"
    await asyncio.sleep(0)


async def test_a_cancel_after_the_end_changes_nothing(site: Site) -> None:
    async with site.bus.task("s", "t"):
        pass
    await site.boss.cancel("s", "t")
    assert [kind for kind, _ in await site.told()] == ["task_completed"]
    async with site.bus.task("s", "next"):
        pass
    assert [kind for kind, _ in await site.told()] == ["task_completed"] * 2


async def test_can_3_two_cancels_at_two_instances_end_a_task_once(site: Site) -> None:
    seen: list[object] = []

    async def body(task: Task) -> None:
        task.on_cancel(lambda: seen.append(task.cancellation))
        await site.watched()
        seen.extend(await asyncio.gather(site.boss.cancel("s", "t", "one"), site.bus.cancel("s", "t", "two")))
        await forever()

    with pytest.raises(TaskCancelled):
        await work(site.bus, body)
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert [kind for kind, _ in await site.told()] == ["task_cancelled"]


@pytest.mark.parametrize(("session", "task"), [("other", "t"), ("s", "unknown")], ids=["wrong session", "unknown task"])
async def test_a_cancel_of_another_task_leaves_this_one_alone(site: Site, session: str, task: str) -> None:
    async with site.bus.task("s", "t") as mine:
        await site.watched()
        flag = await site.boss.cancel(session, task)
        await site.near.until(lambda: site.near.log.store.flags.get(session, task) is not None, "it is set")
        assert await site.bus.cancelled(session, task) == flag
        assert not mine.cancelled
    assert [kind for kind, _ in await site.told()] == ["task_completed"]


async def test_cancelling_a_task_leaves_the_next_of_the_same_session_alone(site: Site) -> None:
    await site.boss.cancel("s", "t1")
    for name in ("t1", "t2"):
        try:
            async with site.bus.task("s", name):
                pass
        except TaskCancelled:
            assert name == "t1"
    assert [(kind, data["taskId"]) for kind, data in await site.told()] == [
        ("task_cancelled", "t1"),
        ("task_completed", "t2"),
    ]


async def test_a_body_that_takes_no_interruption_ends_by_itself(site: Site) -> None:
    again: list[str] = []

    async def body(task: Task) -> None:
        heard = asyncio.Event()
        task.on_cancel(heard.set)
        await site.boss.cancel("s", "t")
        await heard.wait()
        task.on_cancel(lambda: again.append("at once"))
        assert task.cancelled
        assert again == ["at once"]

    with pytest.raises(TaskCancelled):
        await work(site.bus, body, interrupt=False)
    assert again == ["at once"]
    assert [kind for kind, _ in await site.told()] == ["task_cancelled"]


async def test_a_body_that_swallows_its_interruption_is_cancelled_all_the_same(site: Site) -> None:
    async def body(task: Task) -> None:
        await site.boss.cancel("s", "t")
        with contextlib.suppress(asyncio.CancelledError):
            await forever()

    with pytest.raises(TaskCancelled):
        await work(site.bus, body)
    assert [kind for kind, _ in await site.told()] == ["task_cancelled"]


async def test_a_task_that_fails_is_told_by_the_kind_of_its_error_alone(site: Site) -> None:
    with pytest.raises(ValueError, match="secret"):
        async with site.bus.task("s", "t"):
            raise ValueError("a secret")
    assert await site.told() == [("task_failed", {"taskId": "t", "error": "ValueError"})]


async def test_an_error_while_it_is_cancelled_is_raised_and_the_task_is_cancelled(site: Site) -> None:
    async def body(task: Task) -> None:
        await site.boss.cancel("s", "t")
        try:
            await forever()
        finally:
            raise ValueError("while it cleans up")

    with pytest.raises(ValueError, match="cleans up"):
        await work(site.bus, body)
    assert [kind for kind, _ in await site.told()] == ["task_cancelled"]


async def test_can_1_a_worker_that_is_stopped_says_nothing_of_its_task(site: Site) -> None:
    async def work() -> None:
        async with site.bus.task("s", "t"):
            await forever()

    working = asyncio.create_task(work())
    await site.watched()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await site.told() == []
    assert await site.bus.cancelled("s", "t") is None


async def test_a_worker_that_is_stopped_while_its_task_is_cancelled_stops(site: Site) -> None:
    async def work() -> None:
        async with site.bus.task("s", "t"):
            try:
                await forever()
            except asyncio.CancelledError:
                asyncio.current_task().cancel()  # type: ignore[union-attr]
                raise

    working = asyncio.create_task(work())
    await site.watched()
    await site.boss.cancel("s", "t")
    async with asyncio.timeout(WITHIN):
        await asyncio.wait([working])
    assert working.cancelled()


async def test_the_first_outcome_that_is_stored_stays(site: Site) -> None:
    """Two workers that were given the same task are no reason for two ends of it."""
    async with site.bus.task("s", "t") as task:
        task.result = "first"
    async with site.boss.task("s", "t") as task:
        task.result = "second"
    assert await site.told() == [("task_completed", {"taskId": "t", "result": "first"})]


async def test_a_task_whose_cancel_cannot_be_looked_for_does_not_start() -> None:
    async with scripted(answer(401, {"code": "unauthorized"})) as server, Bus(server.url, backoff=FAST) as bus:
        with pytest.raises(Refused, match="unauthorized"):
            async with bus.task("s", "t"):
                raise AssertionError("it started")
    async with Bus("http://127.0.0.1:9", backoff=FAST, patience=0.05) as bus:
        with pytest.raises(Unreachable):
            async with bus.task("s", "t"):
                raise AssertionError("it started")


async def test_a_refusal_while_it_runs_is_shown_and_the_question_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TROUBLE_PAUSE", 0.2)
    script = (answer(200, NO), answer(403, {"code": "forbidden"}), answer(200, YES), answer(201, {"id": 1}))

    async def body(task: Task) -> None:
        await eventually(lambda: task.trouble is not None, "the refusal")
        assert "forbidden" in str(task.trouble)
        task.on_cancel(lambda: told.append(task.trouble))
        await forever()

    told: list[object] = []
    async with scripted(*script) as server, Bus(server.url, backoff=FAST) as bus:
        with pytest.raises(TaskCancelled):
            await work(bus, body)
        assert told == [None]
        assert server.asked[1].query == {"wait": "10"}
        assert server.asked[3].json["data"] == {"taskId": "t", "requestedAt": 7, "reason": "why"}
        assert server.asked[3].headers["idempotency-key"] == "task/t"


async def test_a_gateway_that_goes_away_is_not_asked_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SHORTEST", 0.2)
    script = (answer(200, NO), answer(200, NO), answer(200, YES), answer(201, {"id": 1}))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(WITHIN), scripted(*script) as server, Bus(server.url, backoff=FAST) as bus:
        began = loop.time()
        with pytest.raises(TaskCancelled):
            async with bus.task("s", "t"):
                await forever()
        assert loop.time() - began >= 0.2


@pytest.mark.parametrize("own", [None, ValueError("its own")], ids=["good", "bad"])
async def test_an_end_that_cannot_be_told_is_the_error_of_a_good_body_and_a_note_to_a_bad_one(
    own: ValueError | None,
) -> None:
    script = (answer(200, NO), hang, answer(422, {"code": "invalid_event"}))
    async with scripted(*script) as server, Bus(server.url, backoff=FAST) as bus:

        async def body(task: Task) -> None:
            await eventually(lambda: len(server.asked) == 2, "it watches")
            if own is not None:
                raise own

        with pytest.raises(Refused if own is None else ValueError) as error:
            await work(bus, body)
        assert own is None or "could not be published" in error.value.__notes__[0]
        assert len(server.asked) == 3


async def test_a_worker_that_is_stopped_stops_also_when_the_end_of_its_task_cannot_be_told() -> None:
    script = (answer(200, NO), answer(200, YES), answer(422, {"code": "invalid_event"}))
    async with scripted(*script) as server, Bus(server.url, backoff=FAST) as bus:
        tasks: list[Task] = []

        async def body(task: Task) -> None:
            tasks.append(task)
            await forever()

        working = asyncio.create_task(work(bus, body, interrupt=False))
        await eventually(lambda: bool(tasks) and tasks[0].cancelled, "the cancel")
        working.cancel()
        async with asyncio.timeout(WITHIN):
            await asyncio.wait([working])
        assert working.cancelled()
        assert len(server.asked) == 3
