"""The shipped alerts in a shorter time: all that is a time is divided by one factor, all that is a number stays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ALERTS = Path(__file__).resolve().parents[1] / "prometheus" / "alerts.yml"
SHIPPED = ALERTS.with_name("prometheus.yml")
_DURATION = re.compile(r"(\d+)(ms|s|m|h)")
_RANGE = re.compile(r"\[(\d+(?:ms|s|m|h))\]")
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def alerts() -> list[dict[str, Any]]:
    """Return the rules of all alerts as they are shipped."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def shorter(duration: str, factor: float) -> str:
    """Return a duration of Prometheus divided by ``factor``, in milliseconds."""
    found = _DURATION.fullmatch(duration)
    assert found is not None, duration
    return f"{round(int(found[1]) * _MS[found[2]] / factor)}ms"


def scaled(expr: str, factor: float) -> str:
    """Return an expression whose ranges are divided by ``factor``."""
    return _RANGE.sub(lambda found: f"[{shorter(found[1], factor)}]", expr)


def rules(factor: float) -> dict[str, Any]:
    """Return the shipped file of alerts with every ``for`` and every range divided by ``factor``."""
    found: dict[str, Any] = yaml.safe_load(ALERTS.read_text())
    for group in found["groups"]:
        for rule in group["rules"]:
            rule["expr"] = scaled(rule["expr"], factor)
            if "for" in rule:
                rule["for"] = shorter(rule["for"], factor)
    return found


def configuration(factor: float, rule_file: Path, targets: Sequence[str]) -> dict[str, Any]:
    """Return the shipped configuration of Prometheus for ``targets`` (host:port), its intervals divided as well."""
    found: dict[str, Any] = yaml.safe_load(SHIPPED.read_text())
    every = {name: shorter(found["global"][name], factor) for name in ("scrape_interval", "evaluation_interval")}
    found["global"] = {**every, "scrape_timeout": every["scrape_interval"]}
    found["rule_files"] = [str(rule_file)]
    found["scrape_configs"] = [
        {**job, "static_configs": [{"targets": list(targets)}]}
        for job in found["scrape_configs"]
        if job["job_name"] == "ringmere"
    ]
    return found
