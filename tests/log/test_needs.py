"""Asking for permissions: the list is what the shipped file allows, and asking does nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.needs import NOBODY, publishes, refused, subscriptions
from ringmere.log.shape import StreamSettings
from ringmere.log.streams import ensure_streams
from support.nats import api, append, connected, running_server

FILE = Path(__file__).resolve().parents[2] / "ops" / "nats" / "permissions.conf"
SETTINGS = StreamSettings(max_bytes=64 * 1024 * 1024)
API = "$JS.API"


def granted() -> tuple[list[str], list[str]]:
    """Return what the shipped file allows the gateway: to publish to, and to subscribe to."""
    block = FILE.read_text().partition("user: gateway")[2].partition("user: publisher")[0]
    rows = "\n".join(line for line in block.splitlines() if not line.strip().startswith("#"))
    publish, _, subscribe = rows.partition("subscribe:")
    return re.findall(r'"([^"]+)"', publish), re.findall(r'"([^"]+)"', subscribe)


def matches(row: str, subject: str) -> bool:
    pattern = re.escape(row).replace(r"\*", r"[^.]+").replace(">", ".+")
    return re.fullmatch(pattern, subject) is not None


def test_everything_that_the_shipped_file_allows_is_asked_for_and_nothing_else() -> None:
    for rows, needs in (
        (granted()[0], [need.subject for need in publishes(SETTINGS, API)]),
        (granted()[1], [need.subject for need in subscriptions(SETTINGS)]),
    ):
        assert len(needs) == len(set(needs)) > 3
        assert [need for need in needs if not any(matches(row, need) or row == need for row in rows)] == []
        unasked = [row for row in rows if not any(matches(row, need) or row == need for need in needs)]
        # Without its inbox a gateway cannot even connect.
        assert unasked == [row for row in rows if row == "_INBOX.>"]


def test_each_need_says_what_it_is_for() -> None:
    assert all(need.use for need in [*publishes(SETTINGS, API), *subscriptions(SETTINGS)])


RESTRICTED = """
authorization {{ users: [
  {{ user: root, password: r }}
  {{ user: low, password: l, permissions: {{
    publish: {{ allow: [{publish}] }}
    subscribe: {{ allow: [{subscribe}] }}
  }} }}
] }}
"""


def quoted(rows: list[str]) -> str:
    return ", ".join(f'"{row}"' for row in rows)


@pytest.fixture
async def root(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[tuple[EmbeddedServer, Connection]]:
    """A server with the log, and two users: one who may all, one who lacks what the test's parameter names."""
    lacks = getattr(request, "param", [])
    publish, subscribe = ([row for row in rows if row not in lacks] for rows in granted())
    extra = RESTRICTED.format(publish=quoted(publish), subscribe=quoted(subscribe))
    async with (
        running_server(tmp_path / "nats", extra=extra) as server,
        connected(server, user="root", password="r") as opened,
    ):
        await ensure_streams(opened, SETTINGS)
        await append(opened, "ringmere.events.0.s", b'{"type":"t","data":1}')
        yield server, opened


async def as_low(server: EmbeddedServer) -> tuple[list[str], list[str], bool]:
    options = ConnectOptions(servers=(server.url,), user="low", password="l")
    connection = await Connection.open(options)
    try:
        found = await refused(connection, SETTINGS)
        return [need.subject for need in found.publishes], [need.subject for need in found.subscriptions], found.unknown
    finally:
        await connection.close()


async def everything(connection: Connection) -> dict[str, Any]:
    """Return all that is stored, and all consumers."""
    names = (await api(connection, "STREAM.NAMES"))["streams"]
    infos = {name: await api(connection, f"STREAM.INFO.{name}", {"subjects_filter": ">"}) for name in names}
    return {
        name: (info["created"], info["config"], info["state"], await api(connection, f"CONSUMER.NAMES.{name}"))
        for name, info in infos.items()
    }


async def test_a_user_with_the_shipped_permissions_lacks_nothing_and_asking_changes_nothing(
    root: tuple[EmbeddedServer, Connection],
) -> None:
    server, connection = root
    before = await everything(connection)
    assert await as_low(server) == ([], [], False)
    assert await refused(connection, SETTINGS) == ([], [], False)
    assert await everything(connection) == before
    assert len(before) == 6


LACKING = [
    "$JS.API.STREAM.PURGE.RINGMERE_0",
    "$JS.API.STREAM.DELETE.RINGMERE_HEAD_0",
    "$JS.API.CONSUMER.CREATE.RINGMERE_0.>",
    "$KV.RINGMERE_EPOCHS.shard.*",
    "ringmere.events.*.*",
    "ringmere.live.*.*",
]


@pytest.mark.parametrize("root", [LACKING], indirect=True)
async def test_each_missing_permission_is_found_by_its_subject(root: tuple[EmbeddedServer, Connection]) -> None:
    server, connection = root
    before = await everything(connection)
    publish, subscribe, unknown = await as_low(server)
    assert unknown is False
    assert sorted(publish) == sorted(
        need.subject for need in publishes(SETTINGS, API) if any(matches(row, need.subject) for row in LACKING)
    )
    assert len(publish) == 5
    assert subscribe == [f"ringmere.live.0.{NOBODY}"]
    assert await everything(connection) == before


@pytest.mark.parametrize("root", [["ringmere.degraded.*.*"]], indirect=True)
async def test_without_a_subject_to_be_told_on_the_rest_is_unknown(root: tuple[EmbeddedServer, Connection]) -> None:
    server, _ = root
    publish, subscribe, unknown = await as_low(server)
    assert publish == [f"ringmere.degraded.0.{NOBODY}"]
    assert subscribe == ["ringmere.degraded.*.*"]
    assert unknown is True
