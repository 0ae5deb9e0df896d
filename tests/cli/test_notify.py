"""What the service manager hears, over a real datagram socket, from a real process."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from pathlib import Path

import pytest

from ringmere.embedded import EmbeddedServer, free_port
from ringmere.notify import Notifier, without_manager
from support.gateway import GatewayProcess, gateway
from support.manager import manager
from support.processes import children, command, gone, state

LONG = 40.0
WATCHDOG = 1.0
"""Seconds of the watchdog in these tests."""


async def test_it_says_ready_when_it_serves_and_stopping_when_it_drains(tmp_path: Path) -> None:
    with manager(tmp_path / "notify") as systemd:
        async with gateway(tmp_path, ready=False, env=systemd.env) as instance:
            message = await systemd.wait_for("READY")
            assert message == {"READY": "1", "STATUS": f"serving on {instance.url}"}
            assert await instance.status("/readyz") == 200
            assert not systemd.said("WATCHDOG")
            assert not systemd.said("STOPPING")
            assert await instance.stop() == 0
        assert (await systemd.wait_for("STOPPING"))["STOPPING"] == "1"
        assert [message for message in systemd.heard if "READY" in message] == [message]


async def test_it_is_not_ready_while_the_door_is_open_and_nats_is_not_there(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "nats", port=free_port())
    with manager(tmp_path / "notify") as systemd:
        async with gateway(tmp_path, nats_url=server.url, ready=False, env=systemd.env) as instance:
            assert "waiting for NATS" in (await systemd.wait_for("STATUS"))["STATUS"]
            assert await instance.status("/readyz") == 503
            await instance.wait_for(lambda: "waiting_for_nats" in instance.output, LONG, "line about NATS")
            assert not systemd.said("READY")
            await server.start()
            try:
                assert (await systemd.wait_for("READY"))["READY"] == "1"
            finally:
                await server.kill()


async def test_an_abstract_address_works_as_well(tmp_path: Path) -> None:
    with manager(f"@ringmere-{secrets.token_hex(8)}") as systemd:
        async with gateway(tmp_path, env=systemd.env):
            await systemd.wait_for("READY")


def pings(messages: list[dict[str, str]]) -> int:
    return sum("WATCHDOG" in message for message in messages)


async def test_the_loop_pings_while_it_lives_and_not_while_it_stands_still(tmp_path: Path) -> None:
    with manager(tmp_path / "notify") as systemd:
        env = {**systemd.env, "WATCHDOG_USEC": str(int(WATCHDOG * 1e6))}
        async with gateway(tmp_path, env=env) as instance:
            for _ in range(3):
                await systemd.wait_for("WATCHDOG")
            instance.signal(signal.SIGSTOP)
            try:
                await until_stopped(instance.pid)
                systemd.listen()
                # What is tested is that nothing happens, so there is nothing to wait for but time.
                await asyncio.sleep(3 * WATCHDOG)
                assert systemd.listen() == []
            finally:
                instance.signal(signal.SIGCONT)
            await systemd.wait_for("WATCHDOG")


async def until_stopped(pid: int) -> None:
    end = time.monotonic() + LONG
    while state(pid) != "T":
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def test_a_loop_that_is_blocked_does_not_ping(tmp_path: Path) -> None:
    with manager(tmp_path / "notify") as systemd:
        notifier = Notifier({**systemd.env, "WATCHDOG_USEC": "40000"})
        task = asyncio.create_task(notifier.watch())
        await systemd.wait_for("WATCHDOG")
        systemd.listen()
        time.sleep(0.4)  # noqa: ASYNC251 (the loop is to stand still)
        assert pings(systemd.listen()) == 0
        await systemd.wait_for("WATCHDOG")
        task.cancel()


async def test_a_watchdog_meant_for_another_process_is_not_answered(tmp_path: Path) -> None:
    with manager(tmp_path / "notify") as systemd:
        env = {**systemd.env, "WATCHDOG_USEC": "40000"}
        assert Notifier({**env, "WATCHDOG_PID": "1"}).watchdog == 0
        assert Notifier({**env, "WATCHDOG_PID": str(os.getpid())}).watchdog == 0.04
        assert Notifier({**env, "WATCHDOG_USEC": "soon"}).watchdog == 0
        assert Notifier({"WATCHDOG_USEC": "40000"}).watchdog == 0


def test_without_a_socket_or_with_one_that_is_gone_nothing_fails(tmp_path: Path) -> None:
    for address in ("", "relative", "vsock:2:1", str(tmp_path / "nobody")):
        notifier = Notifier({"NOTIFY_SOCKET": address} if address else {})
        notifier.ready("x")
        notifier.status("x")
        notifier.stopping("x")


def test_a_manager_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    with manager(tmp_path / "notify") as systemd:
        notifier = Notifier(systemd.env)
        for _ in range(100_000):
            notifier.status("x" * 100)
            if notifier.failed:
                break
        assert notifier.failed
        assert len(systemd.listen()) > 1
        notifier.status("again")
        assert not notifier.failed
        assert systemd.listen() == [{"STATUS": "again"}]


def test_children_are_not_told_of_the_manager() -> None:
    env = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "PATH": "/bin"}
    assert without_manager(env) == {"PATH": "/bin"}


async def test_with_workers_the_parent_speaks_once_for_all(tmp_path: Path) -> None:
    with manager(tmp_path / "notify") as systemd:
        async with gateway(tmp_path, "--workers", "2", env=systemd.env) as instance:
            message = await systemd.wait_for("READY")
            assert message["STATUS"] == f"serving on {instance.url} with 2 workers"
            for _ in range(10):
                assert await instance.status("/readyz") == 200
            assert await instance.stop(LONG) == 0
        await systemd.wait_for("STOPPING")
        assert sum("READY" in message for message in systemd.heard) == 1
        assert sum("STOPPING" in message for message in systemd.heard) == 1


async def test_with_a_watchdog_a_worker_that_stands_still_is_started_again_and_the_unit_stays(tmp_path: Path) -> None:
    with manager(tmp_path / "notify") as systemd:
        env = {**systemd.env, "WATCHDOG_USEC": "4000000"}
        async with gateway(tmp_path, "--workers", "2", env=env) as instance:
            await systemd.wait_for("READY")
            stopped = (await workers(instance))[0]
            os.kill(stopped, signal.SIGSTOP)
            assert await gone(stopped, LONG)
            await instance.wait_for(lambda: "worker_ended" in instance.output, LONG, "line about the worker")
            assert "worker_hung" in instance.output
            systemd.listen()
            await systemd.wait_for("WATCHDOG")
            end = time.monotonic() + LONG
            while len(await workers(instance)) < 2:
                assert time.monotonic() < end
                await asyncio.sleep(0.05)


async def workers(instance: GatewayProcess) -> list[int]:
    return [child for child in await children(instance.pid) if "ringmere.workers.worker" in command(child)]


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_start_that_is_refused_never_says_ready(tmp_path: Path, workers: str) -> None:
    (tmp_path / "file").write_text("")
    with manager(tmp_path / "notify") as systemd:
        flags = ("--workers", workers, "--data-dir", str(tmp_path / "file"))
        with pytest.raises(AssertionError, match="exit code 2"):
            async with gateway(tmp_path, *flags, env=systemd.env):
                pass
        assert not systemd.said("READY")
