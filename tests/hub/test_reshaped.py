"""A reader of CloudEvents: the same events, at the same places, as one of the service's own form (contract 5.3)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ringmere.core.cloudevent_frames import newest_reshaped
from ringmere.core.coalesce import Rules
from ringmere.core.decoder import Decoder
from ringmere.core.frames import envelope_size
from ringmere.core.reasons import CloseReason
from support.hub import Client, arrived, over, world
from support.virtual import eventually


def cloudevents(client: Client) -> list[Any]:
    """Return the decoded data of all frames that are CloudEvents."""
    read = [json.loads(message.data) for message in Decoder().feed(client.body)]
    return [value for value in read if "specversion" in value]


def types(client: Client) -> list[str]:
    return [message.type for message in Decoder().feed(client.body)]


def ids(client: Client) -> list[int]:
    return [int(event["ringmereid"]) for event in cloudevents(client)]


@pytest.mark.parametrize("framed", [True, False])
async def test_it_gets_each_event_once_through_replay_window_and_live(framed: bool) -> None:
    async with world() as w:
        w.put(300)
        client = await w.connect(100, client=Client(framed=framed), cloudevents=True)
        w.put(50)
        await w.settle()
        later = await w.connect(320, client=Client(framed=framed), cloudevents=True)
        w.put(10)
        await eventually(lambda: len(cloudevents(client)) == 260 and len(cloudevents(later)) == 40)
        assert ids(client) == [*range(101, 361)]
        assert ids(later) == [*range(321, 361)]
        assert types(client).count("replay_complete") == 1


async def test_a_full_transport_queues_its_own_form_and_nothing_is_merged() -> None:
    async with world(coalesce=Rules({"t": "/data"})) as w:
        client = await w.stalled(max_queued=64, cloudevents=True, coalesce=True)
        w.put(60)
        await w.settle()
        assert client.reader is not None
        backlog = client.reader.backlog
        assert backlog is not None
        assert backlog.frames == 60
        assert backlog.bytes == sum(envelope_size(frame.sse) for frame in backlog.queue if frame.size)
        client.resume()
        await eventually(lambda: len(cloudevents(client)) == 60)
        assert ids(client) == [*range(1, 61)]
        assert "slow_client_warning" in types(client)


async def test_it_is_evicted_by_the_same_rules() -> None:
    async with world() as w:
        client = await w.stalled(max_queued=16, cloudevents=True)
        w.put(17)
        await w.settle()
        client.resume()
        assert await over(client) is CloseReason.QUEUE_OVERFLOW
        assert ids(client) == [*range(1, 17)]
        assert types(client)[-1] == "client_evicted"


async def test_readers_of_the_other_form_are_not_touched_and_the_work_is_done_once() -> None:
    async with world() as w:
        plain = await w.connect()
        readers = [await w.connect(cloudevents=True) for _ in range(5)]
        newest_reshaped.cache_clear()
        w.put(20)
        await arrived(plain, 20)
        await eventually(lambda: all(len(cloudevents(client)) == 20 for client in readers))
        await asyncio.sleep(0)
        done = newest_reshaped.cache_info()
        assert (done.hits, done.misses) == (4 * done.misses, done.misses)
        assert cloudevents(plain) == []


async def test_nothing_is_made_of_a_session_without_such_a_reader() -> None:
    async with world() as w:
        plain = await w.connect()
        newest_reshaped.cache_clear()
        w.put(20)
        await arrived(plain, 20)
        assert newest_reshaped.cache_info().misses == 0
