"""Ask a gateway who is furthest behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

from ringmere.client.sessions import TIMEOUT, get


async def list_readers(url: str, limit: int, *, headers: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return at most ``limit`` (1..1000) readers of all sessions, the one furthest behind first.

    Raises :class:`~ringmere.client.errors.Refused`, or ``Unreachable`` when nothing answers.
    """
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=headers) as http:
        answer = await get(http, f"{url.rstrip('/')}/readers", {"limit": str(limit)})
    rows: list[dict[str, Any]] = answer.get("readers", [])
    return rows
