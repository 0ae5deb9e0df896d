"""A Prometheus of one's own, as a child process on a free port."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from ringmere.embedded import die_with, free_port

START_TIMEOUT = 30.0
"""Seconds until it must be ready."""


class PrometheusError(RuntimeError):
    """Prometheus is missing or did not start; the text says why."""


@asynccontextmanager
async def running(directory: Path, config: Mapping[str, Any]) -> AsyncIterator[str]:
    """Run Prometheus with ``config`` and all it writes in ``directory``; yield its address when it is ready."""
    program = shutil.which("prometheus")
    if program is None:
        raise PrometheusError("prometheus is not installed")
    _write(directory, config)
    address = f"127.0.0.1:{free_port()}"
    with (directory / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={address}", "--log.level=warn",
            stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=die_with(os.getpid(), signal.SIGKILL),
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while not await _ready(address):
            if process.returncode is not None or time.monotonic() > deadline:
                raise PrometheusError(f"Prometheus did not start: {(directory / 'prometheus.log').read_text()}")
            await asyncio.sleep(0.05)
        yield f"http://{address}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _write(directory: Path, config: Mapping[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(dict(config)))


async def _ready(address: str) -> bool:
    try:
        async with aiohttp.ClientSession() as http, http.get(f"http://{address}/-/ready") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError):
        return False
