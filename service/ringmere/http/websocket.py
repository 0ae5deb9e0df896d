"""``GET /session/{id}/ws`` and ``/ws``: the same streams over WebSocket, one JSON envelope a text frame (contract 7.4).

A page sees neither the status nor the headers of a handshake, so what an EventSource is told by these comes as frames
here: ``stream_opened`` first, ``stream_error`` for trouble, and a close code for every end.
"""

from __future__ import annotations

import random
import time
from typing import Any

import msgspec
from aiohttp import web
from websockets.frames import CloseCode

from ringmere.core.errors import MalformedBody, RingmereError, Unavailable
from ringmere.core.frames import control_frame
from ringmere.core.reasons import CloseReason
from ringmere.core.strict_json import load
from ringmere.core.websocket import Encode, text_frames, text_frames_with_cursor
from ringmere.http import events, sse
from ringmere.http.entrance import Entrance, Reader, entrance_headers, epoch_headers, reader_headers
from ringmere.http.options import HELLO_TIMEOUT, Door
from ringmere.http.parameters import switch
from ringmere.http.socket import WebSocketSink, WebSocketStream
from ringmere.http.upgrade import accept
from ringmere.hub.notices import stream_error

_CODES = {reason.label: reason for reason in CloseReason}


class Hello(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A client's first message: where its stream begins."""

    last_event_id: int | str | None = msgspec.field(name="lastEventId", default=None)
    event_epoch: str | None = msgspec.field(name="eventEpoch", default=None)


async def open_socket(door: Door, request: web.BaseRequest, session: str) -> web.StreamResponse:
    """Follow a session."""
    handshake = accept(door, request)
    return await _answer(door, request, sse.entrance(door, request, session), handshake, text_frames)


async def open_sockets(door: Door, request: web.BaseRequest) -> web.StreamResponse:
    """Follow many sessions; the cursor that each event leaves behind is in its envelope."""
    handshake = accept(door, request)
    return await _answer(door, request, events.entrance(door, request), handshake, text_frames_with_cursor)


async def _answer(
    door: Door, request: web.BaseRequest, way: Entrance, handshake: dict[str, str], encode: Encode
) -> web.StreamResponse:
    hello = switch(request, "hello", "invalid_hello")
    headers = {**handshake, **entrance_headers(door, way)}
    try:
        reader = await way.admit()
    except Unavailable as error:
        if door.options.stream_errors == "status":
            raise
        headers.update(epoch_headers(way))
        return WebSocketStream(Refusal(error), headers, encode)
    headers.update(reader_headers(reader))
    return WebSocketStream(Opening(door, way, reader, hello=hello), headers, encode, hello=hello)


class Refusal:
    """Temporary trouble at connect: the handshake is accepted, for a page would not hear why it was not (3.10)."""

    def __init__(self, error: RingmereError) -> None:
        self._error = error

    async def begin(self, sink: WebSocketSink) -> None:
        """Say what is wrong and when to come back, and close."""
        refuse(sink, self._error)

    def cancel(self) -> None:
        """Nothing is held."""


class Opening:
    """An admitted reader whose connection has been accepted, until its stream begins."""

    def __init__(self, door: Door, way: Entrance, reader: Reader, *, hello: bool) -> None:
        self._door = door
        self._way = way
        self._reader = reader
        self._over = reader.ended
        self._hello = hello

    async def begin(self, sink: WebSocketSink) -> None:
        """Begin the stream, behind the cursor of the client's first message if one was announced."""
        try:
            if not self._hello or await self._heard(sink):
                self._serve(sink)
        except MalformedBody as error:
            self.cancel()
            sink.close(CloseCode.INVALID_DATA, str(error))
        except RingmereError as error:
            self.cancel()
            refuse(sink, error)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Give the reader's slot back."""
        self._reader.cancel()

    async def _heard(self, sink: WebSocketSink) -> bool:
        """Wait for the first message and do as it says; say whether the stream can begin."""
        message = await sink.message(HELLO_TIMEOUT)
        if message is None:
            self.cancel()
            sink.close(CloseCode.POLICY_VIOLATION, f"?hello=1 promises a message within {HELLO_TIMEOUT:g} s")
            return False
        hello = parse_hello(message)
        if hello.last_event_id is None:
            return True
        way = self._way.behind(str(hello.last_event_id), hello.event_epoch)
        if way.ignored is not None:
            entrance_headers(self._door, way)
            self._way = way
            return True
        # The point that was held for a client without a cursor is needed no more, and its slot is.
        self.cancel()
        reader = self._reader = await way.admit()
        self._over, self._way = reader.ended, way
        return True

    def _serve(self, sink: WebSocketSink) -> None:
        reader, retry_ms = self._reader, self._door.hub.limits.retry_ms
        data: dict[str, Any] = {
            "streamId": reader.stream_id,
            "eventEpoch": reader.epoch_token,
            "retryMs": round(retry_ms * random.uniform(1 - sse.RETRY_JITTER, 1 + sse.RETRY_JITTER)),
        }
        if reader.start_id is not None and not self._over:
            data["startEventId"] = reader.start_id
        if self._way.ignored is not None:
            data["cursorIgnored"] = self._way.ignored
        sink.write(control_frame("stream_opened", data, time.time_ns() // 1_000_000))
        if self._over:
            sink.finish(CloseReason.SESSION_CLOSED)
        else:
            sink.serve(reader)


def parse_hello(message: bytes) -> Hello:
    """Return the first message of a client; raises ``MalformedBody``."""
    value = load(message)
    try:
        return msgspec.convert(value, Hello)
    except msgspec.ValidationError as error:
        raise MalformedBody(f"not a message that was asked for: {error}") from error


def refuse(sink: WebSocketSink, error: RingmereError) -> None:
    """Write ``stream_error`` and close with the code of what went wrong."""
    reason = _CODES.get(error.code, CloseReason.INTERNAL)
    retry_after = error.retry_after if isinstance(error, Unavailable) else None
    sink.write(stream_error(str(error), error.code, retry_after))
    sink.finish(reason)
