"""Three replicating servers, two instances, a steady flow: whatever breaks, readers that stay miss nothing.

All tests share one cluster, each has sessions of its own, and each mends what it breaks.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from ringmere.embedded import EmbeddedServer
from support.cluster import LinkedCluster
from support.gateway import GatewayProcess, gateway
from support.nats import api, eventually
from support.steady import Load, Scene, scene

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

STREAM = "RINGMERE_0"
FLAGS = ("--replicas", "3", "--retry-ms", "100", "--heartbeat", "0.5s")
STALL = 13.0
"""Seconds that an instance stands still: long enough for its server to give it up."""
APART = 6.0
"""Seconds that a link stays cut: longer than an election."""
DEGRADED = frozenset({"log_degraded", "log_restored"})
"""What readers are told when publishers are refused for a while; it says nothing about what they got."""
names = itertools.count(1)


class Site(NamedTuple):
    """What the tests break."""

    cluster: LinkedCluster
    one: GatewayProcess
    two: GatewayProcess

    @property
    def urls(self) -> list[str]:
        return [self.one.url, self.two.url]

    def load(self, at: GatewayProcess | None = None, pad: int = 0) -> Load:
        """Publish to two new sessions, at one instance or at both in turn."""
        prefix = f"s{next(names)}"
        return Load([at.url] if at else self.urls, [f"{prefix}-a", f"{prefix}-b"], pad=pad)

    async def away_from_instances(self) -> EmbeddedServer:
        """Return a node that no instance is connected to, one at least of three."""
        busy = [await self.cluster.node_of(instance) for instance in (self.one, self.two)]
        return next(node for node in self.cluster.nodes if node not in busy)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """The cluster and the instances of all tests here."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with AsyncExitStack() as stack:
        cluster = LinkedCluster(directory)
        await cluster.link(stack)
        stack.push_async_callback(cluster.kill)
        await cluster.start()
        one, two = [
            await stack.enter_async_context(gateway(directory / name, *FLAGS, nats_url=cluster.nodes[index].url))
            for index, name in enumerate(("one", "two"))
        ]
        yield Site(cluster, one, two)


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: Site) -> Site:
    """The shared site, in order again."""
    await shared.cluster.whole()
    for instance in (shared.one, shared.two):
        await instance.wait_status("/readyz", 200, 60)
    return shared


async def down_and_up(site: Site, playing: Scene, node: EmbeddedServer) -> None:
    """Kill a node, let events flow without it, start it again, let events flow with it."""
    await node.kill()
    await playing.flow()
    await node.start()
    await playing.flow()


async def test_the_streams_leader_is_killed(site: Site) -> None:
    leader = await site.away_from_instances()
    await site.cluster.move_leader(STREAM, leader)
    async with scene(site.load(), site.urls) as playing:
        await down_and_up(site, playing, leader)
    playing.complete(DEGRADED)


async def test_the_node_of_an_instance_is_killed(site: Site) -> None:
    node = await site.cluster.node_of(site.one)
    await site.cluster.move_leader(STREAM, await site.away_from_instances())
    async with scene(site.load(), site.urls) as playing:
        await down_and_up(site, playing, node)
        assert await site.cluster.node_of(site.one) is not node
    playing.complete(DEGRADED)


async def test_a_follower_without_instances_is_killed_and_nobody_notices(site: Site) -> None:
    follower = await site.away_from_instances()
    await site.cluster.move_leader(STREAM, await site.cluster.node_of(site.one))
    async with scene(site.load(), site.urls) as playing:
        await down_and_up(site, playing, follower)
    playing.complete()


async def test_the_leader_steps_down(site: Site) -> None:
    before = await site.cluster.leads(STREAM)
    others = [node for node in site.cluster.nodes if node is not before]
    async with scene(site.load(), site.urls) as playing:
        for node in (*others, before):
            await site.cluster.move_leader(STREAM, node)
            await playing.flow()
    playing.complete(DEGRADED)


