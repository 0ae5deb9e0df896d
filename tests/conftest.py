"""Fixtures that every floor's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection
from support.nats import Cluster, connected, running_server

# How long an example takes depends on what else the machine does.
settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A fresh nats-server with JetStream and nothing stored; the test may kill, stop and start it."""
    async with running_server(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def connection(nats_server: EmbeddedServer) -> AsyncIterator[Connection]:
    """A connection to ``nats_server``."""
    async with connected(nats_server) as opened:
        yield opened


@pytest.fixture
async def nats_cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three fresh servers for streams with three replicas."""
    cluster = Cluster(tmp_path / "cluster")
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.kill()
