"""A browser's own WebSocket: pages of the same host follow with it, pages of another are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright

from support.chromium import ARGUMENTS, CHROMIUM
from support.doors import Gateway, Start

pytestmark = pytest.mark.skipif(
    not Path(CHROMIUM).exists() and os.environ.get("CI") != "true",
    reason=f"no {CHROMIUM}; install the Debian package chromium",
)

FOLLOW = """url => new Promise(done => {
    const seen = [], socket = new WebSocket(url);
    window.seen = seen;
    socket.onmessage = event => seen.push(JSON.parse(event.data));
    socket.onclose = event => done({seen, code: event.code, reason: event.reason});
})"""


async def _follow(page: Page, reader: Gateway, closer: Gateway | None = None) -> dict[str, Any]:
    """Follow a session from the page until its stream is closed, publishing meanwhile."""
    url = f"ws://127.0.0.1:{reader.port}/session/s/ws"
    await page.evaluate(f"url => {{ window.following = ({FOLLOW})(url) }}", url)
    if closer is not None:
        await page.wait_for_function("window.seen.length === 1")
        await closer.publish("s", "täxt")
        await closer.post("s", {"type": "session_closed", "data": {}})
    found: dict[str, Any] = await page.evaluate("() => window.following")
    return found


async def test_the_page_of_a_gateway_may_follow_over_websocket_and_a_strange_one_may_not(start: Start) -> None:
    gateway = await start()
    strange = await start()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = await browser.new_page()
        await page.goto(f"http://127.0.0.1:{gateway.port}/livez")
        told = await _follow(page, gateway, gateway)
        assert [frame["type"] for frame in told["seen"]] == ["stream_opened", "t", "session_closed"]
        assert told["seen"][1]["data"] == "täxt"
        assert (told["code"], told["reason"]) == (4002, "session_closed")
        await page.goto(f"http://127.0.0.1:{strange.port}/livez")
        refused = await _follow(page, gateway)
        assert (refused["seen"], refused["code"]) == ([], 1006)
        await browser.close()
