"""A real Prometheus that scrapes what a test runs, and what dashboards, alerts and runbooks ask it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml
from ops.prometheus.process import running

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "ops" / "prometheus" / "alerts.yml"
RUNBOOKS = ROOT / "ops" / "runbooks"
BOARDS = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
NAMES = re.compile(r"\b(?:ringmere|gnatsd_(?:varz|gatewayz|leafz)|jetstream)_[a-z_]+")
PROMQL = re.compile(r"```promql\n(.*?)```", re.DOTALL)

needs_prometheus = pytest.mark.skipif(
    None in (PROMETHEUS, PROMTOOL) and os.environ.get("CI") != "true",
    reason="there is no Prometheus; .ci/run installs it",
)


class Question(NamedTuple):
    """One expression of a panel and where it stands."""

    board: str
    panel: str
    expr: str


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each panel that shows something, with the name of its dashboard's file."""
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            if panel["type"] != "row":
                yield path.stem, panel


def questions() -> list[Question]:
    """Return every expression of every dashboard."""
    return [Question(board, panel["title"], target["expr"]) for board, panel in panels() for target in panel["targets"]]


def alerts() -> list[dict[str, Any]]:
    """Return the rules of all alerts."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def filled_in(expr: str, span: str) -> str:
    """Put values in the place of Grafana's variables; ``span`` is what rates are taken over."""
    filled = re.sub(r"\$(datacentre|job|instance|nats_job)\b", ".*", expr.replace("$__rate_interval", span))
    assert "$" not in filled, expr
    return filled


class Prometheus:
    """One that runs: ask it."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http

    async def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer; fail with the error in it."""
        async with self._http.get(f"{self._url}/api/v1/{path}", params=parameters) as answer:
            body = await answer.json()
            assert body["status"] == "success", f"{parameters}: {body.get('error')}"
            return body["data"]

    async def ask(self, expr: str) -> list[float]:
        """Return the values of an expression at this moment, without those that are no number."""
        result = (await self.get("query", query=expr))["result"]
        values = [float(series["value"][1]) for series in result]
        return [value for value in values if value == value]

    async def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        found = (await self.get("alerts"))["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] == "firing"}


def _configured(targets: Mapping[str, str], rules: Path, interval: str) -> dict[str, Any]:
    shipped: dict[str, Any] = yaml.safe_load((ALERTS.parent / "prometheus.yml").read_text())
    shipped["global"] = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval}
    shipped["rule_files"] = [str(rules)]
    shipped["scrape_configs"] = [each for each in shipped["scrape_configs"] if each["job_name"] in targets]
    for scrape in shipped["scrape_configs"]:
        scrape["static_configs"] = [{"targets": [targets[scrape["job_name"]]], "labels": {"datacentre": "here"}}]
    return shipped


@asynccontextmanager
async def prometheus(
    directory: Path, targets: Mapping[str, str], rules: Path = ALERTS, every: float = 0.5
) -> AsyncIterator[Prometheus]:
    """Run Prometheus with what is shipped; ``targets`` are host:port by job, scraped ``every`` so many seconds."""
    config = _configured(targets, rules, f"{int(every * 1000)}ms")
    async with running(directory, config) as url, aiohttp.ClientSession() as http:
        yield Prometheus(url, http)
