"""How the text of a flag or variable becomes a value, and how a value is shown again."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from ringmere.core.coalesce import parse_rule

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "": 1,
    "b": 1,
    "k": 1024,
    "kib": 1024,
    "m": 1024**2,
    "mib": 1024**2,
    "g": 1024**3,
    "gib": 1024**3,
    "tib": 1024**4,
}
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class SettingError(ValueError):
    """A setting has a value it cannot have; the text names the flag or variable and what is allowed."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. ``parse`` raises ``ValueError`` with what is expected."""

    name: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str]
    many: bool = False
    """Whether the flag may be repeated; the variable takes the same separated by commas."""


def _whole(text: str) -> int:
    digits = text.replace("_", "")
    if not digits.isascii() or not digits.isdigit():
        raise ValueError("a whole number")
    return int(digits)


def _scaled(text: str, units: Mapping[str, float], expected: str) -> float:
    match = _NUMBER.fullmatch(text.strip())
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(expected)
    value = float(match[1]) * factor
    if not math.isfinite(value):
        raise ValueError(expected)
    return value


def _duration(text: str) -> float:
    return float(_scaled(text, _SECONDS, "a duration like 90, 500ms, 15s, 10m, 1h or 7d"))


def _size(text: str) -> int:
    return int(_scaled(text, _BYTES, "a size like 65536, 64KiB, 2MiB or 1GiB"))


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise ValueError("true or false")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def _rules(text: str) -> tuple[str, ...]:
    rules = _words(text)
    try:
        types = [parse_rule(rule)[0] for rule in rules]
    except ValueError as error:
        raise ValueError(f"TYPE=/data/… ({error})") from error
    if len(set(types)) < len(types):
        raise ValueError("one rule for each type")
    return rules


def _networks(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(ip_network(word)) for word in _words(text))
    except ValueError as error:
        raise ValueError(f"addresses or networks like 10.0.0.0/8 or ::1 ({error})") from error


def _show_duration(value: float) -> str:
    for unit in ("d", "h", "m"):
        if value >= _SECONDS[unit] and value % _SECONDS[unit] == 0:
            return f"{value / _SECONDS[unit]:.0f}{unit}"
    return f"{value:g}s"


def _show_size(value: int) -> str:
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        factor = _BYTES[unit.lower()]
        if value >= factor and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value)


NUMBER = Kind("number", _whole, str)
DURATION = Kind("duration", _duration, _show_duration)
SIZE = Kind("size", _size, _show_size)
SWITCH = Kind("switch", _switch, lambda value: "true" if value else "false")
TEXT = Kind("text", str.strip, str)
WORDS = Kind("list", _words, ",".join, many=True)
NETWORKS = Kind("list", _networks, ",".join, many=True)
RULES = Kind("list", _rules, ",".join, many=True)
