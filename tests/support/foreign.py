"""Clients of other people, run unmodified: each tells its events and states, whatever it is written in."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from playwright.async_api import async_playwright

from support.chromium import ARGUMENTS, CHROMIUM
from support.gateway import clean_env
from support.nats import eventually

HERE = Path(__file__).resolve().parent.parent / "foreign"
TYPES = (
    "t", "session_update", "session_metadata_updated", "turn_complete", "session_closed",
    "state_resync_required", "replay_complete", "slow_client_warning", "client_evicted", "stream_error",
    "server_draining", "session_snapshot", "task_completed", "task_cancelled",
)  # fmt: skip
"""What the clients with named listeners listen for."""

PROGRAMS = {
    "eventsource": ("node", "eventsource.mjs"),
    "qwen-client": ("node", "qwen_sdk.mjs"),
    "qwen-session": ("node", "qwen_sdk.mjs"),
    "httpx-sse": (sys.executable, "httpx_sse_client.py"),
    "requests-sse": (sys.executable, "requests_sse_client.py"),
    "aiohttp-sse-client2": (sys.executable, "aiohttp_sse_client.py"),
    "curl": (sys.executable, "curl_client.py"),
}
CLIENTS = (*PROGRAMS, "chromium")
NEEDS = {"node": HERE / "node_modules" / "eventsource", "chromium": Path(CHROMIUM), "curl": Path("/usr/bin/curl")}


class Event(NamedTuple):
    """What a client made of a frame: its type, the cursor it then had, the envelope."""

    type: str
    cursor: str
    envelope: dict[str, Any]
    view: dict[str, Any]
    """What the client's own reducer says after it, where there is one."""


class Follower:
    """One running client. ``events`` are what it reported so far, ``states`` how its connection went.

    ``phantoms`` are events that nobody sent.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[Event] = []
        self.states: list[dict[str, Any]] = []
        self.phantoms: list[dict[str, Any]] = []
        self.process: asyncio.subprocess.Process | None = None

    def hear(self, line: dict[str, Any]) -> None:
        """Take one report."""
        if "state" in line:
            self.states.append(line)
            return
        envelope = json.loads(line["data"] or "{}")
        moved = "id" in envelope and str(envelope["id"]) != line["id"]
        if envelope.get("type") != line["event"] or moved:
            self.phantoms.append(line)
        else:
            self.events.append(Event(line["event"], line["id"], envelope, line.get("view", {})))

    @property
    def ids(self) -> list[int]:
        """The ids of the events, in the order they came."""
        return [event.envelope["id"] for event in self.events if "id" in event.envelope]

    @property
    def types(self) -> list[str]:
        """The types of all frames, in the order they came."""
        return [event.type for event in self.events]

    def of_type(self, type: str) -> list[dict[str, Any]]:
        """Return the data of all frames of a type."""
        return [event.envelope["data"] for event in self.events if event.type == type]

    @property
    def closed(self) -> dict[str, Any] | None:
        """The report of a client that gave up, None while it goes on."""
        return next((state for state in self.states if state["state"] == "closed"), None)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition of its reports."""
        try:
            await eventually(condition, what, 20)
        except AssertionError as error:
            seen = [(event.type, event.envelope.get("id")) for event in self.events]
            raise AssertionError(f"{self.name}, {error}; events {seen[-40:]}, states {self.states[-10:]}") from None

    async def has(self, count: int) -> None:
        """Wait for so many events with ids."""
        await self.until(lambda: len(self.ids) >= count, f"{count} events")

    async def go_on(self) -> None:
        """Send the line that a program waits for."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        await self.process.stdin.drain()


def missing(name: str) -> str | None:
    """Return what is not installed for a client, None when it can run. On CI everything must be there."""
    kind = PROGRAMS[name][0] if name in PROGRAMS else name
    for need in (kind, name):
        path = NEEDS.get(need)
        if path is not None and not path.exists() and os.environ.get("CI") != "true":
            return f"there is no {path}; .ci/run installs it"
    if kind == "node" and shutil.which("node") is None and os.environ.get("CI") != "true":
        return "there is no node; .ci/run installs it"
    return None


@asynccontextmanager
async def follow(name: str, url: str, cursor: int | None = None, *more: str) -> AsyncIterator[Follower]:
    """Follow the events at ``url`` with a client of :data:`CLIENTS`; it is gone when the block ends."""
    text = "" if cursor is None else str(cursor)
    opened = _chromium(url, text) if name == "chromium" else _program(name, url, text, *more)
    async with opened as follower:
        yield follower
    assert follower.phantoms == []


@asynccontextmanager
async def _program(name: str, url: str, cursor: str, *more: str) -> AsyncIterator[Follower]:
    runner, script = PROGRAMS[name]
    if name == "eventsource":
        more = (json.dumps(TYPES),)
    elif runner == "node":
        more = (name.removeprefix("qwen-"), *more)
    follower = Follower(name)
    process = follower.process = await asyncio.create_subprocess_exec(
        runner, str(HERE / script), url, cursor, *more,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=clean_env(), limit=1 << 26,
    )  # fmt: skip
    listening = asyncio.create_task(_listen(process, follower))
    try:
        yield follower
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


async def _listen(process: asyncio.subprocess.Process, follower: Follower) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.endswith(b"\n"):
            follower.hear(json.loads(line))


SCRIPT = """([url, cursor, types]) => {
    const target = new URL(url);
    if (cursor) target.searchParams.set("last_event_id", cursor);
    const source = new EventSource(target);
    source.onopen = () => say({ state: "open" });
    source.onerror = () => say({ state: source.readyState === EventSource.CLOSED ? "closed" : "lost", code: null });
    for (const type of ["message", ...types])
        source.addEventListener(type, (event) => say({ event: type, id: event.lastEventId, data: event.data }));
}"""


@asynccontextmanager
async def _chromium(url: str, cursor: str) -> AsyncIterator[Follower]:
    """Follow with the EventSource of a page that comes from the same origin."""
    follower = Follower("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            page = await browser.new_page()
            await page.expose_function("say", follower.hear)
            await page.goto(url.split("/session/")[0] + "/livez")
            await page.evaluate(SCRIPT, [url, cursor, TYPES])
            yield follower
        finally:
            await browser.close()
