"""``serve --schemas``: read at start, read again on SIGHUP, by every worker; what cannot be used changes nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from support.command import ringmere
from support.gateway import GatewayProcess, gateway

DEADLINE = 30.0
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
BAD = {"type": "text", "data": {"text": 1}}


def write(directory: Path, **schemas: Any) -> Path:
    directory.mkdir(exist_ok=True)
    for type, schema in schemas.items():
        text = schema if isinstance(schema, str) else json.dumps(schema)
        (directory / f"{type}.json").write_text(text)
    return directory


async def types(url: str) -> list[str]:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/schemas") as answer:
        return [row["type"] for row in (await answer.json())["schemas"]]


async def posted(url: str, event: dict[str, Any]) -> tuple[int, str | None]:
    async with aiohttp.ClientSession() as http, http.post(f"{url}/session/s1/events", json=event) as answer:
        return answer.status, (await answer.json()).get("code")


async def told(instance: GatewayProcess, line: str, count: int) -> None:
    """Wait until a log line has been written so often."""
    await instance.wait_for(lambda: instance.output.count(line) >= count, DEADLINE, f"{count} lines of {line}")


async def refused(*flags: str) -> str:
    done = await ringmere("serve", "--embedded", "--listen", "127.0.0.1:0", *flags, deadline=DEADLINE)
    lines = [line for line in done.err.splitlines() if line.startswith("ringmere: ")]
    assert done.code == 2, done
    assert len(lines) == 1, done.err
    assert "Traceback" not in done.err
    return lines[0]


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_bad_schema_is_no_start_and_one_line_that_names_it(tmp_path: Path, workers: str) -> None:
    directory = write(tmp_path / "schemas", text=TEXT, bad={"type": "strin"})
    data = ("--data-dir", str(tmp_path / "data"), "--workers", workers)
    assert "bad.json: at /type" in await refused("--schemas", str(directory), *data)


async def test_what_is_no_directory_of_json_is_no_start(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    assert "nowhere" in await refused("--schemas", str(tmp_path / "nowhere"), *data)
    assert "bad.json: not JSON" in await refused("--schemas", str(write(tmp_path / "schemas", bad="{")), *data)
    large = write(tmp_path / "large", big=f'"{"x" * 1_100_000}"')
    assert "big.json" in await refused("--schemas", str(large), *data)
    assert "--schemas-strict" in await refused("--schemas-strict", *data)


async def test_hidden_files_and_others_are_no_schemas(tmp_path: Path) -> None:
    directory = write(tmp_path / "schemas", text=TEXT)
    (directory / ".hidden.json").write_text("{")
    (directory / "README.md").write_text("what this is")
    (directory / "..data").mkdir()
    async with gateway(tmp_path, "--schemas", str(directory)) as instance:
        assert await types(instance.url) == ["text"]


async def test_sighup_reads_them_again_and_a_bad_one_keeps_the_old(tmp_path: Path) -> None:
    directory = write(tmp_path / "schemas", text=TEXT)
    async with gateway(tmp_path, "--schemas", str(directory)) as instance:
        assert await posted(instance.url, BAD) == (422, "schema_violation")
        write(directory, text={"type": "object"}, more=True)
        instance.signal(signal.SIGHUP)
        await told(instance, "schemas_loaded", 2)
        assert await types(instance.url) == ["more", "text"]
        assert (await posted(instance.url, BAD))[0] == 201
        write(directory, worse={"type": "strin"})
        instance.signal(signal.SIGHUP)
        await told(instance, "schemas_kept", 1)
        assert "worse.json: at /type" in instance.output
        assert await types(instance.url) == ["more", "text"]
        (directory / "worse.json").unlink()
        instance.signal(signal.SIGHUP)
        await told(instance, "schemas_loaded", 3)
        assert await instance.stop() == 0


async def test_the_parent_passes_sighup_on_to_all_workers(tmp_path: Path) -> None:
    directory = write(tmp_path / "schemas", text=TEXT)
    async with gateway(tmp_path, "--schemas", str(directory), "--workers", "2") as instance:
        await told(instance, "schemas_loaded", 2)
        write(directory, more=True)
        instance.signal(signal.SIGHUP)
        await told(instance, "schemas_loaded", 4)
        seen: set[int] = set()
        end = time.monotonic() + DEADLINE
        while seen != {0, 1}:
            assert time.monotonic() < end, seen
            async with aiohttp.ClientSession() as http:
                async with http.get(f"{instance.url}/healthz") as answer:
                    worker = (await answer.json())["worker"]
                # The connection is kept, so the same process answers.
                async with http.get(f"{instance.url}/schemas") as answer:
                    assert [row["type"] for row in (await answer.json())["schemas"]] == ["more", "text"]
            seen.add(worker)
            await asyncio.sleep(0.02)
        assert await instance.stop() == 0


async def test_schemas_that_break_while_workers_start_end_none_that_serves(tmp_path: Path) -> None:
    directory = write(tmp_path / "schemas", text=TEXT)
    flags = ("--schemas", str(directory), "--workers", "2")
    async with gateway(tmp_path, *flags, ready=False) as instance:
        # The second worker starts when the first one is ready, so it finds what cannot be used.
        await told(instance, "schemas_loaded", 1)
        write(directory, bad={"type": "strin"})
        await told(instance, "worker_ended", 1)
        assert "bad.json: at /type" in instance.output
        assert await instance.status("/readyz") == 200
        (directory / "bad.json").unlink()
        await told(instance, "schemas_loaded", 2)
        assert await instance.stop() == 0


async def test_publish_tells_where_the_data_does_not_fit(tmp_path: Path) -> None:
    directory = write(tmp_path / "schemas", text=TEXT)
    async with gateway(tmp_path, "--schemas", str(directory), "--schemas-strict") as instance:
        one = await ringmere("publish", "s1", "--type", "text", "--data", '{"text":1}', server=instance.url)
        assert one.code == 1
        assert "schema_violation (422): at /data/text" in one.err
        lines = tmp_path / "lines.ndjson"
        lines.write_text('{"type":"text","data":{"text":"x"}}\n\n{"type":"text","data":{}}\n')
        many = await ringmere("publish", "s1", "--file", str(lines), server=instance.url)
        assert many.code == 1
        assert "line 3" in many.err
        assert "at /data: " in many.err
