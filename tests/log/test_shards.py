"""Sessions land in the shard that the real server's own mapping picks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmere.core.session import fresh_session_id
from ringmere.log import shards
from ringmere.log.connect import Connection
from support.nats import connected, eventually, running_server

ODD = ["a", "A", "0", "-", "_", ":@~=-_", "x" * 128, "Session-1", "session-1", "~~~~", "a:b@c=d"]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 63, 64])
async def test_every_session_goes_to_the_shard_that_the_servers_partition_function_names(
    tmp_path: Path, count: int
) -> None:
    sessions = [*ODD, *(f"s{n}" for n in range(300)), *(fresh_session_id() for _ in range(100))]
    placed: dict[str, int] = {}

    def note(subject: bytes, _reply: bytes, _headers: bytes, _payload: bytes) -> None:
        _, _, shard, session = subject.decode().split(".")
        placed[session] = int(shard)

    async with running_server(tmp_path, extra=shards.server_mappings(count)) as server, connected(server) as nats:
        await nats.subscribe("ringmere.events.*.*", note)
        for session in sessions:
            nats.send(shards.publish_subject(session), b"")
        await eventually(lambda: len(placed) == len(sessions), "all arrived")
    assert placed == {session: shards.shard_of(session, count) for session in sessions}
    assert len(set(placed.values())) == count


async def test_the_mapping_leaves_direct_publishes_to_the_event_subject_alone(connection: Connection) -> None:
    got: list[bytes] = []
    await connection.subscribe("ringmere.events.*.*", lambda *parts: got.append(parts[0]))
    connection.send(shards.event_subject(3, "s"), b"")
    await eventually(lambda: bool(got), "it arrived")
    assert got == [b"ringmere.events.3.s"]


def test_names_and_subjects_are_those_of_the_contract() -> None:
    assert shards.stream_name(3) == "RINGMERE_3"
    assert shards.head_name(3) == "RINGMERE_HEAD_3"
    assert shards.event_subject(3, "s") == "ringmere.events.3.s"
    assert shards.live_subject(3, "s") == "ringmere.live.3.s"
    assert shards.degraded_subject(3, "s") == "ringmere.degraded.3.s"
    assert shards.control_subject("x") == "ringmere.stream.x"
    assert shards.publish_subject("s") == "ringmere.publish.s"
    assert shards.session_of("ringmere.live.3.a:b") == "a:b"


@pytest.mark.parametrize("count", [0, 65, -1])
def test_a_number_of_shards_outside_the_contract_has_no_mapping(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 64"):
        shards.server_mappings(count)


def test_the_shipped_configuration_holds_the_mapping_of_the_default() -> None:
    shipped = Path(__file__).parents[2] / "ops" / "nats" / "mappings.conf"
    lines = [line for line in shipped.read_text().splitlines() if not line.startswith("#") and line]
    assert lines == shards.server_mappings(1).splitlines()
