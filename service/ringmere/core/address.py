"""Addresses to listen on, as people write them."""

from __future__ import annotations

_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``[IPv6]:PORT`` or ``:PORT`` (all interfaces).

    Raises ``ValueError`` with what is wrong.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT")
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare and bare == host:
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets, [::1]:8080")
    return bare or "0.0.0.0", int(port)


def local_url(host: str, port: int) -> str:
    """Return the URL at which this machine reaches what listens there; of all interfaces it takes the loopback."""
    here = _HERE.get(host, host)
    return f"http://[{here}]:{port}" if ":" in here else f"http://{here}:{port}"
