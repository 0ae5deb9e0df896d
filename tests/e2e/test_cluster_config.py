"""The cluster that ``make cluster`` starts: its own files, three nodes, and what it survives."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from ringmere.core.errors import RingmereError
from ringmere.embedded import server_binary
from ringmere.log.connect import ConnectOptions
from ringmere.log.jetstream import JetStreamLog, LogSettings, open_log
from ringmere.log.port import Row
from support.configured import ROOT
from support.gateway import clean_env
from support.nats import api, connected, eventually
from support.processes import alive, gone

CLUSTER = ROOT / "ops" / "nats" / "cluster"
NODE = re.compile(r"^(n\d) at (nats://\S+), pid (\d+),", re.MULTILINE)
LONG = 60.0
EVENT = b'{"type":"t","data":1}'


class Node(NamedTuple):
    name: str
    url: str
    pid: int


class Running(NamedTuple):
    """The command, what it has printed, and its nodes."""

    process: asyncio.subprocess.Process
    output: Path
    nodes: list[Node]

    def text(self) -> str:
        return self.output.read_text()


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Running]:
    """Run what ``make cluster`` runs, on free ports."""
    output = directory / "output"
    with output.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ops.nats.cluster", "--port", "0",
            cwd=directory, env=clean_env(PYTHONPATH=str(ROOT)), stdout=sink, stderr=sink,
        )  # fmt: skip
    try:
        await eventually(
            lambda: "--replicas 3" in output.read_text() or process.returncode is not None, "three nodes", LONG
        )
        assert process.returncode is None, output.read_text()
        nodes = [Node(name, url, int(pid)) for name, url, pid in NODE.findall(output.read_text())]
        assert [node.name for node in nodes] == ["n1", "n2", "n3"]
        yield Running(process, output, nodes)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), LONG)


async def opened(running: Running) -> JetStreamLog:
    options = ConnectOptions(servers=tuple(node.url for node in running.nodes))
    return await open_log(options, LogSettings(replicas=3))


async def stored(log: JetStreamLog, row: Row) -> bool:
    """Store a row, or say that the cluster did not take it now; the row's key makes another try safe."""
    try:
        await log.append("s", row)
    except RingmereError:
        return False
    return True


async def test_a_replicated_log_on_these_files_survives_the_loss_of_any_node(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        log = await opened(running)
        try:
            for number in range(10):
                assert (await log.append("s", Row(EVENT, f"k{number}"))).seq == number + 1
            async with connected(running.nodes[0].url) as connection:
                info = await api(connection, "STREAM.INFO.RINGMERE_0")
            assert info["config"]["num_replicas"] == 3
            leader = next(node for node in running.nodes if node.name == info["cluster"]["leader"])
            os.kill(leader.pid, signal.SIGKILL)
            assert await gone(leader.pid)
            row = Row(EVENT, "after")
            await eventually(lambda: stored(log, row), "an event is stored without the leader", LONG)
            assert [message.seq for message in (await log.page("s", 1, 1 << 20)).messages] == list(range(1, 12))
        finally:
            await log.close()
        await eventually(lambda: f"{leader.name} ended with -9" in running.text(), "a line about the node")
        assert running.process.returncode is None
        assert all(alive(node.pid) for node in running.nodes if node != leader)


async def test_it_says_what_to_run_next_and_keeps_everything_below_the_data_directory(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        urls = ",".join(node.url for node in running.nodes)
        assert f"ringmere serve --nats-url {urls} --replicas 3" in running.text()
        data = {path.name for path in (tmp_path / ".data" / "cluster").iterdir()}
        assert data == {"n1", "n2", "n3", "n1.log", "n2.log", "n3.log"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_ends_all_nodes(tmp_path: Path, number: signal.Signals) -> None:
    async with cluster(tmp_path) as running:
        running.process.send_signal(number)
        assert await asyncio.wait_for(running.process.wait(), LONG) == 0
        assert [node for node in running.nodes if alive(node.pid)] == []


async def test_a_killed_command_leaves_no_node_behind(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        running.process.kill()
        await running.process.wait()
        assert all([await gone(node.pid, LONG) for node in running.nodes])


async def test_the_publish_subjects_are_mapped_in_the_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        log = await opened(running)
        try:
            async with connected(running.nodes[-1].url) as connection:
                await connection.request("ringmere.publish.s", EVENT, timeout=5)
            found = await log.last("s")
            assert found is not None
            assert found.payload == EVENT
        finally:
            await log.close()


def test_the_files_differ_only_in_what_tells_the_nodes_apart() -> None:
    plain = set()
    for number in (1, 2, 3):
        text = (CLUSTER / f"n{number}.conf").read_text()
        assert f'store_dir: ".data/cluster/n{number}"' in text
        text = re.sub(rf"\bn{number}\b|Node {number} of 3", "NODE", text)
        plain.add(re.sub(rf'^(listen|http|  listen): "127.0.0.1:\d+{number + 1}"$', r"\1", text, flags=re.MULTILINE))
    assert len(plain) == 1


@pytest.mark.parametrize("name", ["n1", "n2", "n3"])
async def test_the_server_takes_each_file_as_it_stands(tmp_path: Path, name: str) -> None:
    process = await asyncio.create_subprocess_exec(
        server_binary(), "-t", "-c", str(CLUSTER / f"{name}.conf"), cwd=tmp_path, stderr=asyncio.subprocess.PIPE
    )
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, err
