"""Several workers on one address: each a gateway of its own, one parent that keeps them and speaks for them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from ringmere.embedded import EmbeddedServer, free_port
from ringmere.workers.address import reserved
from support.command import ringmere
from support.gateway import GatewayProcess, clean_env, gateway
from support.nats import running_server
from support.processes import alive, children, command, gone
from support.stopped import stopped_reader

NOTE = {"type": "note", "data": 1}
LONG = 40.0
"""Seconds for what takes two starts of Python on a machine that is busy."""


@asynccontextmanager
async def two_workers(directory: Path, *flags: str, **options: Any) -> AsyncIterator[GatewayProcess]:
    """Run two workers; return when each of them is ready."""
    async with gateway(directory, "--workers", "2", *flags, **options) as instance:
        for number in (0, 1):
            await until_ready(instance.url, number)
        yield instance


async def ask(url: str, path: str, worker: int) -> tuple[int, Any]:
    """Return status and body of a GET that this worker answers: tried on new connections until it is the one."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http:
            async with http.get(f"{url}/healthz") as answer:
                if (await answer.json())["worker"] != worker:
                    continue
            # The connection is kept, so the same process answers.
            async with http.get(url + path) as answer:
                return answer.status, await (answer.json() if answer.content_type.endswith("json") else answer.text())
    raise AssertionError(f"worker {worker} has not answered in {LONG} s")


async def until_ready(url: str, worker: int) -> None:
    async def ready() -> bool:
        return (await ask(url, "/readyz", worker))[0] == 200

    await until(ready, f"worker {worker} is ready")


async def publish(url: str, session: str, count: int) -> None:
    """Publish events, each on a connection of its own, so that both workers take some."""
    for _ in range(count):
        async with aiohttp.ClientSession() as http, http.post(f"{url}/session/{session}/events", json=NOTE) as answer:
            assert answer.status == 201


