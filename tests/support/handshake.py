"""A WebSocket handshake as bytes, and a client that does only what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from websockets.frames import Close, Frame, Opcode
from websockets.protocol import Protocol, Side

from support.raw_http import Answer, Connection, connection, request_bytes

HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


class RawSocket:
    """The far end of an accepted handshake: it answers no ping and no close by itself."""

    def __init__(self, raw: Connection, head: Answer) -> None:
        self.raw = raw
        self.head = head
        self._protocol = Protocol(Side.CLIENT, max_size=None)
        self._frames: list[Frame] = []

    async def send(self, opcode: Opcode, payload: bytes = b"", *, fin: bool = True, mask: bool = True) -> None:
        """Send one frame, masked as a client must unless told otherwise."""
        await self.raw.send(Frame(opcode, payload, fin).serialize(mask=mask))

    async def frame(self) -> Frame:
        """Return the next frame."""
        async with asyncio.timeout(20):
            while not self._frames:
                data = await self.raw.reader.read(65536)
                assert data, "the connection has ended"
                self._protocol.receive_data(data)
                self._frames = [event for event in self._protocol.events_received() if isinstance(event, Frame)]
        return self._frames.pop(0)

    async def close_code(self) -> int:
        """Return the code of the close frame, which comes next but for texts and pongs."""
        while (frame := await self.frame()).opcode is not Opcode.CLOSE:
            pass
        return Close.parse(frame.data).code

    async def eof(self) -> None:
        """Wait until the server has closed the connection."""
        async with asyncio.timeout(20):
            while await self.raw.reader.read(65536):
                pass


@asynccontextmanager
async def raw_socket(port: int, target: str) -> AsyncIterator[RawSocket]:
    """Open a WebSocket by hand."""
    async with connection(port) as raw:
        await raw.send(request_bytes("GET", target, HANDSHAKE))
        head = await raw.head()
        assert head.status == 101, head
        yield RawSocket(raw, head)
