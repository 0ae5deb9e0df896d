"""Keep what the chart repeats equal to where it comes from: ``python -m ops.helm`` writes both.

The settings in ``values.schema.json`` come from the table of settings, the table of values in ``README.md`` from the
schema and ``values.yaml``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ringmere.settings import Row, rows
from ringmere.settings.kinds import NUMBER, SWITCH

CHART = Path(__file__).parent / "ringmere"
SCHEMA, VALUES, README = CHART / "values.schema.json", CHART / "values.yaml", CHART / "README.md"
BEGIN, END = "<!-- values: `python -m ops.helm` -->\n", "<!-- end of values -->\n"
MADE_BY_THE_CHART = {"listen", "embedded", "data_dir"}


def settable() -> list[Row]:
    """Return the settings that stand under ``settings:``; the chart makes the others, or a Secret holds them."""
    return [row for row in rows() if not (row.name in MADE_BY_THE_CHART or row.name.startswith("nats_") or row.secret)]


def described(row: Row) -> dict[str, Any]:
    """Return what the schema says of a setting. Whether its value is in range is told by the instance."""
    if row.choices:
        return {"enum": list(row.choices), "description": row.help}
    if row.kind is SWITCH:
        return {"type": "boolean", "description": row.help}
    if row.kind.many:
        return {"type": ["array", "string"], "items": {"type": "string"}, "description": row.help}
    types = ["integer", "string"] if row.kind is NUMBER else ["number", "string"]
    return {"type": types, "description": row.help}


def schema() -> dict[str, Any]:
    """Return the schema with the settings that there are."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text())
    found["properties"]["settings"]["properties"] = {row.name: described(row) for row in settable()}
    return found


def values(part: dict[str, Any], defaults: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield name, default and meaning of each value that the schema describes."""
    for name, inner in part["properties"].items():
        if name == "global":
            continue
        if "description" in inner:
            yield prefix + name, defaults[name], inner["description"]
        else:
            yield from values(inner, defaults[name], f"{prefix}{name}.")


def table() -> str:
    """Return the README's table of values."""
    lines = ["| value | default | meaning |", "| --- | --- | --- |"]
    for name, default, meaning in values(schema(), yaml.safe_load(VALUES.read_text())):
        lines.append(f"| `{name}` | `{json.dumps(default)}` | {meaning} |")
    return "\n".join(lines) + "\n"


def readme() -> str:
    """Return the README with the table in its place."""
    text = README.read_text()
    return f"{text[: text.index(BEGIN)]}{BEGIN}\n{table()}\n{text[text.index(END) :]}"


def written(found: dict[str, Any]) -> str:
    """Return the schema as it stands in its file."""
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(written(schema()))
    README.write_text(readme())
