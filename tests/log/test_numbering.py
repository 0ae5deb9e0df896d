"""Acknowledged sequences keep the meaning they were given, also when the stream begins again meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ringmere.core.cursor import EpochTable
from ringmere.core.errors import KeyReused, LogUnavailable, PublishUnconfirmed
from ringmere.embedded import EmbeddedServer
from ringmere.log import epochs as epochs_module
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.jetstream import JetStreamLog, LogSettings, open_log
from ringmere.log.numbering import Numbering
from ringmere.log.port import Appended
from support.logs import row
from support.nats import api

OLD = EpochTable("b")
NEW = OLD.recreated(1)


class Scripted:
    """Epochs that have seen sequences up to 5, and find ``found`` (or fail) when the leader is asked."""

    def __init__(self, found: EpochTable | LogUnavailable = OLD) -> None:
        self.now = OLD
        self.found = found
        self.asked = 0

    def table(self, shard: int) -> EpochTable:
        return self.now

    def newest_seen(self, shard: int) -> int:
        return 5

    async def check(self, shard: int) -> EpochTable:
        self.asked += 1
        if isinstance(self.found, LogUnavailable):
            raise self.found
        self.now = self.found
        return self.now


def numbering(epochs: Scripted) -> Numbering:
    stand_in: Any = epochs
    return Numbering(stand_in, 0)


async def test_a_sequence_above_all_that_were_seen_costs_nothing() -> None:
    epochs = Scripted()
    assert await numbering(epochs).checked([Appended(6), Appended(7)]) == [Appended(6), Appended(7)]
    assert epochs.asked == 0


async def test_a_low_sequence_asks_the_leader_once_and_is_of_the_log_that_it_finds() -> None:
    epochs = Scripted(NEW)
    assert await numbering(epochs).checked([Appended(1), Appended(2)]) == [Appended(1), Appended(2)]
    assert epochs.asked == 1


async def test_a_duplicate_of_the_same_log_stays_one() -> None:
    assert await numbering(Scripted()).checked([Appended(3, True)]) == [Appended(3, True)]


async def test_a_duplicate_of_a_log_that_began_again_is_unconfirmed() -> None:
    [result] = await numbering(Scripted(NEW)).checked([Appended(3, True)])
    assert isinstance(result, PublishUnconfirmed)


async def test_what_was_stored_before_the_log_began_again_is_unconfirmed() -> None:
    epochs = Scripted(NEW)
    flight = numbering(epochs)
    epochs.now = NEW
    [result] = await flight.checked([Appended(6)])
    assert isinstance(result, PublishUnconfirmed)
    assert epochs.asked == 0


async def test_a_range_that_a_promotion_left_alone_stays_what_it_was() -> None:
    epochs = Scripted()
    flight = numbering(epochs)
    epochs.now = OLD.promoted(6)
    kept, lost = await flight.checked([Appended(6), Appended(7)])
    assert kept == Appended(6)
    assert isinstance(lost, PublishUnconfirmed)


async def test_without_an_answer_of_the_leader_low_ones_are_unconfirmed_and_errors_stay_errors() -> None:
    refused = KeyReused("another body")
    low, high, error = await numbering(Scripted(LogUnavailable("silence"))).checked([Appended(5), Appended(6), refused])
    assert isinstance(low, PublishUnconfirmed)
    assert (high, error) == (Appended(6), refused)


@pytest.fixture
async def log(nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JetStreamLog]:
    """A log that looks at its stream by itself only seldom."""
    monkeypatch.setattr(epochs_module, "CHECK_INTERVAL", 60.0)
    opened = await open_log(ConnectOptions(servers=(nats_server.url,)), LogSettings())
    yield opened
    await opened.close()


@pytest.mark.parametrize("way", ["one", "pipelined", "atomic"])
async def test_the_first_append_to_a_recreated_stream_has_an_id_of_the_new_epoch(
    log: JetStreamLog, connection: Connection, way: str
) -> None:
    """EPO-1: nobody has noticed yet, and the publisher must not be told an id that another event has."""
    await asyncio.gather(*(log.append("s", row(n)) for n in range(5)))
    config = (await api(connection, "STREAM.INFO.RINGMERE_0"))["config"]
    await api(connection, "STREAM.DELETE.RINGMERE_0")
    assert "error" not in await api(connection, "STREAM.CREATE.RINGMERE_0", config)
    if way == "one":
        results: Any = [await log.append("s", row(1))]
    elif way == "pipelined":
        results = await log.append_many("s", [row(1), row(2)])
    else:
        results = await log.append_atomic("s", [row(1), row(2)])
    assert [result.seq for result in results] == list(range(1, len(results) + 1))
    assert log.epochs("s").id_of(1) == (1 << 40) + 1
