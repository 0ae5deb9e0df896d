"""Stands in for prometheus-nats-exporter: the same names and labels, made from a real server's monitoring pages.

The exporter itself is not to be had from a package of Debian or Python. It turns each number on ``/varz`` into
``gnatsd_varz_<name>``, and ``/jsz``, ``/gatewayz``, ``/leafz`` into what is listed here.
"""

from __future__ import annotations

import re
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
GATEWAY = {
    "conn_rtt": "rtt",
    "conn_pending_bytes": "pending_bytes",
    "conn_in_msgs": "in_msgs",
    "conn_out_msgs": "out_msgs",
    "conn_in_bytes": "in_bytes",
    "conn_out_bytes": "out_bytes",
    "conn_subscriptions": "subscriptions",
}
"""Behind ``gnatsd_gatewayz_outbound_gateway_`` and ``gnatsd_gatewayz_inbound_gateway_``."""
LEAF = {
    "conn_rtt": "rtt",
    "conn_in_msgs": "in_msgs",
    "conn_out_msgs": "out_msgs",
    "conn_in_bytes": "in_bytes",
    "conn_out_bytes": "out_bytes",
    "conn_subscriptions_total": "subscriptions",
}
"""Behind ``gnatsd_leafz_``."""
LEAFS = "gnatsd_leafz_conn_nodes_total"
LINKS = {
    LEAFS,
    *(f"gnatsd_leafz_{name}" for name in LEAF),
    *(f"gnatsd_gatewayz_{way}bound_gateway_{name}" for way in ("in", "out") for name in GATEWAY),
}
"""All names of what connects clusters and sites."""
SETTINGS = {"jetstream_server_max_memory": "max_memory", "jetstream_server_max_storage": "max_storage"}


PAGES = ("varz", "jsz?streams=true", "gatewayz", "leafz")


def metrics(varz: dict[str, Any], jsz: dict[str, Any], gatewayz: dict[str, Any], leafz: dict[str, Any]) -> list[str]:
    """Return what the exporter would answer a scrape with, of one server."""
    at = {"server_id": varz["server_id"]}
    lines = [_line(f"gnatsd_varz_{name}", at, value) for name, value in varz.items() if type(value) in (int, float)]
    lines += _gateways(at, gatewayz) + _leafs(at, leafz)
    return lines if jsz.get("disabled") else lines + _jetstream({**at, "server_name": varz["server_name"]}, varz, jsz)


def _gateways(at: dict[str, str], gatewayz: dict[str, Any]) -> list[str]:
    remotes = [("outbound", name, each) for name, each in gatewayz.get("outbound_gateways", {}).items()]
    remotes += [("inbound", name, each) for name, all_ in gatewayz.get("inbound_gateways", {}).items() for each in all_]
    lines = []
    for way, name, remote in remotes:
        found = remote["connection"]
        labels = {"gateway_name": gatewayz["name"], "cid": str(found["cid"]), "remote_gateway_name": name, **at}
        lines += [
            _line(f"gnatsd_gatewayz_{way}_gateway_{each}", labels, _value(found, f)) for each, f in GATEWAY.items()
        ]
    return lines


def _leafs(at: dict[str, str], leafz: dict[str, Any]) -> list[str]:
    lines = [_line(LEAFS, at, leafz["leafnodes"])]
    for leaf in leafz.get("leafs") or []:
        named = {name: str(leaf[name]) for name in ("account", "ip", "port", "name")}
        labels = {**at, **named, "account_id": leaf["account"]}
        lines += [_line(f"gnatsd_leafz_{each}", labels, _value(leaf, field)) for each, field in LEAF.items()]
    return lines


def _value(found: dict[str, Any], field: str) -> float:
    """Return a number, or a time as Go writes it (``1.5ms``) in seconds."""
    value = found.get(field, 0)
    if not isinstance(value, str):
        return float(value)
    units = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
    number, unit = re.fullmatch(r"([0-9.]+)(ns|µs|ms|s)", value).groups()  # type: ignore[union-attr]
    return float(number) * units[unit]


def _jetstream(at: dict[str, str], varz: dict[str, Any], jsz: dict[str, Any]) -> list[str]:
    lines = []
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
    return lines


def _line(name: str, labels: dict[str, str], value: float) -> str:
    inner = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value}"


@asynccontextmanager
async def exporter(*monitors: str) -> AsyncIterator[str]:
    """Export the servers whose monitoring is at ``monitors``; yield host and port."""

    async def page(monitor: str, name: str) -> dict[str, Any]:
        async with http.get(f"{monitor}/{name}") as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def scrape(request: web.BaseRequest) -> web.Response:
        servers = [metrics(*[await page(monitor, name) for name in PAGES]) for monitor in monitors]
        return web.Response(text="\n".join([*(line for server in servers for line in server), ""]))

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