def values(text: str) -> dict[str, float]:
    """Return the series of a scrape without times of creation."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


STORED = "ringmere_published_events_total[('outcome', 'stored')]"
READERS = "ringmere_subscribers[('transport', 'sse')]"
WORKERS = "ringmere_workers[]"
RESTARTS = "ringmere_worker_restarts_total[]"


async def scrape(url: str, worker: int) -> dict[str, float]:
    status, text = await ask(url, "/metrics", worker)
    assert status == 200, text
    return values(text)


async def workers_of(pid: int) -> list[int]:
    return [child for child in await children(pid) if "ringmere.workers.worker" in command(child)]


async def until(condition: Callable[[], Any], what: str, deadline: float = LONG) -> None:
    end = time.monotonic() + deadline
    while not await condition():
        if time.monotonic() > end:
            raise AssertionError(f"not in {deadline} s: {what}")
        await asyncio.sleep(0.05)


async def test_two_workers_share_one_port_that_was_chosen_once(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance:
        assert len(await workers_of(instance.pid)) == 2
        assert ", 2 workers," in instance.output
        assert len(re.findall("listening on", instance.output)) == 1
        for number in (0, 1):
            assert (await ask(instance.url, "/readyz", number))[0] == 200
        assert await instance.stop() == 0


async def test_a_reader_at_one_worker_gets_what_another_one_took_and_resumes_at_any(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance:
        events = f"{instance.url}/session/s/events"
        async with aiohttp.ClientSession() as http, http.get(events, params={"from": "start"}) as stream:
            await publish(instance.url, "s", 20)
            body = b""
            while body.count(b"event: note") < 20:
                body += await asyncio.wait_for(stream.content.readany(), LONG)
        ids = [int(found) for found in re.findall(rb"^id: (\d+)$", body, re.MULTILINE)]
        assert ids == list(range(1, 21))
        async with aiohttp.ClientSession() as http, http.get(events, headers={"Last-Event-ID": "18"}) as stream:
            body = await asyncio.wait_for(stream.content.readuntil(b"replay_complete"), LONG)
        assert re.findall(rb"^id: (\d+)$", body, re.MULTILINE) == [b"19", b"20"]


async def test_a_scrape_of_any_worker_is_right(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance, aiohttp.ClientSession() as http:
        before = [await scrape(instance.url, number) for number in (0, 1)]
        assert [each[STORED] for each in before] == [0, 0]
        streams = [await http.get(f"{instance.url}/session/s/events") for _ in range(6)]
        await publish(instance.url, "s", 30)
        after = [await scrape(instance.url, number) for number in (0, 1)]
        for seen in after:
            assert (seen[STORED], seen[READERS], seen[WORKERS], seen[RESTARTS]) == (30, 6, 2, 0)
            assert seen["ringmere_log_connected[]"] == 1
            assert seen["ringmere_streams_opened_total[]"] == 6
            assert seen["ringmere_publish_duration_seconds_count[]"] == 30
            assert [value for name, value in seen.items() if name.startswith("ringmere_build_info")] == [1]
        assert set(after[0]) == set(after[1]) >= set(before[0])
        for stream in streams:
            stream.close()


async def test_a_killed_worker_is_started_again_and_no_counter_goes_back(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance:
        await publish(instance.url, "s", 20)
        before = await scrape(instance.url, 0)
        first, second = await workers_of(instance.pid)
        os.kill(first, signal.SIGKILL)
        assert await gone(first)

        async def both() -> bool:
            return len(await workers_of(instance.pid)) == 2

        await until(both, "two workers again")
        assert second in await workers_of(instance.pid)
        for number in (0, 1):
            await until_ready(instance.url, number)
        assert '"event": "worker_ended"' in instance.output
        assert '"exit_code": -9' in instance.output
        await publish(instance.url, "s", 5)
        for number in (0, 1):
            after = await scrape(instance.url, number)
            back = {name for name in before if counted(name) and after[name] < before[name]}
            assert back == set()
            assert (after[STORED], after[RESTARTS], after[WORKERS]) == (25, 1, 2)


def counted(name: str) -> bool:
    return any(part in name for part in ("_total[", "_bucket[", "_count[", "_sum["))


async def test_while_one_worker_is_gone_the_other_one_serves(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance:
        first, _ = await workers_of(instance.pid)
        os.kill(first, signal.SIGKILL)
        assert await gone(first)

        async def answered() -> bool:
            # A connection that the kernel had given to the dead one is reset.
            with contextlib.suppress(aiohttp.ClientConnectionError):
                await publish(instance.url, "s", 1)
                return True
            return False

        await until(answered, "a publish")


async def test_a_worker_that_stands_still_keeps_no_scrape_and_its_counts_stay(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance:
        await publish(instance.url, "s", 10)
        async with aiohttp.ClientSession() as http:
            async with http.get(f"{instance.url}/healthz") as answer:
                answering = (await answer.json())["worker"]
            async with http.get(f"{instance.url}/metrics") as answer:
                assert values(await answer.text())[STORED] == 10
            stopped = [pid for pid in await workers_of(instance.pid) if worker_number(pid) != answering]
            assert len(stopped) == 1
            os.kill(stopped[0], signal.SIGSTOP)
            try:
                async with http.get(f"{instance.url}/metrics") as answer:
                    assert answer.status == 200
                    assert values(await answer.text())[STORED] == 10
            finally:
                os.kill(stopped[0], signal.SIGCONT)


def worker_number(pid: int) -> int:
    return int(command(pid).split()[-2])


async def stream_to_end(http: aiohttp.ClientSession, url: str, opened: asyncio.Semaphore) -> str:
    async with http.get(url) as stream:
        opened.release()
        return (await stream.read()).decode()


@asynccontextmanager
async def streams(instance: GatewayProcess, count: int) -> AsyncIterator[list[asyncio.Task[str]]]:
    async with aiohttp.ClientSession() as http:
        opened = asyncio.Semaphore(0)
        tasks = [
            asyncio.create_task(stream_to_end(http, f"{instance.url}/session/s{n}/events", opened))
            for n in range(count)
        ]
        for _ in tasks:
            await asyncio.wait_for(opened.acquire(), LONG)
        try:
            yield tasks
        finally:
            # Streams that a kill or a second signal cuts end with an error.
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_all_workers_and_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    async with two_workers(tmp_path) as instance, streams(instance, 20) as open_streams:
        family = await children(instance.pid)
        assert len(family) == 3
        instance.signal(number)
        assert await instance.wait(LONG) == 0
        bodies = await asyncio.gather(*open_streams)
        assert all("event: server_draining" in body for body in bodies)
        assert [child for child in family if alive(child)] == []
        assert instance.output.count('"event": "draining"') == 3
        assert "Traceback" not in instance.output


async def test_a_signal_while_the_first_worker_starts_ends_all_of_it_with_0(tmp_path: Path) -> None:
    arguments = ["--listen", "127.0.0.1:0", "--workers", "2", "--embedded", "--data-dir", str(tmp_path / "data")]
    instance = GatewayProcess(arguments, tmp_path / "log", clean_env())
    with instance.log.open("wb") as sink:
        instance.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ringmere", "serve", *arguments, stdout=sink, stderr=sink, env=dict(instance.env)
        )

    async def starting() -> bool:
        return bool(await workers_of(instance.pid))

    try:
        await until(starting, "a worker that starts")
        family = await children(instance.pid)
        instance.signal(signal.SIGTERM)
        assert await instance.wait(LONG) == 0, instance.output
        assert [child for child in family if alive(child)] == []
    finally:
        await instance.kill()


async def test_a_second_signal_ends_all_workers_at_once(tmp_path: Path) -> None:
    async with two_workers(tmp_path, "--drain-grace", "10m") as instance, streams(instance, 20):
        family = await children(instance.pid)
        instance.signal(signal.SIGTERM)

        async def draining() -> bool:
            return instance.output.count('"event": "draining"') == 3

        await until(draining, "a drain of both workers")
        instance.signal(signal.SIGTERM)
        assert await instance.wait(LONG) == 0
        assert [child for child in family if alive(child)] == []


async def test_a_killed_parent_leaves_nobody_behind_not_even_a_stopped_worker(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance:
        family = await children(instance.pid)
        assert len(family) == 3
        os.kill((await workers_of(instance.pid))[0], signal.SIGSTOP)
        await instance.kill()
        assert [await gone(child) for child in family] == [True, True, True]


async def test_a_worker_that_does_not_end_in_order_makes_the_exit_code_1(tmp_path: Path) -> None:
    async with two_workers(tmp_path, "--drain-grace", "10m") as instance, streams(instance, 10):
        stopped, _ = await workers_of(instance.pid)
        number = worker_number(stopped)
        os.kill(stopped, signal.SIGSTOP)
        instance.signal(signal.SIGTERM)

        async def draining() -> bool:
            return instance.output.count('"event": "draining"') == 2

        await until(draining, "a drain of the other worker")
        instance.signal(signal.SIGTERM)
        assert await instance.wait(LONG) == 1
        assert not alive(stopped)
        assert f"not every worker ended in order: [{number}]" in instance.output


async def test_what_refuses_one_worker_ends_all_with_code_2_and_one_line(tmp_path: Path) -> None:
    async with running_server(tmp_path / "nats", extra='authorization { user: "right", password: "x" }') as server:
        url = server.url.replace("//", "//wrong:hunter2@")
        line = await refused("--nats-url", url)
        assert "credentials" in line.lower() or "authorization" in line.lower()
        assert "hunter2" not in line


async def test_streams_of_another_shape_are_refused_with_what_to_do(tmp_path: Path) -> None:
    async with running_server(tmp_path / "nats") as server:
        async with gateway(tmp_path, "--ring-size", "5", nats_url=server.url):
            pass
        line = await refused("--nats-url", server.url, "--ring-size", "6")
        assert "another shape" in line
        assert "--reconcile" in line


async def refused(*flags: str) -> str:
    done = await ringmere("serve", "--listen", "127.0.0.1:0", "--workers", "2", *flags, deadline=LONG)
    lines = [line for line in done.err.splitlines() if line.startswith("ringmere: ")]
    assert (done.code, len(lines)) == (2, 1), done.err
    return lines[0]


async def test_an_address_that_somebody_has_is_refused_also_when_they_share_it(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance:
        for count in ("1", "2"):
            done = await ringmere(
                "serve", "--workers", count, "--listen", instance.url.removeprefix("http://"),
                "--nats-url", "nats://127.0.0.1:1", deadline=LONG,
            )  # fmt: skip
            assert done.code == 2
            assert "--listen" in done.err.splitlines()[-1]


async def test_without_nats_the_first_worker_says_so_and_all_come_when_nats_is_there(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "nats", port=free_port())
    async with gateway(tmp_path, "--workers", "2", nats_url=server.url, ready=False) as instance:
        assert await instance.status("/readyz") == 503
        await instance.wait_for(lambda: "waiting_for_nats" in instance.output, LONG, "line about NATS")
        assert [worker_number(pid) for pid in await workers_of(instance.pid)] == [0]
        await server.start()
        try:
            for number in (0, 1):
                await until_ready(instance.url, number)
        finally:
            await server.kill()


async def test_a_worker_that_is_started_again_takes_no_connection_before_it_can_serve(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance:
        first, _ = await workers_of(instance.pid)
        number = worker_number(first)
        os.kill(first, signal.SIGKILL)
        assert await gone(first)
        seen = set()

        async def back() -> bool:
            # On a new connection each time; one that the kernel had given to the dead worker is reset.
            async with aiohttp.ClientSession() as http:
                try:
                    async with http.get(f"{instance.url}/readyz") as answer:
                        seen.add(answer.status)
                        return bool((await answer.json())["worker"] == number)
                except aiohttp.ClientConnectionError:
                    return False

        await until(back, "the worker answers again")
        assert seen == {200}


async def test_the_embedded_nats_server_of_the_parent_is_started_again_for_all(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance:
        [nats] = [child for child in await children(instance.pid) if "nats-server" in command(child)]
        await publish(instance.url, "s", 1)
        os.kill(nats, signal.SIGKILL)
        assert await gone(nats)
        for number in (0, 1):
            await until_ready(instance.url, number)
        await publish(instance.url, "s", 2)


async def test_one_worker_is_one_process_as_ever(tmp_path: Path) -> None:
    async with gateway(tmp_path, "--workers", "1") as instance:
        assert [command(child).split()[0].rsplit("/")[-1] for child in await children(instance.pid)] == ["nats-server"]
        assert "worker" not in (await ask_alone(instance.url, "/healthz"))
        assert "ringmere_workers" not in await ask_alone(instance.url, "/metrics")


async def ask_alone(url: str, path: str) -> str:
    async with aiohttp.ClientSession() as http, http.get(url + path) as answer:
        return await answer.text()


def test_a_held_port_is_free_for_sharers_and_for_nobody_else() -> None:
    with reserved("127.0.0.1", 0) as (host, port):
        assert host == "127.0.0.1"
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind((host, port))
        with socket.socket() as sharer:
            sharer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sharer.bind((host, port))
            sharer.listen()
            # The held socket does not listen, so every connection comes here.
            for _ in range(20):
                with socket.create_connection((host, port)):
                    sharer.accept()[0].close()


def test_a_port_that_is_taken_cannot_be_held() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as owner,
        pytest.raises(OSError, match="in use"),
        reserved("127.0.0.1", owner.getsockname()[1]),
    ):
        pass


def test_all_addresses_of_a_name_get_the_same_port() -> None:
    with reserved("localhost", 0) as (_, port):
        for host in {target[0] for *_, target in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)}:
            family = socket.AF_INET6 if ":" in str(host) else socket.AF_INET
            with socket.socket(family) as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind((host, port))


def resident(pid: int) -> int:
    """Return a process's memory in RAM, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_what_the_processes_cost_is_added_up_with_the_parent(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance:
        pids = [instance.pid, *await workers_of(instance.pid)]
        seen = await scrape(instance.url, 0)
        assert seen["ringmere_process_resident_memory_bytes[]"] == pytest.approx(sum(map(resident, pids)), rel=0.1)
        files = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
        assert seen["ringmere_process_open_fds[]"] == pytest.approx(files, abs=8)
        assert seen["ringmere_process_cpu_seconds_total[]"] > 0.2
        assert time.time() - 120 < seen["ringmere_process_start_time_seconds[]"] < time.time()


