"""``ringmere publish`` against a real gateway."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

from ringmere.embedded import free_port
from support.command import ringmere, running
from support.gateway import gateway
from support.nats import eventually
from support.scripted import answer, scripted


async def stored(server: str, session: str, count: int) -> list[dict[str, Any]]:
    """Return the first events of a session."""
    done = await ringmere("tail", session, "--from", "start", "--count", str(count), "--json", server=server)
    assert done.code == 0, done.err
    return [line for line in done.lines if "id" in line]


def turn(path: Path, count: int, step_ms: float = 0) -> Path:
    """Write a recorded turn of ``count`` events."""
    rows = [
        {"type": "chunk", "data": {"n": n, "text": "é\n"}, "promptId": "p", "_meta": {"k": n}, "at_ms": n * step_ms}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def test_one_event_prints_its_id(server: str) -> None:
    done = await ringmere("publish", "one", "--type", "note", "--data", '{"a":[1,"é"]}', server=server)
    assert done.code == 0, done.err
    [event] = await stored(server, "one", 1)
    assert done.out == f"{event['id']}\n"
    assert (event["type"], event["data"]) == ("note", {"a": [1, "é"]})


async def test_one_event_without_data_has_null(server: str) -> None:
    assert (await ringmere("publish", "null", "--type", "ping", server=server)).code == 0
    assert (await stored(server, "null", 1))[0]["data"] is None


async def test_the_same_key_twice_stores_one_event(server: str) -> None:
    command = ("publish", "twice", "--type", "note", "--data", "1", "--key", "k", "--json")
    first, second = [(await ringmere(*command, server=server)).lines[0] for _ in range(2)]
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["id"] == second["id"]


async def test_a_terminal_event_closes_the_session(server: str) -> None:
    await ringmere("publish", "end", "--type", "done", "--terminal", server=server)
    done = await ringmere("tail", "end", "--from", "start", "--json", server=server)
    assert done.code == 0
    assert [line["type"] for line in done.lines if "id" in line] == ["done"]


async def test_a_file_arrives_complete_in_order_and_as_it_is_but_at_ms(server: str, tmp_path: Path) -> None:
    path = turn(tmp_path / "t.ndjson", 450)
    done = await ringmere("publish", "file", "--file", str(path), server=server)
    assert done.code == 0, done.err
    assert "450 events published to file" in done.out
    events = await stored(server, "file", 450)
    assert [event["data"]["n"] for event in events] == list(range(450))
    assert {event["promptId"] for event in events} == {"p"}
    assert [event["_meta"]["k"] for event in events] == list(range(450))
    assert not any("at_ms" in event for event in events)


async def test_stdin_takes_lines_and_passes_over_blank_ones(server: str) -> None:
    lines = b'{"type":"a","data":1}\n\n{"type":"b","data":2}'
    assert (await ringmere("publish", "stdin", server=server, stdin=lines)).code == 0
    assert [event["type"] for event in await stored(server, "stdin", 2)] == ["a", "b"]


async def test_a_line_on_stdin_is_published_while_stdin_stays_open(server: str) -> None:
    async with running("publish", "live", server=server) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"type":"a","data":1}\n')
        await process.stdin.drain()
        await _until_stored(server, "live")
        process.stdin.close()
        assert await process.wait() == 0


async def test_ctrl_c_while_stdin_is_quiet_ends_it_with_one_line(server: str) -> None:
    async with running("publish", "quiet", server=server) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b'{"type":"a","data":1}\n')
        await _until_stored(server, "quiet")
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 1
        assert await process.stderr.read() == b"ringmere: interrupted\n"


async def _until_stored(server: str, session: str) -> None:
    async def some() -> bool:
        return bool((await ringmere("sessions", "ls", "--prefix", session, "--json", server=server)).lines)

    await eventually(some, f"an event of {session}")


async def test_a_rate_and_a_pace_spread_the_events_in_time(server: str, tmp_path: Path) -> None:
    path = turn(tmp_path / "t.ndjson", 5, step_ms=200)
    for session, flags in (("rate", ("--rate", "5")), ("pace", ("--pace",))):
        begin = time.monotonic()
        assert (await ringmere("publish", session, "--file", str(path), *flags, server=server)).code == 0
        assert time.monotonic() - begin >= 0.8
        stamps = [event["_meta"]["serverTimestamp"] for event in await stored(server, session, 5)]
        assert stamps[-1] - stamps[0] >= 700


async def test_a_line_that_is_no_event_stops_it_and_is_named(server: str) -> None:
    lines = b'{"type":"a","data":1}\n{"type":"b"}\n{"type":"c","data":3}\n'
    done = await ringmere("publish", "bad", server=server, stdin=lines)
    assert done.code == 1
    assert "line 2: 'data' is required" in done.err
    assert "1 event published" in done.err
    assert done.err.count("\n") == 1
    assert len(await stored(server, "bad", 1)) == 1


async def test_bad_lines_of_all_sorts_fail_with_one_line(server: str) -> None:
    for line in (b"{", b"[1]", b"\xff", b'{"type":"a","data":NaN}', b'{"type":"a","data":1,"id":4}', b'{"at_ms":"x"}'):
        done = await ringmere("publish", "worse", server=server, stdin=line + b"\n")
        assert done.code == 1, line
        assert done.err.startswith("ringmere: line 1: "), done.err
        assert done.err.count("\n") == 1


async def test_an_event_that_is_too_large_fails_by_its_line_and_the_rest_is_stored(server: str) -> None:
    large = json.dumps({"type": "a", "data": "x" * 1_100_000}).encode()
    lines = b'{"type":"a","data":1}\n' + large + b'\n{"type":"c","data":3}\n'
    done = await ringmere("publish", "large", server=server, stdin=lines)
    assert done.code == 1
    assert "line 2" in done.err
    assert "event_too_large" in done.err
    assert [event["type"] for event in await stored(server, "large", 2)] == ["a", "c"]


async def test_a_file_that_is_not_there_fails_with_its_name(server: str) -> None:
    done = await ringmere("publish", "s", "--file", "nowhere.ndjson", server=server)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "nowhere.ndjson" in done.err


async def test_a_gateway_that_dies_meanwhile_costs_no_event_and_doubles_none(tmp_path: Path) -> None:
    path = turn(tmp_path / "t.ndjson", 200)
    listen = f"127.0.0.1:{free_port()}"
    async with gateway(tmp_path, listen=listen) as instance:
        async with running("publish", "s", "--file", str(path), "--rate", "100", server=instance.url) as process:
            await _until_stored(instance.url, "s")
            await instance.kill()
            await instance.start()
            assert await asyncio.wait_for(process.wait(), 60) == 0
        events = await stored(instance.url, "s", 200)
        assert [event["data"]["n"] for event in events] == list(range(200))
        [session] = (await ringmere("sessions", "ls", "--json", server=instance.url)).lines
        assert session["events"] == 200


async def test_with_degraded_an_event_is_stored_where_that_can_be(server: str) -> None:
    done = await ringmere("publish", "may", "--type", "note", "--degraded", server=server)
    assert done.code == 0, done.err
    assert done.out == f"{(await stored(server, 'may', 1))[0]['id']}\n"


async def test_with_degraded_one_says_what_was_not_stored(tmp_path: Path) -> None:
    live = answer(202, {"id": None, "degraded": True})
    kept = answer(201, {"id": 9, "sessionId": "s", "duplicate": False})
    async with scripted(live, live, live, kept, live) as gateway_:
        done = await ringmere("publish", "s", "--type", "t", "--degraded", server=gateway_.url)
        assert (done.code, done.out) == (0, "not stored, sent to live readers only\n")
        done = await ringmere("publish", "s", "--type", "t", "--degraded", "--json", server=gateway_.url)
        assert done.lines[0]["id"] is None
        assert done.lines[0]["degraded"] is True
        lines = str(turn(tmp_path / "lines", 3))
        done = await ringmere("publish", "s", "--file", lines, "--degraded", server=gateway_.url)
    assert done.code == 0, done.err
    assert done.out.startswith("1 event published to s, ids 9 … 9, in ")
    assert done.out.endswith(" s, 2 not stored, sent to live readers only\n")
    assert len(gateway_.asked) == 5
