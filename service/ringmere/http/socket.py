"""The connection of a WebSocket stream: frames out straight from the hub, and the little that a client may say.

What goes out is framed here for many readers at once (:mod:`ringmere.core.websocket`); what comes in is parsed by
:mod:`websockets`, which also answers pings and the client's close frame.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from aiohttp import web
from websockets.frames import DATA_OPCODES, CloseCode, Frame
from websockets.protocol import Protocol as WebSocketProtocol
from websockets.protocol import Side, State

from ringmere.core.frames import without_retry
from ringmere.core.reasons import CloseReason
from ringmere.core.websocket import Encode
from ringmere.http.handover import HandedOver, Wire
from ringmere.http.options import MAX_FRAMES, MAX_MESSAGE, MISSED_PONGS
from ringmere.http.protocol import GatewayProtocol
from ringmere.hub.lifetime import Lifetime

_REASON = 123
"""Bytes that a close frame has for its reason."""
_SLICE = 4096
"""Bytes of input that are parsed before the bound on frames is looked at again."""


class WebSocketSink(Wire):
    """The writing end of one stream (:class:`ringmere.hub.sink.Sink`), and the ears of its transport.

    It may be there before its reader is: the first message of a client can say where the stream begins.
    """

    __slots__ = (
        "_encode",
        "_frames",
        "_message",
        "_parts",
        "_protocol",
        "_subscriber",
        "_unanswered",
    )

    transport: str = "websocket"
    framed: bool = False

    def __init__(self, transport: asyncio.Transport, encode: Encode, *, paused: bool, hello: bool = False) -> None:
        """``hello``: one message is expected, see :meth:`message`."""
        super().__init__(transport, paused=paused)
        self._encode = encode
        self._protocol = WebSocketProtocol(Side.SERVER, max_size=MAX_MESSAGE)
        self._subscriber: Lifetime | None = None
        self._message: asyncio.Future[bytes | None] | None = None
        if hello:
            self._message = asyncio.get_running_loop().create_future()
        self._parts: list[bytes] = []
        self._frames = 0
        self._unanswered = 0

    # -- what the hub calls ----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Hand over the envelopes of SSE frames; nothing follows a close frame."""
        blob = self._encode(without_retry(data))
        if blob and self.open:
            self._put(blob)

    def heartbeat(self) -> None:
        """Send a ping. A client that has sent nothing at all for ``MISSED_PONGS`` of them is gone."""
        if self._unanswered >= MISSED_PONGS:
            if self._subscriber is not None:
                self._subscriber.drop(CloseReason.CLIENT_GONE)
            return
        self._frames = 0
        if self.open:
            self._unanswered += 1
            self._protocol.send_ping(b"")
            self._flush()

    def finish(self, reason: CloseReason) -> None:
        """Write the close frame of a reason; see :meth:`close`."""
        self.close(reason.number, reason.label)

    # -- what the door calls ---------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether something can still be sent."""
        return self._transport is not None and self._protocol.state is State.OPEN and not self._transport.is_closing()

    def serve(self, subscriber: Lifetime) -> None:
        """Begin a reader's stream, or end it if its client has left meanwhile."""
        if not self.open:
            subscriber.cancel()
            return
        self._subscriber = subscriber
        subscriber.attach(self)

    async def message(self, seconds: float) -> bytes | None:
        """Wait for the client's first message; None when it did not come, or the client has left."""
        assert self._message is not None
        try:
            async with asyncio.timeout(seconds):
                return await self._message
        except TimeoutError:
            return None
        finally:
            self._message, self._parts = None, []

    def close(self, code: int, text: str) -> None:
        """Write a close frame, and close once the client has answered it, after ``FLUSH_GRACE`` in any case."""
        if self.open:
            self._protocol.send_close(code, text.encode()[:_REASON].decode(errors="ignore"))
            self._flush()
            self._expect_end()

    # -- what the connection calls ---------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Take what the client sends: pongs, a close frame, and one message where it was asked for."""
        self._unanswered = 0
        for start in range(0, len(data), _SLICE):
            self._protocol.receive_data(data[start : start + _SLICE])
            for frame in self._protocol.events_received():
                if isinstance(frame, Frame):
                    self._heard(frame)
            self._flush()
        if self._protocol.close_expected():
            # The client has closed, or it broke a rule: nothing can be sent any more.
            self._expect_end()
            self._tell(None)
            if self._subscriber is not None:
                self._subscriber.lost()

    def pause(self) -> None:
        """Take the transport's word that it is full."""
        self.paused = True
        if self._subscriber is not None:
            self._subscriber.pause()

    def resume(self) -> None:
        """Take the transport's word that it has room."""
        self.paused = False
        if self._subscriber is not None:
            self._subscriber.resume()

    def lost(self) -> None:
        """Let go of the transport and tell the reader."""
        self._let_go()
        self._tell(None)
        if self._subscriber is not None:
            self._subscriber.lost()

    # -- inside ----------------------------------------------------------------------------------------

    def _heard(self, frame: Frame) -> None:
        self._frames += 1
        if self._frames > MAX_FRAMES:
            self._refuse(f"more than {MAX_FRAMES} frames between two heartbeats")
        elif frame.opcode in DATA_OPCODES:
            if self._message is None or self._message.done():
                self._refuse("nothing is to be sent here but what ?hello=1 asks for")
                return
            self._parts.append(bytes(frame.data))
            if frame.fin:
                self._tell(b"".join(self._parts))

    def _refuse(self, why: str) -> None:
        self._protocol.fail(CloseCode.POLICY_VIOLATION, why)

    def _tell(self, message: bytes | None) -> None:
        if self._message is not None and not self._message.done():
            self._message.set_result(message)

    def _put(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _flush(self) -> None:
        """Write what the protocol has to say; an empty piece is the end."""
        for data in self._protocol.data_to_send():
            if data:
                self._put(data)
            elif self._transport is not None:
                self._transport.close()

    def _expect_end(self) -> None:
        if self._transport is not None:
            self._abort_after_grace(self._transport)


class Opener(Protocol):
    """What becomes of a connection once the handshake has been accepted."""

    async def begin(self, sink: WebSocketSink) -> None:
        """Begin the stream, or close."""

    def cancel(self) -> None:
        """Give back what is held: the handshake could not be answered."""


class WebSocketStream(HandedOver):
    """The answer that accepts a handshake.

    Extensions are never accepted: permessage-deflate would need an encoding of its own for each reader.
    """

    def __init__(self, opener: Opener, headers: dict[str, str], encode: Encode, *, hello: bool = False) -> None:
        super().__init__(status=101, headers=headers)
        self._opener = opener
        self._encode = encode
        self._hello = hello

    async def _begin(self, request: web.BaseRequest, protocol: GatewayProtocol, transport: asyncio.Transport) -> None:
        sink = WebSocketSink(transport, self._encode, paused=protocol.writing_paused, hello=self._hello)
        protocol.hand_over(sink)
        await self._opener.begin(sink)

    def _cancel(self) -> None:
        self._opener.cancel()
