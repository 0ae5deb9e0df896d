"""What the floors below are told: their own values, made from the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from ipaddress import ip_network

from ringmere.core.coalesce import Rules, parse_rule
from ringmere.core.limits import Limits
from ringmere.http.client_address import Network
from ringmere.log.jetstream import LogSettings
from ringmere.log.options import ConnectOptions, from_environment, split_servers
from ringmere.settings.table import Settings


def limits(settings: Settings, connections: int) -> Limits:
    """Return the bounds of the instance. ``connections`` is what its file limit allows; the lower one counts."""
    known = {item.name for item in fields(Settings)}
    values = {item.name: getattr(settings, item.name) for item in fields(Limits) if item.name in known}
    values["max_connections"] = max(1, min(settings.max_connections, connections))
    return Limits(**values)


def coalesce_rules(settings: Settings) -> Rules:
    """Return what may be merged in a backlog."""
    return Rules(dict(parse_rule(rule) for rule in settings.coalesce))


def trusted_proxies(settings: Settings) -> tuple[Network, ...]:
    """Return the networks of the proxies that are believed about their clients."""
    return tuple(ip_network(network) for network in settings.trusted_proxy)


def log_settings(settings: Settings) -> LogSettings:
    """Return the shape of the log; 0 in the table is None there, or off."""
    return LogSettings(
        ring_size=settings.ring_size,
        log_ttl=settings.log_ttl,
        head_ttl=settings.head_ttl,
        cancel_ttl=settings.cancel_ttl,
        shards=settings.shards,
        replicas=settings.replicas,
        max_bytes=settings.max_bytes or None,
        max_event_bytes=settings.max_event_bytes or None,
        max_snapshot_bytes=settings.max_snapshot_bytes or None,
        snapshot_bytes=settings.snapshot_bytes or None,
        reconcile=settings.reconcile,
        first_epoch=settings.first_epoch,
        tail=settings.tail,
        reader=settings.reader,
    )


def connect_options(settings: Settings, environ: Mapping[str, str], embedded: str | None) -> ConnectOptions:
    """Return how to reach NATS: ``embedded`` (a URL) when there is one, else the table, else NATS's own variables.

    Raises ``LogRefused`` when a named context cannot be used.
    """
    if embedded is not None:
        return ConnectOptions(servers=(embedded,))
    return from_environment(
        environ,
        context=settings.nats_context or None,
        servers=split_servers(settings.nats_url) or None,
        creds=settings.nats_creds or None,
        nkey=settings.nats_nkey or None,
        user=settings.nats_user or None,
        password=settings.nats_password or None,
        token=settings.nats_token or None,
        tls_ca=settings.nats_tls_ca or None,
        tls_cert=settings.nats_tls_cert or None,
        tls_key=settings.nats_tls_key or None,
    )
