"""Durations and sizes on a command line, spelt as settings are."""

from __future__ import annotations

from ringmere.core.errors import InvalidParameter
from ringmere.settings.kinds import DURATION, SIZE, Kind
from ringmere.verify.plan import MAX_SIZE


def duration_of(flag: str, text: str | None, default: float) -> float:
    """Return the seconds that ``text`` spells. Raises ``InvalidParameter`` with the flag's name."""
    return default if text is None else float(_parsed(flag, text, DURATION))


def positive(flag: str, value: float) -> float:
    """Return ``value``, or raise ``InvalidParameter`` when it is not above 0."""
    if value <= 0:
        raise InvalidParameter("invalid_duration", f"{flag} must be above 0")
    return value


def size_of(flag: str, text: str) -> int:
    """Return the bytes that ``text`` spells, at most what an event may have."""
    value = int(_parsed(flag, text, SIZE))
    if value > MAX_SIZE:
        raise InvalidParameter("invalid_size", f"{flag} is at most {MAX_SIZE} bytes")
    return value


def _parsed(flag: str, text: str, kind: Kind) -> float | int:
    try:
        value: float | int = kind.parse(text)
    except ValueError as error:
        raise InvalidParameter("invalid_value", f"{flag}: {text!r} is not {error}") from None
    return value
