"""The page in a real browser: list, follow, text stays text, drops are survived, hidden tabs let go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from support.chromium import ARGUMENTS, CHROMIUM
from support.doors import Gateway, Start, running
from support.raw_http import fetch

FORGED = "<img src=x onerror=alert(1)>"

pytestmark = pytest.mark.skipif(
    not Path(CHROMIUM).exists() and os.environ.get("CI") != "true",
    reason=f"no {CHROMIUM}; install the Debian package chromium",
)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        await launched.close()


class Faults:
    """What no page may do: throw, break its own policy, open a dialog."""

    def __init__(self, page: Page) -> None:
        self.seen: list[str] = []
        page.on("pageerror", lambda error: self.seen.append(f"thrown: {error}"))
        page.on("dialog", self._dialog)
        page.on("console", lambda message: self._console(message.text))

    async def _dialog(self, dialog: Any) -> None:
        self.seen.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def _console(self, text: str) -> None:
        if "Content Security Policy" in text or "Refused to" in text:
            self.seen.append(text)


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    opened = await browser.new_page(viewport={"width": 1280, "height": 800})
    faults = Faults(opened)
    yield opened
    assert faults.seen == []


async def _open(page: Page, gateway: Gateway, session: str = "") -> None:
    await page.goto(f"http://127.0.0.1:{gateway.port}/" + (f"#{session}" if session else ""))


async def _live(page: Page) -> None:
    await expect(page.locator("#state")).to_have_attribute("data-state", "live")


async def test_sessions_are_listed_and_one_is_followed_from_its_start(start: Start, page: Page) -> None:
    gateway = await start()
    await gateway.numbers("turn-1", 3)
    await gateway.numbers("turn-2", 1)
    await _open(page, gateway)
    await expect(page.locator("#sessions li")).to_have_count(2)
    await expect(page.locator("#instance")).to_have_text("ready")
    await page.get_by_role("button", name="turn-1").click()
    await _live(page)
    await expect(page.locator("#events li .id")).to_have_text(["1", "2", "3"])
    await gateway.publish("turn-1", {"text": "later"})
    row = page.locator("#events li").nth(3)
    await expect(row.locator(".type")).to_have_text("t")
    await expect(row.locator(".data")).to_have_text('{"text":"later"}')
    await expect(page.locator("#last-id")).to_have_text("5")
    await expect(page.locator("#count")).to_have_text("4")


async def test_the_list_is_narrowed_to_ids_that_begin_like_what_is_typed(start: Start, page: Page) -> None:
    gateway = await start()
    for session in ("build-1", "build-2", "review-1"):
        await gateway.numbers(session, 1)
    await _open(page, gateway)
    await expect(page.locator("#sessions li")).to_have_count(3)
    await page.locator("#prefix").fill("build-")
    await expect(page.locator("#sessions .name")).to_have_text(["build-1", "build-2"])
    await page.locator("#prefix").press("Enter")
    await expect(page.locator("#sessions .name")).to_have_text(["build-1", "build-2"])
    await page.locator("#prefix").fill("nothing")
    await expect(page.locator("#no-match")).to_have_text("No session begins with nothing.")
    await expect(page.locator("#no-sessions")).to_be_hidden()
    await page.locator("#prefix").fill("a.*")
    await expect(page.locator("#no-match")).to_contain_text("characters of a session id")
    await page.locator("#prefix").fill("")
    await expect(page.locator("#sessions li")).to_have_count(3)
    await expect(page.locator("#no-match")).to_be_hidden()


async def test_obs_3_forged_markup_is_shown_as_text(start: Start, page: Page) -> None:
    gateway = await start()
    answer = await gateway.post("s1", {"type": FORGED, "data": {FORGED: FORGED}})
    assert answer.status == 201
    await _open(page, gateway, "s1")
    row = page.locator("#events li").first
    await expect(row.locator(".type")).to_have_text(FORGED)
    await expect(row.locator(".data")).to_contain_text(FORGED)
    assert await page.locator("#events img").count() == 0


async def test_an_event_is_published_from_the_page(start: Start, page: Page) -> None:
    gateway = await start()
    await _open(page, gateway)
    await page.locator("#fresh").click()
    await _live(page)
    await page.locator("#type").fill("hello")
    await page.locator("#data").fill('{"to": "world"}')
    await page.get_by_role("button", name="Publish").click()
    await expect(page.locator("#outcome")).to_have_text("stored as 1")
    await expect(page.locator("#events li .type")).to_have_text(["hello"])
    await page.locator("#type").fill("client_evicted")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.locator("#outcome")).to_contain_text("reserved")
    await page.locator("#data").fill("{")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.locator("#outcome")).to_have_text("data is not JSON")


async def _bad_gateway(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as a proxy does whose upstream is away."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


async def _pass_time_until(page: Page, state: str) -> None:
    """Let the page's clock run in small steps until its stream is in a state."""
    async with asyncio.timeout(20):
        while await page.locator("#state").get_attribute("data-state") != state:
            await page.clock.run_for(500)


