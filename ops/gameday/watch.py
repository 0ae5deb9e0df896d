"""What Prometheus says of the alerts, written down as it changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import aiohttp

EVERY = 0.2
"""Seconds between two looks at the alerts."""


class GamedayError(RuntimeError):
    """Something did not come as it should; the text says what."""


class Change(NamedTuple):
    """An alert that came into another state, ``at`` by the monotonic clock."""

    at: float
    alert: str
    state: str
    """``pending``, ``firing`` or ``over``."""


class Watch:
    """Asks the Prometheus at ``url``. ``changes`` are all that :meth:`run` has seen so far."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.changes: list[Change] = []
        self._url = url
        self._http = http
        self._states: dict[str, str] = {}

    async def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer. Raises :class:`GamedayError` with Prometheus's words."""
        async with self._http.get(f"{self._url}/api/v1/{path}", params=parameters) as answer:
            body = await answer.json()
        if body["status"] != "success":
            raise GamedayError(f"{parameters}: {body.get('error')}")
        return body["data"]

    async def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series of an expression at this moment."""
        result = (await self.get("query", query=expr))["result"]
        return [(row["metric"], float(row["value"][1])) for row in result]

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self._note(await self.get("alerts"))
            await asyncio.sleep(EVERY)

    def _note(self, data: Any) -> None:
        now = time.monotonic()
        seen: dict[str, str] = {}
        for alert in data["alerts"]:
            name = alert["labels"]["alertname"]
            if seen.get(name) != "firing":
                seen[name] = alert["state"]
        for name in {*seen, *self._states}:
            state = seen.get(name, "over")
            if state != self._states.get(name, "over"):
                self.changes.append(Change(now, name, state))
        self._states = seen

    def forget(self) -> None:
        """Begin anew: what stirred before Prometheus knew the gateways says nothing."""
        self.changes.clear()

    @property
    def firing(self) -> set[str]:
        """The alerts that fire now."""
        return {name for name, state in self._states.items() if state == "firing"}

    @property
    def stirring(self) -> set[str]:
        """The alerts that fire or are pending now."""
        return set(self._states)

    def ever(self, state: str) -> set[str]:
        """Return the alerts that have been in a state at least once."""
        return {change.alert for change in self.changes if change.state == state}

    async def until(self, condition: Callable[[], bool], what: str, within: float) -> None:
        """Wait until ``condition()`` holds. Raises :class:`GamedayError` when it does not in time."""
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() > deadline:
                raise GamedayError(f"not within {within:g} s: {what}; alerts now: {self._states or 'none'}")
            await asyncio.sleep(EVERY / 2)
