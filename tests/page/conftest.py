"""Fixtures of the page tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from support.doors import Gateway, Start, running


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start instances with settings of their own."""
    async with AsyncExitStack() as stack:

        async def begin(**settings: Any) -> Gateway:
            return await stack.enter_async_context(running(**settings))

        yield begin
