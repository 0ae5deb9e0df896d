"""Stands in for prometheus-nats-exporter: the same names and labels, made from a real server's monitoring pages.

The exporter itself is not to be had from a package of Debian or Python. It turns each number on ``/varz`` into
``gnatsd_varz_<name>``, and ``/jsz`` into what is listed here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

SERVER = {
    "jetstream_server_total_streams": "streams",
    "jetstream_server_total_consumers": "consumers",
    "jetstream_server_total_messages": "messages",
    "jetstream_server_total_message_bytes": "bytes",
}
STREAM = {
    "jetstream_stream_total_messages": "messages",
    "jetstream_stream_total_bytes": "bytes",
    "jetstream_stream_first_seq": "first_seq",
    "jetstream_stream_last_seq": "last_seq",
    "jetstream_stream_consumer_count": "consumer_count",
}
SETTINGS = {"jetstream_server_max_memory": "max_memory", "jetstream_server_max_storage": "max_storage"}


def metrics(varz: dict[str, Any], jsz: dict[str, Any]) -> str:
    """Return what the exporter would answer a scrape with."""
    at = {"server_id": varz["server_id"]}
    lines = [_line(f"gnatsd_varz_{name}", at, value) for name, value in varz.items() if type(value) in (int, float)]
    at |= {"server_name": varz["server_name"]}
    lines += [_line(name, at, jsz[field]) for name, field in SERVER.items()]
    lines += [_line(name, at, jsz["config"][field]) for name, field in SETTINGS.items()]
    for account in jsz["account_details"]:
        for stream in account["stream_detail"]:
            leader = stream.get("cluster", {}).get("leader", varz["server_name"])
            labels = {
                **at,
                "account": account["name"],
                "stream_name": stream["name"],
                "stream_leader": leader,
                "is_stream_leader": "true" if leader == varz["server_name"] else "false",
            }
            lines += [_line(name, labels, stream["state"][field]) for name, field in STREAM.items()]
    return "\n".join([*lines, ""])


def _line(name: str, labels: dict[str, str], value: float) -> str:
    inner = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value}"


@asynccontextmanager
async def exporter(monitor: str) -> AsyncIterator[str]:
    """Export the server whose monitoring is at ``monitor``; yield host and port."""

    async def scrape(request: web.BaseRequest) -> web.Response:
        async with http.get(f"{monitor}/varz") as varz, http.get(f"{monitor}/jsz?streams=true") as jsz:
            return web.Response(text=metrics(await varz.json(), await jsz.json()))

    async with aiohttp.ClientSession() as http:
        runner = web.ServerRunner(web.Server(scrape))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            host, port = runner.addresses[0][:2]
            yield f"{host}:{port}"
        finally:
            await runner.cleanup()
