"""How to reach NATS: one value with everything, from explicit settings, variables or a context file."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ringmere.core.errors import LogRefused

DEFAULT_SERVER = "nats://127.0.0.1:4222"

_VARIABLES = {
    "NATS_USER": "user",
    "NATS_PASSWORD": "password",
    "NATS_TOKEN": "token",
    "NATS_CREDS": "creds",
    "NATS_NKEY": "nkey",
    "NATS_CA": "tls_ca",
    "NATS_CERT": "tls_cert",
    "NATS_KEY": "tls_key",
}
_CONTEXT_FIELDS = {
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "creds",
    "nkey": "nkey",
    "ca": "tls_ca",
    "cert": "tls_cert",
    "key": "tls_key",
    "tls_first": "tls_first",
    "inbox_prefix": "inbox_prefix",
    "jetstream_domain": "domain",
}
_FILES = ("creds", "nkey", "tls_ca", "tls_cert", "tls_key")


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Where NATS is and who we are there. Times in seconds; ``creds``, ``nkey`` and ``tls_*`` are file paths."""

    servers: tuple[str, ...] = field(default=(DEFAULT_SERVER,), repr=False)
    """Addresses, which may hold passwords: shown by :meth:`addresses` only."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    creds: str | None = None
    nkey: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_first: bool = False
    name: str = "ringmere"
    inbox_prefix: str = "_INBOX"
    domain: str | None = None
    """JetStream domain whose API is meant; None is the server's own."""
    connect_timeout: float = 5.0
    """Deadline of the first connect, everything included."""
    reconnect_wait: float = 0.25
    """Pause before the same server is tried again. There is no last attempt."""
    ping_interval: float = 5.0
    """Two unanswered pings end a connection that has gone silent."""

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, None when neither the options nor a ``tls://`` address ask for one.

        Raises ``LogRefused`` when a file is missing or no certificate.
        """
        wanted = self.tls_ca or self.tls_cert or self.tls_first
        if not wanted and not any(server.startswith("tls://") for server in self.servers):
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
            if self.tls_cert is not None:
                context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise LogRefused(f"the TLS files for NATS cannot be used: {error}") from error
        return context

    def addresses(self) -> str:
        """Return the server addresses for people to read, without passwords."""
        return ", ".join(_without_secrets(server) for server in self.servers)


def from_environment(environment: Mapping[str, str], *, context: str | None = None, **explicit: Any) -> ConnectOptions:
    """Return the options: explicit ones first, then ``NATS_…`` variables, then a context file.

    ``context`` (or ``NATS_CONTEXT``) names a context of the ``nats`` command; without either, the selected
    context is used, but only when no address is given. ``None`` values in ``explicit`` count as not given.
    Raises ``LogRefused`` when a named context cannot be read.
    """
    given: dict[str, Any] = {name: value for name, value in explicit.items() if value is not None}
    variables: dict[str, Any] = {
        option: environment[name] for name, option in _VARIABLES.items() if environment.get(name)
    }
    if environment.get("NATS_URL"):
        variables["servers"] = split_servers(environment["NATS_URL"])
    named = context or environment.get("NATS_CONTEXT")
    found: dict[str, Any] = {}
    if named:
        found = read_context(environment, named)
    elif "servers" not in given and "servers" not in variables:
        selected = selected_context(environment)
        found = read_context(environment, selected) if selected else {}
    if named and context:
        # A context named by the caller is as explicit as a flag; a variable does not override it.
        return replace(ConnectOptions(), **{**variables, **found, **given})
    return replace(ConnectOptions(), **{**found, **variables, **given})


def split_servers(text: str) -> tuple[str, ...]:
    """Return the addresses of a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def selected_context(environment: Mapping[str, str]) -> str | None:
    """Return the name of the context that ``nats context select`` chose, if any."""
    try:
        return (_contexts(environment) / "context.txt").read_text().strip() or None
    except OSError:
        return None


def read_context(environment: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the options that a context file holds. Raises ``LogRefused`` when it cannot be used."""
    if not name or "/" in name or name.startswith("."):
        raise LogRefused(f"{name!r} is no name of a NATS context")
    path = _contexts(environment) / "context" / f"{name}.json"
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise LogRefused(f"the NATS context {name} cannot be read from {path}: {error}") from error
    if not isinstance(content, dict):
        raise LogRefused(f"the NATS context {name} in {path} is not a JSON object")
    if content.get("nsc") and not content.get("creds"):
        raise LogRefused(f"the NATS context {name} looks its credentials up with nsc; give a creds file instead")
    options = {option: content[key] for key, option in _CONTEXT_FIELDS.items() if content.get(key)}
    for option in _FILES:
        if option in options:
            options[option] = os.path.expandvars(os.path.expanduser(options[option]))
    if content.get("url"):
        options["servers"] = split_servers(content["url"])
    return options


def _contexts(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path(environment.get("HOME", "~")).expanduser() / ".config") / "nats"


def _without_secrets(server: str) -> str:
    host = urlsplit(server if "://" in server else f"nats://{server}")
    return f"{host.scheme}://{host.netloc.rsplit('@', 1)[-1]}"
