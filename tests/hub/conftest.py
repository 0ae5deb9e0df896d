"""Tests of the hub run on virtual time: no test waits, none depends on the machine's speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from support.virtual import VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}