async def test_a_worker_answers_in_the_format_that_is_asked_for(tmp_path: Path) -> None:
    wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with two_workers(tmp_path) as instance, aiohttp.ClientSession(headers=wanted) as http:
        async with http.get(f"{instance.url}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            families = list(openmetrics(await answer.text()))
        assert {"ringmere_workers", "ringmere_worker_restarts"} <= {family.name for family in families}


async def test_any_worker_lists_the_laggards_of_all(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as instance, contextlib.AsyncExitStack() as sockets:

        async def both_have_one() -> bool:
            sockets.enter_context(await stopped_reader(instance.url, "slow"))
            states = [await ask(instance.url, "/session/slow", number) for number in (0, 1)]
            return all(status == 200 and state["readers"] for status, state in states)

        await until(both_have_one, "both workers have a reader")

        async def behind() -> bool:
            blobs = [{"type": "note", "data": "x" * 60_000}] * 20
            at = f"{instance.url}/session/slow/events"
            async with aiohttp.ClientSession() as http, http.post(at, json=blobs) as answer:
                assert answer.status == 201
            listed = [(await ask(instance.url, "/readers?limit=1000", number))[1]["readers"] for number in (0, 1)]
            return all({row["worker"] for row in rows if row["backlogEvents"]} == {0, 1} for rows in listed)

        await until(behind, "both workers list the laggards of both")
        [worst] = (await ask(instance.url, "/readers?limit=1", 0))[1]["readers"]
        assert worst["sessionId"] == "slow"
