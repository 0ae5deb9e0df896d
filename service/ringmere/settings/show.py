"""The table of settings as people read it: in the README and from ``ringmere settings``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ringmere.settings.kinds import SWITCH
from ringmere.settings.load import Loaded, allowed
from ringmere.settings.table import GROUPS, Row, rows


def markdown() -> str:
    """Return the README's table; a test keeps the README equal to it."""
    lines = ["| flag | variable | default | allowed | meaning |", "| --- | --- | --- | --- | --- |"]
    for row in rows():
        flag = f"`{row.flag}`" if row.flag else "(variable only)"
        lines.append(f"| {flag} | `{row.variable}` | {default(row)} | {choice(row)} | {row.help} |")
    return "\n".join(lines)


def default(row: Row) -> str:
    """Return a row's default as it would be typed; 0 and nothing are said in words."""
    if row.zero is not None and row.default == 0:
        return f"0 ({row.zero})"
    return row.kind.show(row.default) or "–"


def choice(row: Row) -> str:
    """Return what a row's value may be."""
    if row.choices:
        return ", ".join(row.choices)
    if row.kind is SWITCH:
        return "true, false"
    if row.low is None:
        return row.kind.name
    zero = " or 0" if row.zero is not None and row.low > 0 else ""
    return allowed(row) + zero


def effective(loaded: Loaded) -> Iterator[dict[str, Any]]:
    """Yield each setting with its value in force, as text, and its source; secrets are masked."""
    for row in rows():
        value = getattr(loaded.settings, row.name)
        shown = "***" if row.secret and value else _without_password(row.kind.show(value))
        yield {
            "name": row.name,
            "group": GROUPS[row.group],
            "value": shown,
            "source": loaded.sources[row.name],
            "flag": row.flag,
            "variable": row.variable,
            "allowed": choice(row),
            "help": row.help,
        }


def _without_password(text: str) -> str:
    """Return URLs without the secret that may stand before ``@``: everything behind the user's name, or a token."""
    if "://" not in text:
        return text
    shown = []
    for url in text.split(","):
        scheme, _, rest = url.partition("://")
        login, at, host = rest.rpartition("@")
        name, colon, _ = login.partition(":")
        hidden = f"{name}:***" if colon else "***"
        shown.append(f"{scheme}://{hidden}@{host}" if at else url)
    return ",".join(shown)
