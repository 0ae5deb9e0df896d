"""Streams of many sessions on a hub in memory, as their clients see them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ringmere.core.composite import parse_composite
from ringmere.core.decoder import Decoder
from ringmere.hub.hub import Hub
from ringmere.hub.many import Many
from ringmere.hub.options import ManyOptions
from support.hub import Client, World


class Seen(NamedTuple):
    """One frame: ``session`` is what the envelope names, ``cursor`` what the client would come back with."""

    session: str | None
    id: int | None
    type: str
    data: Any
    cursor: str


def seen(client: Client) -> list[Seen]:
    rows = []
    for message in Decoder().feed(client.body):
        envelope = json.loads(message.data)
        assert envelope["type"] == message.type
        rows.append(
            Seen(envelope.get("sessionId"), envelope.get("id"), message.type, envelope["data"], message.last_id)
        )
    return rows


def events(client: Client) -> list[tuple[str, int]]:
    """Session and id of each event that was stored, in the order they came."""
    return [(row.session or "", row.id) for row in seen(client) if row.id is not None]


def story(client: Client) -> list[Any]:
    """Sessions and ids of events, types of control frames."""
    return [row.type if row.id is None else (row.session, row.id) for row in seen(client)]


def cursor(client: Client) -> str:
    decoder = Decoder()
    decoder.feed(client.body)
    return decoder.last_id


async def connect(
    world: World,
    *sessions: str,
    cursor: str | None = None,
    match: str | None = None,
    hub: Hub | None = None,
    client: Client | None = None,
    **options: Any,
) -> Client:
    client = client or Client()
    hub = hub or world.hub
    points = None if cursor is None else parse_composite(cursor, world.store.shards)
    wishes = ManyOptions(points=points, **options)
    if match is not None:
        reader = await hub.many.subscribe_matching(match, wishes)
    else:
        reader = await hub.many.subscribe(sessions, wishes)
    client.reader = reader  # type: ignore[assignment]
    reader.attach(client)
    return client


def stream_of(client: Client) -> Many:
    assert isinstance(client.reader, Many)
    return client.reader
