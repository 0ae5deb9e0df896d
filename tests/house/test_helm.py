"""What the chart repeats is equal to where it comes from."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml
from ops.helm.__main__ import CHART, README, SCHEMA, readme, schema, written

from ringmere.settings import rows
from ringmere.settings.kinds import SWITCH

ROOT = Path(__file__).resolve().parents[2]
AGAIN = "run `python -m ops.helm`"


def test_the_values_schema_knows_each_setting_and_no_other() -> None:
    assert SCHEMA.read_text() == written(schema()), AGAIN


def test_the_charts_readme_has_the_table_of_values_as_it_is_generated() -> None:
    assert README.read_text() == readme(), AGAIN


def test_every_value_that_is_not_a_bag_of_its_own_is_described() -> None:
    def undescribed(part: dict[str, object], where: str) -> list[str]:
        inner = part.get("properties")
        if "description" in part or not isinstance(inner, dict):
            return [] if "description" in part else [where]
        return [found for name, each in inner.items() for found in undescribed(each, f"{where}.{name}")]

    assert undescribed(schema(), "values") == []


def test_each_setting_that_the_chart_does_not_make_can_be_set_in_its_own_form() -> None:
    known = schema()["properties"]["settings"]["properties"]
    for row in rows():
        if row.name in known:
            assert (known[row.name].get("type") == "boolean") == (row.kind is SWITCH), row.name
        else:
            assert row.secret or row.name.startswith("nats_") or row.name in {"listen", "embedded", "data_dir"}, (
                row.name
            )


def test_the_chart_is_of_the_version_that_it_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == project["version"]


def test_alerts_and_dashboards_of_the_chart_are_the_repositorys_own_files() -> None:
    assert (CHART / "files" / "alerts.yml").resolve() == ROOT / "ops" / "prometheus" / "alerts.yml"
    assert (CHART / "files" / "dashboards").resolve() == ROOT / "grafana" / "dashboards"
