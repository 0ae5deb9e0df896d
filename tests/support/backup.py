"""What `nats stream backup` and `nats stream restore` do: the same requests of JetStream's API, the same bytes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

CHUNK = 128 * 1024
PATIENCE = 30


async def backup_streams(url: str, names: list[str], directory: Path) -> None:
    """Write each stream to files below ``directory``, from a server that runs."""
    client = await nats.connect(url)
    try:
        for name in names:
            await asyncio.to_thread((directory / name).mkdir, parents=True)
            await _backup(client, name, directory / name)
    finally:
        await client.close()


async def restore_streams(url: str, names: list[str], directory: Path) -> None:
    """Make streams anew, with what was in them; those that exist are deleted first."""
    client = await nats.connect(url)
    try:
        for name in names:
            await client.request(f"$JS.API.STREAM.DELETE.{name}", b"", timeout=PATIENCE)
            await _restore(client, name, directory / name)
    finally:
        await client.close()


async def _backup(client: Client, name: str, directory: Path) -> None:
    inbox = client.new_inbox()
    chunks = await client.subscribe(inbox)
    question = {"deliver_subject": inbox, "chunk_size": CHUNK, "no_consumers": True}
    meta = await _ask(client, f"STREAM.SNAPSHOT.{name}", json.dumps(question).encode())
    with (directory / "stream.tar.s2").open("wb") as file:
        while (chunk := await chunks.next_msg(PATIENCE)).data:
            await asyncio.to_thread(file.write, chunk.data)
            if chunk.reply:
                await chunk.respond(b"")
    (directory / "backup.json").write_text(json.dumps({"config": meta["config"], "state": meta["state"]}))


async def _restore(client: Client, name: str, directory: Path) -> None:
    begun = await _ask(client, f"STREAM.RESTORE.{name}", (directory / "backup.json").read_bytes())
    body = (directory / "stream.tar.s2").read_bytes()
    for at in range(0, len(body), CHUNK):
        await client.request(begun["deliver_subject"], body[at : at + CHUNK], timeout=PATIENCE)
    answer = await client.request(begun["deliver_subject"], b"", timeout=PATIENCE)
    assert "error" not in json.loads(answer.data), answer.data


async def _ask(client: Client, subject: str, body: bytes) -> Any:
    answer = json.loads((await client.request(f"$JS.API.{subject}", body, timeout=PATIENCE)).data)
    assert "error" not in answer, answer
    return answer
