"""Short ways to talk to a running instance by its address."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from support.nats import eventually
from support.raw_http import Answer, Stream, connect, fetch, request_bytes

_SAMPLE = re.compile(r"^(ringmere_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


def port_of(url: str) -> int:
    """Return the port of an address."""
    port = urlsplit(url).port
    assert port is not None
    return port


def numbers(count: int, first: int = 1) -> list[dict[str, Any]]:
    """Return so many events that count from ``first``."""
    return [{"type": "t", "data": {"n": n}} for n in range(first, first + count)]


async def publish(url: str, session: str, events: list[dict[str, Any]]) -> list[int]:
    """Publish events as one batch and return their ids."""
    async with aiohttp.ClientSession() as http, http.post(f"{url}/session/{session}/events", json=events) as answer:
        assert answer.status == 201, await answer.text()
        return [row["id"] for row in (await answer.json())["results"]]


async def get(url: str, target: str, **headers: str) -> Answer:
    """Return the whole answer to a GET."""
    return await fetch(port_of(url), "GET", target, headers)


async def open_stream(url: str, session: str, cursor: int | None = None, query: str = "") -> Stream:
    """Open a stream and read its headers."""
    connection = await connect(port_of(url))
    headers = {} if cursor is None else {"Last-Event-ID": str(cursor)}
    await connection.send(request_bytes("GET", f"/session/{session}/events{query}", headers))
    answer = await connection.head()
    assert answer.status == 200, answer
    return Stream(connection, answer)


async def metrics(url: str) -> dict[str, float]:
    """Return the samples of a scrape by ``name`` or ``name{labels}``."""
    text = (await get(url, "/metrics")).body.decode()
    return {f"{name}{{{labels}}}" if labels else name: float(value) for name, labels, value in _SAMPLE.findall(text)}


async def total(url: str, name: str, **labels: str) -> float:
    """Return the sum of the samples of a metric that have all these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    samples = (await metrics(url)).items()
    return sum(value for key, value in samples if key.split("{")[0] == name and all(part in key for part in wanted))


async def has_readers(url: str, count: int) -> None:
    """Wait until an instance has so many open streams."""

    async def so_many() -> bool:
        return await total(url, "ringmere_subscribers") == count

    await eventually(so_many, f"{count} open streams")
