"""``ringmere sessions`` against a real gateway."""

from __future__ import annotations

from support.command import ringmere, running


async def test_ls_lists_by_id_and_by_prefix(server: str) -> None:
    for session in ("ls-b", "ls-a", "other"):
        await ringmere("publish", session, "--type", "note", server=server)
    done = await ringmere("sessions", "ls", "--prefix", "ls-", "--json", server=server)
    assert [line["sessionId"] for line in done.lines] == ["ls-a", "ls-b"]
    assert done.lines[0]["events"] == 1
    assert done.lines[0]["closed"] is False
    text = await ringmere("sessions", "ls", "--prefix", "ls-", server=server)
    assert [line.split()[0] for line in text.out.splitlines()] == ["session", "ls-a", "ls-b"]


async def test_ls_takes_a_limit(server: str) -> None:
    for n in range(3):
        await ringmere("publish", f"limit-{n}", "--type", "note", server=server)
    done = await ringmere("sessions", "ls", "--prefix", "limit-", "--limit", "2", "--json", server=server)
    assert [line["sessionId"] for line in done.lines] == ["limit-0", "limit-1"]


async def test_show_has_the_log_and_the_readers(server: str) -> None:
    id_ = int((await ringmere("publish", "show", "--type", "note", server=server)).out)
    async with running("tail", "show", "--from", "start", "--json", server=server) as process:
        assert process.stdout is not None
        await process.stdout.readline()
        done = await ringmere("sessions", "show", "show", "--json", server=server)
        [state] = done.lines
        assert (state["sessionId"], state["lastEventId"], len(state["readers"])) == ("show", id_, 1)
        text = await ringmere("sessions", "show", "show", server=server)
        assert text.code == 0
        assert "lastEventId" in text.out


async def test_show_of_an_id_that_is_none_ends_with_2(server: str) -> None:
    assert (await ringmere("sessions", "show", "a.b", server=server)).code == 2
