"""Backups made and put back as the manual says: no id comes twice, and each client is told what it must know."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from ringmere.client.publish import Publisher
from ringmere.client.stream import Control, Event, follow
from ringmere.embedded import EmbeddedServer
from ringmere.log.needs import CONTROL, EPOCHS, PURGES, SNAPSHOTS
from support.backup import backup_streams, restore_streams
from support.gateway import clean_env, gateway

PAGE = (Path(__file__).resolve().parents[2] / "service" / "docs" / "backup.md").read_text()
BASE = 1 << 40


def commands(heading: str) -> list[str]:
    """Return the commands in the page's section."""
    section = PAGE.split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    found = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).splitlines()
    assert found, heading
    return found


async def carry_out(heading: str, nats: EmbeddedServer, server: str = "") -> None:
    """Run the commands of a section in the directory of the server's files."""
    env = clean_env(RINGMERE_NATS_URL=nats.url)
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    for line in commands(heading):
        # What an embedded server has instead of the shipped configuration's directory, and a test's own address.
        here = line.replace("nats-data", "jetstream").replace("http://127.0.0.1:8080", server)
        process = await asyncio.create_subprocess_shell(
            here, cwd=nats.data_dir, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, f"{here}: {output.decode()}"


async def publish(url: str, count: int) -> list[int]:
    async with Publisher(url) as publisher:
        return [(await publisher.publish("s", {"type": "t", "data": 1})).id for _ in range(count)]


async def come_back(url: str, cursor: int) -> tuple[list[str], list[int]]:
    """Return the verdicts and the ids that a client with that cursor gets."""
    verdicts, ids = [], []
    async with asyncio.timeout(30), follow(url, "s", cursor) as stream:
        async for item in stream:
            if isinstance(item, Event):
                ids.append(item.id)
            elif isinstance(item, Control) and item.type == "state_resync_required":
                verdicts.append(item.data["reason"])
            elif isinstance(item, Control) and item.type == "replay_complete":
                break
    return verdicts, ids


async def check(url: str) -> None:
    """Publish 2 events to a log that had 5, and had lost 4 more: see what clients with any of these ids get."""
    new = await publish(url, 2)
    assert new == [BASE + 6, BASE + 7]
    assert await come_back(url, 5) == ([], new)
    assert await come_back(url, 3) == ([], [4, 5, *new])
    for lost in (6, 9):
        assert await come_back(url, lost) == (["epoch_reset"], [1, 2, 3, 4, 5, *new])


async def test_files_of_a_stopped_server_are_saved_and_put_back_by_the_commands_of_the_page(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with gateway(tmp_path, nats_url=nats_server.url) as instance:
        assert await publish(instance.url, 5) == [1, 2, 3, 4, 5]
        await nats_server.stop()
        await carry_out("Back up", nats_server)
        await nats_server.start()
        await instance.wait_status("/readyz", 200)
        assert await publish(instance.url, 4) == [6, 7, 8, 9]
    await nats_server.stop()
    await carry_out("Restore", nats_server)
    await nats_server.start()
    await carry_out("Begin a new epoch", nats_server)
    async with gateway(tmp_path, nats_url=nats_server.url) as instance:
        await check(instance.url)
        await carry_out("Start and look", nats_server, instance.url)


async def test_streams_that_are_brought_back_on_a_running_server_begin_a_new_epoch_by_themselves(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    saved = [line.split()[3] for line in commands("Save streams")]
    assert [line.split()[3] for line in commands("Bring streams back")] == [f"backup/{name}" for name in saved]
    async with gateway(tmp_path, nats_url=nats_server.url) as instance:
        assert await publish(instance.url, 5) == [1, 2, 3, 4, 5]
        await backup_streams(nats_server.url, saved, tmp_path / "backup")
        assert await publish(instance.url, 4) == [6, 7, 8, 9]
    await restore_streams(nats_server.url, saved, tmp_path / "backup")
    async with gateway(tmp_path, nats_url=nats_server.url) as instance:
        await check(instance.url)
        await carry_out("Start and look", nats_server, instance.url)


def test_the_page_names_each_stream_that_an_instance_makes() -> None:
    named = set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE))
    assert named == {
        "RINGMERE_0",
        "RINGMERE_HEAD_0",
        *(f"KV_{bucket}" for bucket in (EPOCHS, PURGES, SNAPSHOTS, CONTROL)),
    }
