"""Which sessions there are: listed once for all who ask, in slices, and none passed over between two pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from ringmere.core.errors import LogUnavailable
from ringmere.embedded import EmbeddedServer
from ringmere.log import names as module
from ringmere.log.connect import ConnectOptions
from ringmere.log.jetstream import LogSettings, open_log
from ringmere.log.leader import SubjectPage
from ringmere.log.names import Names, choose
from ringmere.log.places import Places
from ringmere.log.port import Row
from support.nats import eventually

Before = Callable[[str, int], Awaitable[None]]


class Server:
    """Counts subjects as NATS does: sorted, in pages that are counted off from the front at the time of asking."""

    def __init__(self, *streams: list[str], limit: int = 100_000) -> None:
        self.streams = streams
        self.limit = limit
        self.asked: list[tuple[str, int]] = []
        self.before: Before | None = None

    async def subjects(self, stream: str, every: str, offset: int) -> SubjectPage:
        self.asked.append((stream, offset))
        await asyncio.sleep(0)
        if self.before is not None:
            await self.before(stream, offset)
        shard = int(stream.rpartition("_")[2])
        subjects = sorted(every.removesuffix("*") + name for name in self.streams[shard])
        page = dict.fromkeys(subjects[offset : offset + self.limit], 1)
        return SubjectPage(msgspec.Raw(json.dumps(page, separators=(",", ":")).encode()), len(subjects), self.limit)


def names_of(server: Server) -> Names:
    return Names(server, Places(len(server.streams)))  # type: ignore[arg-type]


def numbered(count: int) -> list[str]:
    return [f"s-{number:06}" for number in range(count)]


async def test_names_of_all_shards_come_in_one_order_and_strangers_are_none() -> None:
    strange = ['a"b', "a,b", "ü", "a b", "x" * 129, '",']
    names = names_of(Server(["b", "d", *strange], ["a", "c", "d"]))
    runs = await names.fresh()
    assert choose(runs, "", "", 10) == ["a", "b", "c", "d"]
    assert choose(runs, "", "a", 2) == ["b", "c"]
    assert choose(runs, "c", "", 9) == ["c"]
    assert choose(runs, "c", "c", 9) == []


async def test_a_list_longer_than_a_slice_is_whole_and_lets_others_run_between_slices() -> None:
    everyone = numbered(60_000)
    names = names_of(Server(everyone))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    runs = await names.fresh()
    task.cancel()
    assert runs[0] == everyone
    assert turns > 60_000 * len('"ringmere.events.0.s-000000":1,') // module.SLICE


async def test_a_session_that_stays_is_listed_once_however_many_before_it_go_between_two_pages() -> None:
    everyone = numbered(20_000)
    server = Server(everyone, limit=5000)
    left = list(everyone)

    async def going(stream: str, offset: int) -> None:
        if offset > 0 and len(left) > 16_000:
            # More than the overlap goes from the front: what the server counts off begins so much later.
            del left[: 2 * module.OVERLAP]
            server.streams[0][:] = left

    server.before = going
    found = (await names_of(server).fresh())[0]
    assert len(found) == len(set(found))
    assert set(left) <= set(found)


async def test_sessions_that_go_faster_than_they_can_be_listed_are_an_error_and_no_hole() -> None:
    server = Server(numbered(200_000), limit=5000)

    async def going(stream: str, offset: int) -> None:
        if offset > 0:
            del server.streams[0][: 2 * server.limit]

    server.before = going
    with pytest.raises(LogUnavailable, match="faster"):
        await names_of(server).fresh()


async def test_more_sessions_than_an_instance_lists_are_refused_at_the_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_LISTED", 10)
    server = Server(numbered(6), numbered(6), limit=3)
    with pytest.raises(LogUnavailable, match="more sessions"):
        await names_of(server).fresh()
    assert server.asked[-1] == ("RINGMERE_1", 0)


async def test_who_asks_while_a_listing_runs_gets_the_next_and_all_of_those_share_it() -> None:
    server = Server(["a"])
    names = names_of(server)
    running, go_on = asyncio.Event(), asyncio.Event()

    async def hold(stream: str, offset: int) -> None:
        running.set()
        await go_on.wait()

    server.before = hold
    first = asyncio.create_task(names.fresh())
    await running.wait()
    server.streams[0].append("b")  # stored after the first listing was asked for
    others = [asyncio.create_task(names.fresh()) for _ in range(50)]
    await asyncio.sleep(0)
    go_on.set()
    assert await first is not None
    assert {tuple(choose(runs, "", "", 9)) for runs in await asyncio.gather(*others)} == {("a", "b")}
    assert len(server.asked) == 2


async def test_one_who_gives_up_does_not_take_the_listing_from_the_others() -> None:
    server = Server(["a"])
    names = names_of(server)
    leaves, stays = asyncio.create_task(names.fresh()), asyncio.create_task(names.fresh())
    await asyncio.sleep(0)
    leaves.cancel()
    assert choose(await stays, "", "", 9) == ["a"]
    assert len(server.asked) == 1


async def test_recent_names_are_asked_for_once_and_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES_AGE", 0.2)
    server = Server(["a"])
    names = names_of(server)
    for _ in range(3):
        assert choose(await names.recent(), "", "", 9) == ["a"]
    assert len(server.asked) == 1
    await eventually(lambda: not names._found, "they are let go")
    server.streams[0].append("b")
    assert choose(await names.recent(), "", "", 9) == ["a", "b"]


async def test_a_listing_that_fails_fails_for_those_who_wait_and_for_nobody_after_them() -> None:
    server = Server(["a"])
    names = names_of(server)

    async def away(stream: str, offset: int) -> None:
        raise LogUnavailable("away")

    server.before = away
    results = await asyncio.gather(names.fresh(), names.fresh(), return_exceptions=True)
    assert [type(result) for result in results] == [LogUnavailable] * 2
    server.before = None
    assert choose(await names.fresh(), "", "", 9) == ["a"]


async def test_a_walk_over_many_sessions_lists_those_that_stay_once_while_others_come_and_go(
    nats_server: EmbeddedServer,
) -> None:
    log = await open_log(ConnectOptions(servers=(nats_server.url,)), LogSettings(shards=3, max_bytes=512 << 20))
    try:
        stay = [f"stay-{number:04}" for number in range(2000)]
        go = [f"stay-{number:04}-go" for number in range(0, 2000, 40)]
        for names in (stay[:1000], stay[1000:], go):
            await asyncio.gather(*(log.append(name, Row(b'{"type":"t","data":1}')) for name in names))
        found: list[str] = []
        after = ""
        while True:
            page = await log.sessions("stay-", after, 150)
            found += [state.session for state in page.sessions]
            if page.next is None:
                break
            after = page.next
            await log.purge(go.pop(0))
            await log.purge(go.pop())
            await log.append(f"{after}-new", Row(b'{"type":"t","data":1}'))
        assert found == sorted(set(found))
        assert [name for name in found if name in set(stay)] == stay
        assert len(found) < 2000 + 50  # those that went before their page came are in none
    finally:
        await log.close()
