"""Every panel is whole, asks for what is counted, and shows something when a real gateway is loaded."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml
from ops.prometheus import nats_exporter as exporter
from ops.prometheus.loaded import linked

from ringmere.embedded import free_port
from ringmere.telemetry.table import rows
from support.gateway import gateway
from support.nats import eventually, running_server
from support.prometheus import (
    BOARDS,
    NAMES,
    PROMQL,
    ROOT,
    RUNBOOKS,
    Prometheus,
    alerts,
    filled_in,
    needs_prometheus,
    panels,
    prometheus,
    questions,
)

UNITS = {"short", "none", "percent", "percentunit", "s", "bytes", "Bps", "cps", "cpm"}
SPAN = "10s"
"""What rates are taken over here; a scrape comes every half second."""


def named(exprs: list[str]) -> set[str]:
    """Return the metrics that expressions name; a histogram by its own name."""
    histograms = {f"{row.name}_{end}": row.name for row in rows() if row.buckets for end in ("bucket", "count", "sum")}
    return {histograms.get(name, name) for expr in exprs for name in NAMES.findall(expr)}


def test_every_metric_that_a_dashboard_names_is_counted() -> None:
    for question in questions():
        names = named([question.expr])
        assert names, question
        nats = {name for name in names if not name.startswith(("ringmere_", "gnatsd_varz_"))}
        assert nats <= {*exporter.SERVER, *exporter.STREAM, *exporter.SETTINGS, *exporter.LINKS}, question
        assert {name for name in names if name.startswith("ringmere_")} <= {row.name for row in rows()}, question


def test_no_metric_is_missing_from_all_panels() -> None:
    shown = named([question.expr for question in questions()])
    assert {row.name for row in rows()} - shown == set()


@pytest.mark.parametrize(
    ("board", "panel"), list(panels()), ids=lambda each: each if isinstance(each, str) else each["title"]
)
def test_a_panel_has_a_title_a_unit_and_says_what_good_looks_like(board: str, panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert "Good: " in panel["description"]
    assert panel["targets"]
    assert {target["datasource"]["uid"] for target in [panel, *panel["targets"]]} == {"${datasource}"}


@pytest.mark.parametrize("question", questions(), ids=lambda each: f"{each.board}-{each.panel}")
def test_an_expression_is_right_however_many_workers_and_labels_there_are(question: Any) -> None:
    """It adds up, and every series of it can be chosen by the variables."""
    series = len(NAMES.findall(question.expr))
    chosen = 'job=~"$job",instance=~"$instance"' if "ringmere_" in question.expr else 'job=~"$nats_job"'
    where = 'datacentre=~"$datacentre",' if question.board == "datacentres" else ""
    assert question.expr.count(f"{{{where}{chosen}") == series
    assert any(question.expr.count(fold) for fold in ("sum", "max by", "max(", "min", "count"))


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_panels_do_not_overlap_and_have_numbers_of_their_own(board: Path) -> None:
    found = [panel for name, panel in panels() if name == board.stem]
    assert len({panel["id"] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in found:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_a_legend_names_only_labels_that_its_expression_keeps() -> None:
    for _, panel in panels():
        for target in panel["targets"]:
            kept = {label for by in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in by.split(", ")}
            assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= kept, panel["title"]


def test_provisioning_is_what_grafana_reads_and_its_readme_says_where() -> None:
    place = ROOT / "grafana" / "provisioning"
    [provider] = yaml.safe_load((place / "dashboards" / "ringmere.yml").read_text())["providers"]
    assert provider["type"] == "file"
    assert f"`{provider['options']['path']}`" in (ROOT / "grafana" / "README.md").read_text()
    [source] = yaml.safe_load((place / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)


# -- against a real Prometheus ------------------------------------------------------------------------------


async def follow(http: aiohttp.ClientSession, url: str, query: str) -> None:
    """Read a stream, and begin another one when it ends."""
    while True:
        with contextlib.suppress(aiohttp.ClientError):
            async with http.get(f"{url}/session/watched/events{query}") as answer:
                async for _ in answer.content:
                    pass


async def come_and_go(http: aiohttp.ClientSession, url: str) -> None:
    """Resume from the beginning, leave, and come again."""
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await follow(http, url, "?last_event_id=1")


async def publish(http: aiohttp.ClientSession, url: str) -> None:
    while True:
        async with http.post(f"{url}/session/watched/events", json={"type": "note", "data": "x" * 100}) as answer:
            assert answer.status in (201, 503), "the other worker may not be there yet"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def loaded(url: str) -> AsyncIterator[None]:
    """Publish, follow, resume and leave until the block ends."""
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
        load = [publish(http, url), *(follow(http, url, "") for _ in range(5)), come_and_go(http, url)]
        tasks = [group.create_task(each) for each in load]
        yield
        for task in tasks:
            task.cancel()


async def silent(ask: Prometheus) -> set[tuple[str, str, str]]:
    """Return the expressions that have no value now."""
    found = set()
    for question in questions():
        if not await ask.ask(filled_in(question.expr, SPAN)):
            found.add(question)
    return found


@needs_prometheus
async def test_every_panel_shows_something_and_no_alert_fires_at_a_loaded_gateway(tmp_path: Path) -> None:
    """The same Prometheus takes the questions of the runbooks and evaluates the shipped alerts."""
    monitor, leaf = f"127.0.0.1:{free_port()}", free_port()
    joined = f'http: "{monitor}"\nleafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{leaf}" }}] }}'
    async with (
        linked(tmp_path, leaf) as links,
        running_server(tmp_path / "nats", extra=joined) as nats,
        exporter.exporter(f"http://{monitor}", links) as exported,
        gateway(tmp_path / "gateway", "--workers", "2", nats_url=nats.url) as instance,
        prometheus(tmp_path / "prometheus", {"ringmere": urlsplit(instance.url).netloc, "nats": exported}) as ask,
        loaded(instance.url),
    ):
        missing: set[tuple[str, str, str]] = set(questions())

        async def all_answered() -> bool:
            missing.clear()
            missing.update(await silent(ask))
            return not missing

        with contextlib.suppress(AssertionError):
            await eventually(all_answered, "every expression has a value", 30.0)
        assert missing == set()
        for book in RUNBOOKS.glob("*.md"):
            for expr in PROMQL.findall(book.read_text()):
                await ask.get("query", query=expr)
        groups = (await ask.get("rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert {rule["name"]: rule["health"] for rule in rules} == {rule["alert"]: "ok" for rule in alerts()}
        assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