@pytest.mark.parametrize("alone", [False, True], ids=["from the leader", "from both others"])
async def test_an_instances_node_is_cut_off(site: Site, alone: bool) -> None:
    """What the leader republishes does not reach that instance, and its reads and publishes get no answer.

    Its own connection is there all the time. Cut off from both others, its node has no quorum either.
    """
    leader = await site.away_from_instances()
    await site.cluster.move_leader(STREAM, leader)
    node = await site.cluster.node_of(site.one)
    far = [other for other in site.cluster.nodes if other is not node] if alone else [leader]
    async with scene(site.load(), site.urls) as playing:
        async with AsyncExitStack() as cuts:
            for other in far:
                await cuts.enter_async_context(site.cluster.cut(other, node))
            await asyncio.sleep(APART)
        assert playing.load.told, "nobody has noticed"
        await playing.flow()
    playing.complete(DEGRADED)


async def test_an_instance_stands_still_for_13_seconds(site: Site) -> None:
    node = await site.cluster.node_of(site.one)
    async with scene(site.load(site.two, pad=40_000), site.urls) as playing:
        site.one.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(STALL)
        finally:
            site.one.signal(signal.SIGCONT)
        assert "Slow Consumer" in node.log_file.read_text(), "it was not given up"
        await playing.flow()
    playing.complete(DEGRADED)


async def test_the_whole_cluster_is_killed_and_comes_back(site: Site) -> None:
    async with scene(site.load(), site.urls) as playing:
        await site.cluster.kill()
        for instance in (site.one, site.two):
            await instance.wait_status("/readyz", 503, 60)
        await asyncio.gather(*(node.start() for node in site.cluster.nodes))
        await playing.flow()
    playing.complete(DEGRADED)


async def test_without_a_quorum_publishers_are_refused_and_nothing_is_stored_twice(site: Site) -> None:
    kept = await site.cluster.node_of(site.one)
    async with scene(site.load(), site.urls) as playing:
        lost = [node for node in site.cluster.nodes if node is not kept]
        await asyncio.gather(*(node.kill() for node in lost))
        await eventually(lambda: playing.load.told[503] > 3, "publishers are refused", 60)
        await asyncio.gather(*(node.start() for node in lost))
        await playing.flow()
    playing.complete(DEGRADED)


def hold_to_the_verdicts(playing: Scene) -> None:
    """Hold readers to: what is missing is missing exactly where a verdict stands; all else as ever."""
    for follower in playing.followers:
        assert follower.end == "", follower.end
        due = playing.load.due(follower.session)
        got = follower.events
        assert got == sorted(got), "out of order"
        assert len({id_ for id_, _ in got}) == len(got), "twice"
        last, told = 0, None
        for envelope in follower.seen:
            if envelope["type"] == "state_resync_required":
                told = envelope["data"]
                assert told["lastDeliveredId"] == last
            elif "id" in envelope:
                between = [event for event in due if last < event[0] < envelope["id"]]
                if between:
                    assert told is not None, f"missing without a word: {between[:5]}"
                    assert told["earliestAvailableId"] > between[-1][0]
                if told is not None:
                    assert told["earliestAvailableId"] <= envelope["id"]
                last, told = envelope["id"], None
        assert got[-1] == due[-1]


async def test_res_3_the_stream_is_purged_under_load_and_a_loss_is_told_where_it_is(site: Site) -> None:
    async with scene(site.load(), site.urls) as playing:
        for _ in range(3):
            async with site.cluster.operator() as connection:
                assert (await api(connection, f"STREAM.PURGE.{STREAM}"))["success"]
            await playing.flow()
    hold_to_the_verdicts(playing)


async def test_epo_1_the_stream_is_deleted_and_made_again_under_load(site: Site) -> None:
    async with scene(site.load(), site.urls) as playing:
        async with site.cluster.operator() as connection:
            config = (await api(connection, f"STREAM.INFO.{STREAM}"))["config"]
            assert (await api(connection, f"STREAM.DELETE.{STREAM}"))["success"]

            async def made() -> bool:
                return "error" not in await api(connection, f"STREAM.CREATE.{STREAM}", config)

            await eventually(made, "the stream is there again", 60)
        await playing.flow()
    hold_to_the_verdicts(playing)
    for follower in playing.followers:
        assert follower.controls.count("state_resync_required") == 1
