"""An instance in this process on a real nats-server, so that verdicts can be tested over the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from ringmere.core.limits import Limits
from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import ConnectOptions
from ringmere.log.jetstream import LogSettings, open_log
from support.doors import Gateway, running

Instance = Callable[..., AbstractAsyncContextManager[Gateway]]


@asynccontextmanager
async def instance_on(
    servers: tuple[str, ...], limits: Limits | None = None, **settings: Any
) -> AsyncIterator[Gateway]:
    """Run an instance on a NATS; ``settings`` are those of the log."""
    log = await open_log(ConnectOptions(servers=servers), LogSettings(**settings))
    try:
        async with running(log=log, limits=limits) as gateway:  # type: ignore[arg-type]
            yield gateway
    finally:
        await log.close()


@pytest.fixture
def instance(nats_server: EmbeddedServer) -> Instance:
    """Start instances on this test's nats-server."""
    return lambda limits=None, **settings: instance_on((nats_server.url,), limits, **settings)
