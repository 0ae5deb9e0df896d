"""The writing end: order, the first block, and what a resumed transport is handed."""

from __future__ import annotations

from ringmere.core.backlog import Backlog, Frame
from ringmere.hub.outlet import Outlet
from support.hub import S1, Client, World, world


class Plain(Client):
    """A client that is no reader's: pausing it tells nobody."""

    def pause(self) -> None:
        self.paused = True


def _outlet(w: World, client: Client) -> Outlet:
    return Outlet(w.hub.channel(S1), "stream", client, 3000, Backlog(16, 1 << 20))


def _queue(w: World, outlet: Outlet, frame: Frame) -> None:
    outlet.backlog.offer(frame)
    w.hub.backlog_bytes += frame.size


def _frame(seq: int, size: int = 10) -> Frame:
    return Frame(seq, b"id: %d\ndata: " % seq + b"x" * size + b"\n\n", size)


async def test_a_control_frame_waits_behind_what_is_queued() -> None:
    async with world() as w:
        await _control(w)


async def _control(w: World) -> None:
    client = Plain(framed=False)
    outlet = _outlet(w, client)
    outlet.send(b"data: first\n\n")
    client.paused = True
    _queue(w, outlet, _frame(1))
    outlet.control(b"data: control\n\n")
    assert client.raw == b"retry: 3000\ndata: first\n\n"
    client.paused = False
    assert not outlet.writable
    outlet.drain()
    assert w.hub.backlog_bytes == 0
    assert client.raw.endswith(_frame(1).sse + b"data: control\n\n")
    assert outlet.flowing


async def test_a_drain_stops_where_the_transport_pauses_again_and_counts_what_left() -> None:
    async with world() as w:
        await _drain(w)


async def _drain(w: World) -> None:
    client = Plain(framed=False, high_water=300_000)
    outlet = _outlet(w, client)
    for seq in range(1, 9):
        _queue(w, outlet, _frame(seq, 100_000))
    outlet.drain()
    assert 0 < outlet.backlog.frames < 8
    assert w.hub.backlog_bytes == outlet.backlog.bytes == outlet.backlog.frames * 100_000
    client.paused = False
    client.buffered = 0
    client.high_water = None
    outlet.drain()
    assert w.hub.backlog_bytes == outlet.backlog.bytes == 0


async def test_a_comment_is_no_first_block() -> None:
    async with world() as w:
        await _comment(w)


async def _comment(w: World) -> None:
    client = Plain(framed=False)
    outlet = _outlet(w, client)
    outlet.comment(b": ok\n")
    assert not outlet.begun
    outlet.send(b"data: x\n\n")
    assert client.raw == b": ok\nretry: 3000\ndata: x\n\n"
