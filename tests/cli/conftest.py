"""One gateway for the tests of client commands; each test takes a session of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.gateway import gateway


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a gateway that runs for all tests."""
    async with gateway(tmp_path_factory.mktemp("cli")) as instance:
        yield instance.url
