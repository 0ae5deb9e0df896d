"""The first connect, with a deadline and a clear answer.

nats-py alone would try a wrong password for ever, and hang after a certificate that does not verify.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ringmere.core.errors import LogRefused, LogUnavailable
from ringmere.log.credentials import CredsFile
from ringmere.log.fastpath import RawClient
from ringmere.log.options import ConnectOptions

ABANDON_TIMEOUT = 1.0

_REFUSALS = ("authorization violation", "authentication", "permissions violation", "nkey", "account")


async def dial(
    client: RawClient,
    options: ConnectOptions,
    trouble: Callable[[Exception], Awaitable[None]],
    back: Callable[[], Awaitable[None]],
) -> None:
    """Connect ``client``. ``trouble`` hears of all errors, also later ones, ``back`` of each reconnect.

    Raises ``LogUnavailable`` at the deadline, ``LogRefused`` as soon as every server has refused.
    """
    refusals: list[Exception] = []
    others: list[Exception] = []
    refused = asyncio.Event()

    async def hear(error: Exception) -> None:
        if _is_refusal(error):
            refusals.append(error)
            if len(refusals) >= len(options.servers):
                refused.set()
        else:
            others[:] = [error]
        await trouble(error)

    connecting = asyncio.ensure_future(client.connect(**_arguments(options), error_cb=hear, reconnected_cb=back))
    watching = asyncio.ensure_future(refused.wait())
    try:
        await asyncio.wait({connecting, watching}, timeout=options.connect_timeout, return_when=asyncio.FIRST_COMPLETED)
        if connecting.done() and connecting.exception() is None:
            return
        if connecting.done():
            error = connecting.exception()
            raise LogRefused(f"cannot connect to NATS at {options.addresses()}: {error}") from error
        if refusals:
            raise LogRefused(f"NATS at {options.addresses()} refuses us: {_words(refusals[-1])}")
        reason = f": {_words(others[-1])}" if others else ""
        raise LogUnavailable(f"NATS at {options.addresses()} does not answer{reason}")
    finally:
        watching.cancel()
        if not connecting.done() or connecting.cancelled() or connecting.exception() is not None:
            await _abandon(client, connecting)


async def _abandon(client: RawClient, connecting: asyncio.Future[None]) -> None:
    connecting.cancel()
    # The failure is already on its way to the caller; here only the socket and the tasks are released.
    with contextlib.suppress(Exception, asyncio.CancelledError):
        async with asyncio.timeout(ABANDON_TIMEOUT):
            await connecting
    with contextlib.suppress(Exception):
        async with asyncio.timeout(ABANDON_TIMEOUT):
            await client.close()


def _arguments(options: ConnectOptions) -> dict[str, Any]:
    for server in options.servers:
        if server.startswith(("ws://", "wss://")):
            raise LogRefused(f"{server}: NATS over WebSocket is not supported; use nats:// or tls://")
    for path in (options.creds, options.nkey):
        if path is not None and not Path(path).is_file():
            raise LogRefused(f"the NATS credentials file {path} does not exist")
    arguments: dict[str, Any] = {
        "servers": list(options.servers),
        "name": options.name,
        "user": options.user,
        "password": options.password,
        "token": options.token,
        "nkeys_seed": options.nkey,
        "inbox_prefix": options.inbox_prefix,
        "tls_handshake_first": options.tls_first,
        "connect_timeout": options.connect_timeout,
        "reconnect_time_wait": options.reconnect_wait,
        "max_reconnect_attempts": -1,
        "ping_interval": options.ping_interval,
        "pending_size": 0,
    }
    context = options.tls_context()
    if context is not None:
        arguments["tls"] = context
    if options.creds is not None:
        file = CredsFile(options.creds)
        arguments |= {"user_jwt_cb": file.jwt, "signature_cb": file.sign}
    return arguments


def _is_refusal(error: Exception) -> bool:
    if isinstance(error, ssl.SSLError):
        return True
    text = str(error).lower()
    return "nats:" in text and any(word in text for word in _REFUSALS)


def _words(error: Exception) -> str:
    text = str(error).removeprefix("nats: ").strip("'\" ")
    return text or type(error).__name__
