"""Whose address a stream is said to have: the peer's, or what trusted proxies say, and never what a client says."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from ringmere.http.client_address import behind_proxies
from support.doors import Gateway, Start

TRUSTED = tuple(ip_network(text) for text in ("10.0.0.0/8", "127.0.0.1/32", "fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "fields", "client"),
    [
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["192.0.2.7, 10.0.0.2"], "192.0.2.7"),
        ("10.0.0.1", ["192.0.2.7", "10.0.0.2"], "192.0.2.7"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["192.0.2.7:4711"], "192.0.2.7"),
        ("10.0.0.1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("10.0.0.1", ["2001:db8::7"], "2001:db8::7"),
        ("10.0.0.1", ["::ffff:192.0.2.7"], "192.0.2.7"),
        ("::ffff:10.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("fd00::1", ["192.0.2.7"], "192.0.2.7"),
    ],
)
def test_the_client_is_the_right_most_address_that_no_trusted_proxy_has(
    peer: str, fields: list[str], client: str
) -> None:
    assert behind_proxies(peer, fields, TRUSTED) == client


@pytest.mark.parametrize(
    ("peer", "fields", "client"),
    [
        ("192.0.2.9", ["203.0.113.1"], "192.0.2.9"),
        ("192.0.2.9", ["203.0.113.1, 10.0.0.1"], "192.0.2.9"),
        ("10.0.0.1", ["203.0.113.1, 192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["203.0.113.1", "192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["10.0.0.9, 203.0.113.1, 192.0.2.7, 10.0.0.2"], "192.0.2.7"),
        ("10.0.0.1", ["203.0.113.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.1, "], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.1, 1.2.3.4.5, 10.0.0.2"], "10.0.0.2"),
        ("", ["203.0.113.1"], ""),
    ],
)
def test_what_a_client_writes_to_the_left_of_its_own_address_is_not_believed(
    peer: str, fields: list[str], client: str
) -> None:
    assert behind_proxies(peer, fields, TRUSTED) == client


async def client_shown(gateway: Gateway, forwarded_for: str) -> str:
    await gateway.stream("s1", headers={"X-Forwarded-For": forwarded_for})
    [reader] = (await gateway.get("/session/s1")).json["readers"]
    return str(reader["client"])


async def test_a_reader_behind_a_trusted_proxy_is_shown_with_its_own_address(start: Start) -> None:
    assert await client_shown(await start(trusted_proxies=TRUSTED), "203.0.113.1, 192.0.2.7") == "192.0.2.7"


async def test_without_trusted_proxies_a_reader_is_shown_with_the_peer_whatever_it_says(gateway: Gateway) -> None:
    assert await client_shown(gateway, "192.0.2.7") == "127.0.0.1"
