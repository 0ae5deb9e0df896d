"""An installation as child processes: up inside the block, gone behind it, whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ringmere.fleet import faults
from ringmere.fleet.faults import Saboteur
from ringmere.fleet.fleet import Fleet
from ringmere.fleet.gateways import FleetError, Gateway
from ringmere.fleet.plan import Faults, FleetPlan
from support.nats import eventually


def children() -> set[int]:
    """Return the processes that this one has started and that still are there."""
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in listed.split()}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_two_gateways_on_one_nats_are_ready_inside_and_gone_behind() -> None:
    before = await asyncio.to_thread(children)
    async with Fleet(FleetPlan(gateways=2)) as fleet:
        assert [await gateway.ready() for gateway in fleet.gateways] == [True, True]
        assert len(set(fleet.addresses)) == 2
        assert len(await asyncio.to_thread(children) - before) == 3
        assert fleet.trouble() == []
    assert await asyncio.to_thread(children) <= before
    assert not fleet.directory.exists()


async def test_a_gateway_that_is_killed_comes_back_at_its_address() -> None:
    async with Fleet(FleetPlan(gateways=1)) as fleet:
        [gateway] = fleet.gateways
        [address] = fleet.addresses
        await gateway.kill()
        assert not await gateway.ready()
        await gateway.start()
        assert fleet.addresses == [address]
        assert await gateway.ready()


async def test_a_gateway_that_ends_by_itself_is_trouble_and_one_that_was_killed_is_none() -> None:
    async with Fleet(FleetPlan(gateways=2)) as fleet:
        one, other = fleet.gateways
        await one.kill()
        assert fleet.trouble() == []
        other.signal(signal.SIGKILL)
        await eventually(lambda: not other.running, "it is gone")
        [line] = fleet.trouble()
        assert "gateway 2 ended by itself with -9" in line


async def test_an_error_inside_ends_all_processes() -> None:
    before = await asyncio.to_thread(children)
    with pytest.raises(RuntimeError, match="inside"):
        async with Fleet(FleetPlan(gateways=1)) as fleet:
            raise RuntimeError("inside")
    assert await asyncio.to_thread(children) <= before
    assert not fleet.directory.exists()


async def test_a_gateway_that_does_not_start_says_why_and_leaves_nothing() -> None:
    before = await asyncio.to_thread(children)
    fleet = Fleet(FleetPlan(gateways=1, flags=("--ring-size", "0")))
    with pytest.raises(FleetError, match="--ring-size"):
        await fleet.__aenter__()
    assert await asyncio.to_thread(children) <= before
    assert not fleet.directory.exists()


async def test_the_directory_stays_when_it_is_to_be_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with Fleet(FleetPlan(gateways=1), keep=True) as fleet:
        assert fleet.directory.parent == tmp_path
    assert "listening on" in (fleet.directory / "gateway-1.log").read_text()


async def test_a_stopped_gateway_dies_with_its_parent(tmp_path: Path) -> None:
    script = f"""
        import asyncio, pathlib, signal
        from ringmere.embedded import EmbeddedServer
        from ringmere.fleet.gateways import Gateway
        async def main():
            directory = pathlib.Path({str(tmp_path)!r})
            gateway = Gateway("g", ["--embedded", "--data-dir", str(directory / "data")], directory / "log")
            await gateway.start()
            gateway.signal(signal.SIGSTOP)
            print(gateway.pid, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
    """
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", textwrap.dedent(script), stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(await asyncio.wait_for(parent.stdout.readline(), 40))
    assert alive(pid)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not alive(pid), "the gateway is gone")


async def test_variables_of_whoever_starts_it_do_not_reach_a_gateway(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RINGMERE_RING_SIZE", "no number")
    gateway = Gateway("g", ["--embedded", "--data-dir", str(tmp_path / "data")], tmp_path / "log")
    try:
        await gateway.start()
        assert await gateway.ready()
    finally:
        await gateway.stop()


async def test_faults_come_in_turn_and_all_is_mended_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "DOWN", 0.1)
    monkeypatch.setattr(faults, "STALL", 0.3)
    async with Fleet(FleetPlan(gateways=2)) as fleet:
        saboteur = Saboteur(fleet, Faults(kill_gateway=0.2, kill_nats=0.2, stall_gateway=0.2))
        over = asyncio.Event()
        breaking = asyncio.create_task(saboteur.run(over))
        await eventually(lambda: len(saboteur.done) >= 4, "four faults", 60)
        over.set()
        done = await asyncio.wait_for(breaking, 40)
        assert {fault.what for fault in done} >= {"gateway 1 killed", "gateway 2 stalled", "NATS killed"}
        ends = [fault.at + fault.seconds for fault in done]
        assert all(fault.at >= end for fault, end in zip(done[1:], ends, strict=False)), "two faults overlap"
        assert fleet.trouble() == []
        await eventually(fleet.gateways[0].ready, "gateway 1 is ready", 30)
        await eventually(fleet.gateways[1].ready, "gateway 2 is ready", 30)


async def test_a_fault_that_cannot_be_mended_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Fleet(FleetPlan(gateways=1)) as fleet:

        async def start() -> None:
            raise FleetError("it does not come back")

        monkeypatch.setattr(fleet.gateways[0], "start", start)
        monkeypatch.setattr(faults, "DOWN", 0.1)
        saboteur = Saboteur(fleet, Faults(kill_gateway=0.1, stall_gateway=60.0))
        with pytest.raises(FleetError, match="does not come back"):
            await asyncio.wait_for(saboteur.run(asyncio.Event()), 20)


async def test_in_a_cluster_leader_gateways_node_and_follower_are_killed_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(faults, "NODE_DOWN", 1.0)
    async with Fleet(FleetPlan(gateways=1, nodes=3, replicas=3)) as fleet:
        leader = await fleet.nodes.leader()
        killed: list[str] = []
        for node in fleet.nodes.nodes:

            async def kill(original=node.kill, name=node.name) -> None:  # type: ignore[no-untyped-def]
                killed.append(name)
                await original()

            monkeypatch.setattr(node, "kill", kill)
        saboteur = Saboteur(fleet, Faults(kill_nats=0.1))
        over = asyncio.Event()
        breaking = asyncio.create_task(saboteur.run(over))
        await eventually(lambda: len(saboteur.done) >= 3, "three faults", 90)
        over.set()
        done = await asyncio.wait_for(breaking, 60)
    assert [fault.what for fault in done[:3]] == [
        "NATS leader killed", "NATS gateway's node killed", "NATS follower killed",
    ]  # fmt: skip
    assert killed[0] == leader.name
    assert time.monotonic() - done[0].at > done[0].seconds
