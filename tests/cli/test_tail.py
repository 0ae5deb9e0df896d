"""``ringmere tail`` against a real gateway."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from ringmere.embedded import free_port
from support.command import json_lines, ringmere, running
from support.gateway import gateway
from support.nats import eventually


async def fill(server: str, session: str, count: int, first: int = 0) -> list[int]:
    """Publish events that count, and return their ids."""
    lines = "".join(f'{{"type":"n","data":{first + n}}}\n' for n in range(count))
    done = await ringmere("publish", session, "--json", server=server, stdin=lines.encode())
    assert done.code == 0, done.err
    return [line["id"] for line in done.lines]


async def test_from_an_id_begins_behind_it(server: str) -> None:
    ids = await fill(server, "behind", 5)
    done = await ringmere("tail", "behind", "--from", str(ids[1]), "--count", "3", "--json", server=server)
    assert [line["id"] for line in done.lines if "id" in line] == ids[2:]


async def test_live_begins_with_what_comes(server: str) -> None:
    await fill(server, "live-only", 2)
    async with running("tail", "live-only", "--json", server=server) as process:
        await reading(server, "live-only")
        ids = await fill(server, "live-only", 1, first=2)
        [event] = await json_lines(process, 1)
        assert (event["id"], event["data"]) == (ids[0], 2)


async def reading(server: str, session: str) -> None:
    """Wait until the session has a reader."""

    async def some() -> bool:
        done = await ringmere("sessions", "show", session, "--json", server=server)
        return done.code == 0 and bool(done.lines[0]["readers"])

    await eventually(some, f"a reader of {session}")


async def test_people_get_a_line_an_event_with_time_id_type_and_data(server: str) -> None:
    [id_] = await fill(server, "text", 1)
    done = await ringmere("tail", "text", "--from", "start", "--count", "1", server=server)
    clock, shown, type_, data = done.out.splitlines()[0].split()
    assert (shown, type_, data) == (str(id_), "n", "0")
    assert len(clock) == 12


async def test_a_closed_session_ends_it_with_0(server: str) -> None:
    await ringmere("publish", "closed", "--type", "session_closed", server=server)
    assert (await ringmere("tail", "closed", "--from", "start", server=server)).code == 0


async def test_ctrl_c_is_the_ordinary_end(server: str) -> None:
    async with running("tail", "quiet", server=server) as process:
        await fill(server, "quiet", 1)
        await reading(server, "quiet")
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert process.stderr is not None
        assert b"Traceback" not in await process.stderr.read()


async def test_a_verdict_is_shown_before_what_is_left(tmp_path: Path) -> None:
    async with gateway(tmp_path, "--ring-size", "3") as instance:
        ids = await fill(instance.url, "s", 10)
        done = await ringmere("tail", "s", "--from", str(ids[1]), "--count", "3", "--json", server=instance.url)
        assert done.lines[0]["type"] == "state_resync_required"
        assert done.lines[0]["data"]["reason"] == "ring_evicted"
        assert [line["id"] for line in done.lines if "id" in line] == ids[-3:]


async def test_a_session_that_must_exist_and_does_not_ends_it_with_1(tmp_path: Path) -> None:
    async with gateway(tmp_path, "--require-session") as instance:
        done = await ringmere("tail", "nobody", server=instance.url)
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert "session_not_found" in done.err


async def test_it_resumes_by_itself_when_the_gateway_is_killed_and_comes_back(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    async with gateway(tmp_path, "--retry-ms", "100", listen=listen) as instance:
        ids = await fill(instance.url, "s", 5)
        async with running("tail", "s", "--from", "start", "--json", server=instance.url) as process:
            seen = [line["id"] for line in await json_lines(process, 5)]
            await instance.kill()
            await instance.start()
            ids += await fill(instance.url, "s", 5, first=5)
            while len(seen) < 10:
                seen += [line["id"] for line in await json_lines(process, 1) if "id" in line]
            assert seen == ids


async def test_several_sessions_are_followed_on_one_connection_and_named(server: str) -> None:
    for name in ("many-a", "many-b"):
        await fill(server, name, 2)
    done = await ringmere("tail", "many-a", "many-b", "--from", "start", "--count", "4", "--json", server=server)
    assert sorted((line["sessionId"], line["data"]) for line in done.lines) == [
        ("many-a", 0), ("many-a", 1), ("many-b", 0), ("many-b", 1),
    ]  # fmt: skip
    shown = await ringmere("tail", "--match", "many-*", "--from", "start", "--count", "4", server=server)
    assert sorted(line.split()[1] for line in shown.out.splitlines()) == ["many-a"] * 2 + ["many-b"] * 2


async def test_nothing_to_follow_is_a_mistake(server: str) -> None:
    for words in ([], ["a", "--match", "b*"], ["a", "b", "--from", "x"]):
        done = await ringmere("tail", *words, server=server)
        assert done.code != 0
        assert done.err
