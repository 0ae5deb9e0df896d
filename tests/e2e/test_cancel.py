"""Cancel across processes: a worker at one instance, the cancel at another, NATS nodes and gateways that die."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ringmere.client.backoff import Backoff
from ringmere.client.bus import Bus
from ringmere.client.errors import TaskCancelled
from ringmere.client.worker import Task
from ringmere.embedded import EmbeddedServer
from support.cluster import WITHIN, LinkedCluster
from support.command import ringmere
from support.foreign import follow, missing
from support.gateway import GatewayProcess, clean_env, gateway
from support.nats import eventually
from support.talk import get, metrics, open_stream, total

FAST = Backoff(retry=0.0, first=0.05, widest=0.2)
README = Path(__file__).resolve().parents[2] / "README.md"
TASK = "/session/s/tasks/t/cancel"


@pytest.fixture
async def pair(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[list[GatewayProcess]]:
    """Two instances on one NATS."""
    flags = ("--retry-ms", "100", "--cancel-ttl", "1h")
    async with (
        gateway(tmp_path / "a", *flags, nats_url=nats_server.url) as one,
        gateway(tmp_path / "b", *flags, nats_url=nats_server.url) as two,
    ):
        yield [one, two]


async def work(bus: Bus, body: Callable[[Task], Awaitable[object]] | None = None, name: str = "t") -> str:
    """Run a task of session ``s``, without a body in vain until it is cancelled, and say how it ended."""
    try:
        async with asyncio.timeout(WITHIN), bus.task("s", name) as task:
            await (body(task) if body is not None else asyncio.Event().wait())
    except TaskCancelled as error:
        return f"cancelled: {error.reason}"
    return "completed"


async def watched(at: GatewayProcess) -> None:
    """Wait until the worker's instance is asked to hold its answer."""

    async def asks() -> bool:
        return bool((await get(at.url, "/healthz")).json["cancelWaiters"])

    await eventually(asks, "the worker watches", WITHIN)


async def kinds(at: GatewayProcess) -> list[tuple[str, str]]:
    """Return type and task of the session's events."""
    stream = await open_stream(at.url, "s", 0)
    found = []
    while (frame := await stream.frame()) is not None and frame.type != "replay_complete":
        found.append((frame.type, frame.data["taskId"]))
    stream.close()
    return [(str(kind), task) for kind, task in found]


async def test_can_1_closing_the_only_stream_does_not_stop_the_task_and_its_events_are_all_there(
    pair: list[GatewayProcess],
) -> None:
    near, far = pair
    async with Bus(near.url) as bus:
        stream = await open_stream(near.url, "s", query="?from=start")

        async def body(task: Task) -> None:
            for n in range(3):
                await bus.publish("s", {"type": "step", "data": {"taskId": task.id, "n": n}})
            first = await stream.take(2)
            stream.close()

            async def alone() -> bool:
                return await total(near.url, "ringmere_subscribers") == 0

            await eventually(alone, "the gateway has noticed", WITHIN)
            assert [frame.data["n"] for frame in first] == [0, 1]
            for n in range(3, 6):
                await bus.publish("s", {"type": "step", "data": {"taskId": task.id, "n": n}})

        assert await work(bus, body) == "completed"
    again = await open_stream(far.url, "s", 2)
    rest = await again.take(5)
    again.close()
    assert [(frame.id, frame.type) for frame in rest[:4]] == [(n, "step") for n in (3, 4, 5, 6)]
    assert rest[4].type == "task_completed"
    assert (await get(far.url, TASK)).json["cancelled"] is False


async def test_can_2_a_task_cancelled_while_it_is_queued_never_runs_and_is_told_once(
    pair: list[GatewayProcess],
) -> None:
    near, far = pair
    queue: asyncio.Queue[str] = asyncio.Queue()
    await queue.put("t")
    done = await ringmere("cancel", "s", "t", "--reason", "changed my mind", "--json", server=far.url)
    assert done.code == 0, done.err
    ran: list[str] = []

    async def body(task: Task) -> None:
        ran.append(task.id)

    async with Bus(near.url) as bus:
        assert await queue.get() == "t"
        assert await work(bus, body) == "cancelled: changed my mind"
    assert ran == []
    assert await kinds(far) == [("task_cancelled", "t")]


async def test_can_3_a_cancel_at_another_instance_twice_stops_the_task_once(pair: list[GatewayProcess]) -> None:
    near, far = pair
    async with Bus(near.url) as bus, Bus(far.url) as boss:
        working = asyncio.create_task(work(bus))
        await watched(near)
        one, two = await asyncio.gather(boss.cancel("s", "t", "enough"), boss.cancel("s", "t", "enough"))
        assert one == two
        assert await working == "cancelled: enough"
        await boss.cancel("s", "t")
    assert await kinds(far) == [("task_cancelled", "t")]
    counted = await metrics(far.url)
    assert counted['ringmere_cancels_total{outcome="requested"}'] == 1
    assert counted['ringmere_cancels_total{outcome="repeated"}'] == 2
    assert (await metrics(near.url))['ringmere_cancels_total{outcome="delivered"}'] == 1
    assert "cancel_requested" in far.output


