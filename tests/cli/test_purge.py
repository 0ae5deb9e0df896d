"""``ringmere sessions purge`` and ``close`` against a real gateway."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.command import json_lines, ringmere, running
from support.gateway import clean_env


async def publish(server: str, *sessions: str) -> None:
    for session in sessions:
        done = await ringmere("publish", session, "--type", "note", server=server)
        assert done.code == 0, done.err


async def stored(server: str, prefix: str) -> list[str]:
    done = await ringmere("sessions", "ls", "--prefix", prefix, "--json", server=server)
    return [line["sessionId"] for line in done.lines]


async def test_a_purged_session_is_gone_and_its_ids_never_come_again(server: str) -> None:
    first = int((await ringmere("publish", "gone", "--type", "note", server=server)).out)
    done = await ringmere("sessions", "purge", "gone", "--yes", server=server)
    assert (done.code, done.out) == (0, "purged gone\n")
    assert (await ringmere("sessions", "show", "gone", server=server)).code == 1
    assert int((await ringmere("publish", "gone", "--type", "note", server=server)).out) > first
    again = await ringmere("sessions", "purge", "gone", "gone", "--yes", "--json", server=server)
    assert (again.code, again.lines) == (0, [{"sessionId": "gone", "purged": True}] * 2)


async def test_without_a_terminal_and_without_yes_nothing_is_purged(server: str) -> None:
    await publish(server, "kept")
    done = await ringmere("sessions", "purge", "kept", server=server)
    assert (done.code, done.out) == (2, "")
    assert "--yes" in done.err
    assert await stored(server, "kept") == ["kept"]


async def test_many_are_counted_first_and_a_dry_run_only_names_them(server: str) -> None:
    names = [f"many-{number}" for number in range(7)]
    await publish(server, *names, "other-many")
    tried = await ringmere("sessions", "purge", "--prefix", "many-", "--dry-run", server=server)
    assert (tried.code, tried.out.split()) == (0, names)
    assert "7 sessions begin with many-: many-0, many-1, many-2, many-3, many-4, …" in tried.err
    assert await stored(server, "many-") == names
    done = await ringmere("sessions", "purge", "--prefix", "many-", "--yes", "--json", server=server)
    assert done.code == 0
    assert {line["sessionId"] for line in done.lines} == set(names)
    assert done.err.startswith("7 sessions begin with many-")
    assert await stored(server, "many-") == []
    assert await stored(server, "other-many") == ["other-many"]
    nothing = await ringmere("sessions", "purge", "--prefix", "many-", server=server)
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no stored session begins with many-\n")


@pytest.mark.parametrize("arguments", [[], ["a", "--prefix", "b"], ["--prefix", ""], ["a.b"], ["--prefix", "a.*"]])
async def test_what_is_no_choice_of_sessions_ends_with_2(server: str, arguments: list[str]) -> None:
    done = await ringmere("sessions", "purge", *arguments, "--yes", server=server)
    assert (done.code, done.out) == (2, "")


async def test_on_a_terminal_it_asks_and_no_is_no(server: str) -> None:
    await publish(server, "asked")
    for answer, code, left in ((b"n\n", 1, ["asked"]), (b"y\n", 0, [])):
        ours, theirs = os.openpty()
        command = (sys.executable, "-m", "ringmere", "sessions", "purge", "asked")
        process = await asyncio.create_subprocess_exec(
            *command, stdin=theirs, stdout=theirs, stderr=theirs, env=clean_env(RINGMERE_SERVER=server)
        )
        os.write(ours, answer)
        assert await asyncio.wait_for(process.wait(), 60) == code
        os.close(theirs)
        os.close(ours)
        assert await stored(server, "asked") == left


async def test_close_ends_the_streams_of_a_session(server: str) -> None:
    await publish(server, "closing")
    async with running("tail", "closing", "--from", "start", "--json", server=server) as process:
        await json_lines(process, 1)
        done = await ringmere("sessions", "close", "closing", server=server)
        assert (done.code, done.out) == (0, "closed closing\n")
        [last] = await json_lines(process, 1)
        assert last["type"] == "session_closed"
        assert await asyncio.wait_for(process.wait(), 30) == 0
    [state] = (await ringmere("sessions", "show", "closing", "--json", server=server)).lines
    assert state["closed"] is True


@asynccontextmanager
async def broken() -> AsyncIterator[str]:
    """Run something that refuses every other request."""
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        line = b"204 No Content" if asked % 2 else b"503 Service Unavailable"
        writer.write(b"HTTP/1.1 " + line + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(("command", "word"), [("purge", "purged"), ("close", "closed")])
async def test_one_that_fails_does_not_keep_the_others_and_the_command_ends_with_1(command: str, word: str) -> None:
    flags = ["--yes"] if command == "purge" else []
    async with broken() as url:
        done = await ringmere("sessions", command, "a", "b", "c", "d", *flags, server=url)
    assert done.code == 1
    assert done.out.count(word) == 2
    assert done.err.count(f"was not {word}: http_503") == 2


async def test_a_gateway_that_is_away_is_1(server: str) -> None:
    done = await ringmere("sessions", "close", "a", server="http://127.0.0.1:1")
    assert (done.code, done.out) == (1, "")
