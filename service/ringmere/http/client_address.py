"""Who reads, when proxies stand in between: only those that the operator trusts are believed.

A proxy appends the address it was called from to ``X-Forwarded-For``, so the field grows to the right and a
client can write whatever it likes to the left. It is read from the right, and only as long as the one who has
written an entry is trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp import web

FORWARDED_FOR = "X-Forwarded-For"

Network = IPv4Network | IPv6Network


def client_of(request: web.BaseRequest, trusted: Sequence[Network]) -> str | None:
    """Return the address of a request's client, None when its connection has gone."""
    peer = request.remote
    if peer is None or not trusted:
        return peer
    return behind_proxies(peer, request.headers.getall(FORWARDED_FOR, []), trusted)


def behind_proxies(peer: str, fields: Sequence[str], trusted: Sequence[Network]) -> str:
    """Return the right-most address of ``fields`` that is not trusted, ``peer`` unless that is trusted itself.

    When all are trusted it is the left-most. An entry that is no address ends the search: the proxy that wrote it
    is the last thing known.
    """
    seen = _address(peer)
    if seen is None:
        return peer
    entries = ",".join(fields).split(",")
    while entries and _within(seen, trusted):
        named = _address(entries.pop())
        if named is None:
            break
        seen = named
    return str(seen)


def _within(address: IPv4Address | IPv6Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an address as proxies write it: also with a port, in brackets, or as IPv4 inside of IPv6."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