async def test_a_worker_whose_gateway_is_killed_watches_at_the_other_one(pair: list[GatewayProcess]) -> None:
    near, far = pair
    async with Bus([near.url, far.url], backoff=FAST) as bus, Bus(far.url) as boss:
        working = asyncio.create_task(work(bus))
        await watched(near)
        await near.kill()
        await boss.cancel("s", "t", "in between")
        assert await working == "cancelled: in between"
        assert await kinds(far) == [("task_cancelled", "t")]


async def test_a_worker_whose_gateway_goes_away_in_order_misses_nothing(pair: list[GatewayProcess]) -> None:
    near, far = pair
    async with Bus([near.url, far.url], backoff=FAST) as bus, Bus(far.url) as boss:
        working = asyncio.create_task(work(bus))
        await watched(near)
        stopping = asyncio.create_task(near.stop())
        await watched(far)
        await boss.cancel("s", "t", "moved")
        assert await working == "cancelled: moved"
        assert await stopping == 0


async def test_a_cancel_expires_and_the_task_runs(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    async with (
        gateway(tmp_path / "a", "--cancel-ttl", "1s", nats_url=nats_server.url) as at,
        Bus(at.url) as bus,
    ):
        await bus.cancel("s", "t")

        async def gone() -> bool:
            return await bus.cancelled("s", "t") is None

        await eventually(gone, "the flag is gone", WITHIN)

        async def body(task: Task) -> None:
            assert not task.cancelled

        assert await work(bus, body) == "completed"


async def test_a_native_event_source_sees_the_end_of_a_cancelled_task_once(pair: list[GatewayProcess]) -> None:
    if reason := missing("chromium"):
        pytest.skip(reason)
    near, far = pair
    async with Bus(near.url) as bus, follow("chromium", f"{far.url}/session/s/events?from=start") as page:
        await bus.publish("s", {"type": "t", "data": {"taskId": "t", "n": 0}})
        working = asyncio.create_task(work(bus))
        await watched(near)
        await bus.cancel("s", "t", "from a page")
        assert await working == "cancelled: from a page"
        await bus.publish("s", {"type": "t", "data": {"taskId": "next", "n": 0}})
        await page.has(3)
        assert [event.envelope["type"] for event in page.events] == ["t", "task_cancelled", "t"]


async def test_the_example_of_the_readme_runs_and_is_cancelled(pair: list[GatewayProcess]) -> None:
    near, far = pair
    [code] = [
        block for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "bus.task(" in block
    ]
    for there, here in (("http://127.0.0.1:8080", near.url), ("http://127.0.0.1:8081", far.url)):
        assert there in code
        code = code.replace(there, here)
    program = code + "\n\nasyncio.run(main())\n"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=clean_env()
    )
    try:
        stream = await open_stream(far.url, "demo", query="?from=start")
        await stream.take(2)
        done = await ringmere("cancel", "demo", "task-1", "--reason", "no longer wanted", server=far.url)
        assert done.code == 0, done.err
        out, err = await asyncio.wait_for(process.communicate(), WITHIN)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    stream.close()
    assert (out.decode().strip(), err) == ("task-1 has ended early: no longer wanted", b"")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LinkedCluster]:
    async with AsyncExitStack() as stack:
        made = LinkedCluster(tmp_path / "cluster")
        await made.link(stack)
        stack.push_async_callback(made.kill)
        await made.start()
        yield made


async def test_a_cancel_reaches_a_worker_at_another_nats_node_and_one_whose_notice_was_cut(
    cluster: LinkedCluster, tmp_path: Path
) -> None:
    """The flag's leader, the boss's node and the worker's node are three. Then the worker's node is cut off a while."""
    a, b, c = cluster.nodes
    flags = ("--replicas", "3")
    async with (
        gateway(tmp_path / "a", *flags, nats_url=a.url, ready=False) as near,
        gateway(tmp_path / "b", *flags, nats_url=b.url, ready=False) as far,
    ):
        await near.wait_status("/readyz", 200, WITHIN)
        await far.wait_status("/readyz", 200, WITHIN)
        await cluster.whole()
        await cluster.move_leader("KV_RINGMERE_CONTROL", c)
        async with Bus(near.url, backoff=FAST) as bus, Bus(far.url, backoff=FAST) as boss:
            working = asyncio.create_task(work(bus))
            await watched(near)
            began = time.monotonic()
            await boss.cancel("s", "t", "far away")
            assert await working == "cancelled: far away"
            assert time.monotonic() - began < 10, "nobody had to ask again"

            working = asyncio.create_task(work(bus, name="t2"))
            await watched(near)
            async with cluster.cut(a, c), cluster.cut(a, b):
                await boss.cancel("s", "t2", "while it was cut")
            assert await working == "cancelled: while it was cut"


async def test_a_cancel_is_kept_when_the_node_that_leads_its_bucket_dies(
    cluster: LinkedCluster, tmp_path: Path
) -> None:
    a, b, c = cluster.nodes
    async with gateway(tmp_path / "a", "--replicas", "3", nats_url=f"{a.url},{b.url}", ready=False) as near:
        await near.wait_status("/readyz", 200, WITHIN)
        await cluster.whole()
        await cluster.move_leader("KV_RINGMERE_CONTROL", c)
        async with Bus(near.url, backoff=FAST) as bus:
            flag = await bus.cancel("s", "t", "kept")
            await c.kill()
            assert await bus.cancelled("s", "t") == flag
            assert await work(bus) == "cancelled: kept"
