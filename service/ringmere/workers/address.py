"""The address that all workers share: taken once by the parent, so that nobody else gets it in between."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ringmere.core.errors import StartRefused

PORT_TRIES = 20
"""Free ports tried until one is free on all addresses of the host."""


@contextmanager
def reserved(host: str, port: int) -> Iterator[tuple[str, int]]:
    """Hold ``host:port`` for sockets with SO_REUSEPORT of this user, and yield an address of it to show.

    Port 0 takes a free one. The sockets are bound but do not listen, so the kernel gives them no connection. Raises
    ``OSError`` when somebody has the address.
    """
    require_balancing()
    with contextlib.ExitStack() as held:
        tries = 1 if port else PORT_TRIES
        for left in reversed(range(tries)):
            try:
                address = _reserve(host, port, held)
                break
            except OSError as error:
                if not left or error.errno != errno.EADDRINUSE:
                    raise
                held.close()
        yield address


def require_balancing() -> None:
    """Raise ``StartRefused`` where the kernel does not spread connections over sockets of one port."""
    if not sys.platform.startswith("linux"):
        raise StartRefused("--workers needs Linux, which spreads connections over the processes of one port")


def _reserve(host: str, port: int, held: contextlib.ExitStack) -> tuple[str, int]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name may stand for several addresses; all get the port that the first one got.
    first: tuple[str, int] | None = None
    for family, _, _, _, target in dict.fromkeys(found):
        wanted = (target[0], first[1] if first else port, *target[2:])
        with _bound(family, wanted, shared=False) as alone:
            # Other instances that share ports would let a shared socket in; this one they do not.
            taken = (target[0], alone.getsockname()[1], *target[2:])
        shared = held.enter_context(_bound(family, taken, shared=True))
        first = first or (str(target[0]), int(shared.getsockname()[1]))
    assert first is not None
    return first


def _bound(family: int, address: tuple[object, ...], *, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made