async def test_prx_5_an_instance_that_was_away_behind_a_proxy_costs_no_event(start: Start, page: Page) -> None:
    gateway = await start()
    await gateway.numbers("s1", 2)
    await page.clock.install()
    await _open(page, gateway, "s1")
    await _live(page)
    await expect(page.locator("#events li .id")).to_have_text(["1", "2"])
    await gateway.hub.close()
    await gateway.listener.close()
    async with await asyncio.start_server(_bad_gateway, "127.0.0.1", gateway.port):
        await _pass_time_until(page, "connecting")
        await _pass_time_until(page, "waiting")
        await page.clock.run_for(6_000)
        await expect(page.locator("#instance")).to_have_text("unreachable")
        await expect(page.locator("#state")).to_contain_text("502")
    async with running(log=gateway.log, port=gateway.port) as back:
        await back.numbers("s1", 1)
        await _pass_time_until(page, "live")
        await expect(page.locator("#events li .id")).to_have_text(["1", "2", "3", "control"])
        await expect(page.locator("#events li.control .type")).to_have_text(["replay_complete"])
        await expect(page.locator("#last-id")).to_have_text("3")


async def test_prx_4_a_hidden_tab_holds_no_stream_and_catches_up_when_it_is_seen_again(
    start: Start, page: Page
) -> None:
    gateway = await start()
    await gateway.numbers("s1", 1)
    await _open(page, gateway, "s1")
    await _live(page)
    assert gateway.readers() == 1
    await _show(page, hidden=True)
    await gateway.until(lambda: gateway.readers() == 0, "the tab to let go")
    await expect(page.locator("#state")).to_have_text("paused")
    await gateway.numbers("s1", 1)
    await _show(page, hidden=False)
    await expect(page.locator("#events li:not(.control) .id")).to_have_text(["1", "2"])
    assert gateway.readers() == 1
    await page.goto("about:blank")
    await gateway.until(lambda: gateway.readers() == 0, "the page left behind to let go")


async def _show(page: Page, *, hidden: bool) -> None:
    script = """hidden => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    await page.evaluate(script, hidden)


async def test_prx_4_four_tabs_and_a_publish_fit_into_a_browsers_connections(start: Start, browser: Browser) -> None:
    gateway = await start()
    context = await browser.new_context()
    pages = [await context.new_page() for _ in range(4)]
    for page in pages:
        await _open(page, gateway, "s1")
    for page in pages:
        await _live(page)
    assert gateway.readers() == 4
    await pages[-1].get_by_role("button", name="Publish").click()
    for page in pages:
        await expect(page.locator("#events li .id")).to_have_text(["1"])
    await context.close()
    await gateway.until(lambda: gateway.readers() == 0)


async def test_prx_6_a_closed_session_ends_and_is_not_asked_for_again(start: Start, page: Page) -> None:
    gateway = await start()
    await gateway.numbers("s1", 2)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("events") else None)
    await page.clock.install()
    await _open(page, gateway, "s1")
    await _live(page)
    await fetch(gateway.port, "DELETE", "/session/s1")
    await _pass_time_until(page, "ended")
    await expect(page.locator("#events li .type")).to_have_text(["t", "t", "session_closed"])
    before = len(asked)
    await page.clock.run_for(300_000)
    assert len(asked) == before


async def test_a_session_id_that_is_none_is_refused_with_its_reason(start: Start, page: Page) -> None:
    gateway = await start()
    await _open(page, gateway)
    await page.locator("#open-id").fill("a b")
    await page.get_by_role("button", name="Follow").click()
    await expect(page.locator("#state")).to_have_attribute("data-state", "failed")
    await expect(page.locator("#state")).to_contain_text("a session id is 1 to 128 characters")
    await page.locator("#open-id").fill("a:b@c=d")
    await page.get_by_role("button", name="Follow").click()
    await _live(page)


async def test_it_can_be_disconnected_and_connected_by_hand(start: Start, page: Page) -> None:
    gateway = await start()
    await gateway.numbers("s1", 1)
    await _open(page, gateway, "s1")
    await _live(page)
    await page.locator("#toggle").click()
    await gateway.until(lambda: gateway.readers() == 0)
    await expect(page.locator("#state")).to_have_text("stopped")
    await gateway.numbers("s1", 1)
    await page.get_by_role("button", name="Connect", exact=True).click()
    await expect(page.locator("#events li:not(.control) .id")).to_have_text(["1", "2"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_can_be_looked_at(start: Start, page: Page, tmp_path: Path, scheme: Any) -> None:
    gateway = await start(ring_size=20)
    await page.emulate_media(color_scheme=scheme)
    for session in ("build-agent", "review:42", "night~run"):
        await gateway.numbers(session, 4)
    await fetch(gateway.port, "DELETE", "/session/night~run")
    await gateway.post("build-agent", {"type": "session_update", "data": {"text": "Reading the test results. " * 20}})
    await _open(page, gateway, "build-agent")
    await _live(page)
    await page.locator("#toggle").click()
    await gateway.numbers("build-agent", 1)
    await page.locator("#toggle").click()
    await expect(page.locator("#events li.control")).to_have_count(1)
    control, event = page.locator("#events li.control"), page.locator("#events li:not(.control)").first
    shade = "element => getComputedStyle(element).backgroundColor"
    assert await control.evaluate(shade) != await event.evaluate(shade)
    picture = tmp_path / f"page-{scheme}.png"
    await page.screenshot(path=picture)
    assert picture.stat().st_size > 10_000
    ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(246, 247, 248)", "dark": "rgb(17, 23, 26)"}[scheme]
    overflow = await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert not overflow
