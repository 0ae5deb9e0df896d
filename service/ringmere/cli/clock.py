"""Times as people read them: local, to the millisecond."""

from __future__ import annotations

from datetime import datetime

NO_TIME = "–"


def _moment(milliseconds: object) -> datetime | None:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000)
    except (OverflowError, OSError, ValueError):
        return None


def time_of_day(milliseconds: object) -> str:
    """Return ``14:03:59.120`` for milliseconds since 1970, ``–`` padded to the same width for anything else."""
    moment = _moment(milliseconds)
    return f"{NO_TIME:<12}" if moment is None else moment.strftime("%H:%M:%S.%f")[:-3]


def date_and_time(milliseconds: object) -> str:
    """Return ``2026-01-31 14:03:59`` for milliseconds since 1970, ``–`` for anything else."""
    moment = _moment(milliseconds)
    return NO_TIME if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")
