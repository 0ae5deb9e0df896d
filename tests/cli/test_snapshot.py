"""``ringmere snapshot`` against a real gateway."""

from __future__ import annotations

import json
from pathlib import Path

from support.command import ringmere


async def test_a_state_is_put_shown_and_removed(server: str, tmp_path: Path) -> None:
    last = int((await ringmere("publish", "snap", "--type", "note", server=server)).out)
    state = {"text": "ü", "n": [1, 2]}
    put = ("snapshot", "put", "snap", "--last-event-id", str(last))
    assert (await ringmere(*put, server=server, stdin=json.dumps(state).encode())).code == 0
    shown = await ringmere("snapshot", "get", "snap", server=server)
    assert shown.lines == [state]
    assert f"up to {last}" in shown.err
    file = tmp_path / "state.json"
    file.write_text('{"n": 3}')
    assert (await ringmere(*put, "--file", str(file), "--final", server=server)).code == 0
    [known] = (await ringmere("snapshot", "get", "snap", "--json", server=server)).lines
    assert (known["last_event_id"], known["state"], known["final"]) == (last, {"n": 3}, True)
    assert (await ringmere("snapshot", "rm", "snap", server=server)).code == 0
    gone = await ringmere("snapshot", "get", "snap", server=server)
    assert gone.code == 1
    assert "no snapshot" in gone.err


async def test_what_cannot_be_stored_is_said_in_a_line(server: str) -> None:
    put = ("snapshot", "put", "snap-bad", "--last-event-id", "1000000000")
    for stdin, code, words in ((b"", 2, "no state"), (b"{", 2, "JSON"), (b"1", 1, "unknown_event_id")):
        done = await ringmere(*put, server=server, stdin=stdin)
        assert done.code == code
        assert words in done.err
