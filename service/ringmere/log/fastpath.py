"""NATS clients that hand messages as raw bytes to synchronous sinks.

nats-py's ordinary delivery builds a message object and wakes a task for every message, about 12 µs of
CPU. :class:`FastClient` overrides the one private method where the parser hands a message over, and
calls the sink in place: about 2.6 µs, and less in a run of messages (:mod:`ringmere.log.parser`).
Everything else of nats-py (authentication, TLS, reconnect, replay of subscriptions) stays. Where the method
has another shape, :func:`new_client` returns :class:`PlainClient`, which keeps the same promises through
ordinary subscriptions.

Both close three holes of nats-py 2.16 that would end a long-lived connection for good or send twice:
a late answer to an abandoned flush stops its read loop, an error line of the server closes the client
for ever instead of reconnecting, and commands buffered at the moment of a loss are sent after the
reconnect although their callers were told that they had failed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ringmere.log.parser import RawSink, RunParser

__all__ = ["FastClient", "PlainClient", "RawClient", "RawSink", "fits", "new_client"]

READ_AHEAD = 512 * 1024
"""Bytes taken from the socket beyond which reading pauses, at twice as much; the longest turn of the loop.

While the loop is busy the rest waits for its next turn, so turns grow with the load, and with them what
goes out to a reader in one write. With nats-py's 32 KiB a thousand busy sessions cost a write each event.
"""

_EXPECTED = ["self", "sid", "subject", "reply", "data", "headers"]
_PERMISSIONS = "permissions violation"


def fits(client_class: type[Client] = Client) -> bool:
    """Say whether the client class has the private method that the fast path overrides, in the known shape."""
    method = getattr(client_class, "_process_msg", None)
    return inspect.iscoroutinefunction(method) and list(inspect.signature(method).parameters) == _EXPECTED


def new_client() -> RawClient:
    """Return an unconnected client: the fast one when the installed nats-py has the expected shape."""
    return FastClient() if fits() else PlainClient()


class RawClient(Client):
    """What both clients share: raw writes, and a connection that survives what should not end it."""

    def __init__(self) -> None:
        super().__init__()
        self.on_loss: Callable[[], None] = lambda: None
        """Called in the same turn in which the loss of the connection is noticed."""

    def write(self, data: bytes) -> None:
        """Write protocol bytes to the transport, behind everything written before."""
        writer = self._writer()
        # A transport that is closing refuses writes; its loss is noticed, and told, in the same turn or the next.
        if writer is not None and not writer.transport.is_closing():
            writer.write(data)

    @property
    def info(self) -> dict[str, Any]:
        """What the current server says of itself."""
        return self._server_info

    def unsent(self) -> int:
        """Return how many bytes the transport holds because the server does not read them."""
        writer = self._writer()
        return 0 if writer is None else writer.transport.get_write_buffer_size()

    def _writer(self) -> asyncio.StreamWriter | None:
        return getattr(self._transport, "_io_writer", None)

    def ping(self, answered: asyncio.Future[bool]) -> None:
        """Ask for a sign of life behind everything written before; ``answered`` gets the result."""
        self._pongs.append(answered)
        self.write(b"PING\r\n")

    async def attach(self, subject: str, sink: RawSink) -> int:
        """Subscribe ``sink`` to ``subject``, restored after each reconnect; return the subscription's number."""
        raise NotImplementedError

    def detach(self, sid: int) -> None:
        """End a subscription; its sink is not called any more after this returns."""
        raise NotImplementedError

    async def _read_loop(self) -> None:
        reader = getattr(self._transport, "_io_reader", None)
        if reader is not None:
            reader._limit = READ_AHEAD
        await super()._read_loop()

    async def _process_pong(self) -> None:
        # nats-py sets the result of a future that its own timeout has cancelled, and the read loop dies of it.
        if self._pongs:
            answered = self._pongs.pop(0)
            self._pings_outstanding = 0
            self._pongs_received += 1
            if not answered.done():
                answered.set_result(True)

    async def _process_err(self, err_msg: str) -> None:
        # nats-py closes the client for ever on most error lines; the server has only ended this connection.
        if _PERMISSIONS in err_msg:
            await super()._process_err(err_msg)
            return
        failure = errors.Error(f"nats: {err_msg.strip(chr(39))}")
        await self._error_cb(failure)
        await self._process_op_err(failure)

    async def _process_op_err(self, e: Exception) -> None:
        if not (self.is_closed or self.is_reconnecting):
            # What is still buffered belongs to callers who hear of a failure now; it must not be sent later.
            self._pending = []
            self._pending_data_size = 0
            self.on_loss()
        await super()._process_op_err(e)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # nats-py reads the size limit on connect only; a server tells a changed one at any time.
        if "max_payload" in info:
            self._max_payload = info["max_payload"]
        await super()._process_info(info, initial_connection)


class _FastSubscription(Subscription):
    """What nats-py needs to restore a subscription after a reconnect; without its queue of 4 KiB."""

    def __init__(self, conn: Client, sid: int, subject: str) -> None:
        self._conn = conn
        self._id = sid
        self._subject = subject
        self._queue = ""
        self._max_msgs = 0
        self._received = 0
        self._closed = False
        self._jsi = None
        self._wait_for_msgs_task = None
        self._message_iterator = None
        self._pending_next_msgs_calls = {}


class FastClient(RawClient):
    """A client whose sinks are called by the parser itself."""

    def __init__(self) -> None:
        super().__init__()
        self._sinks: dict[int, RawSink] = {}
        self._ps = RunParser(self, self._sinks, _report)

    async def attach(self, subject: str, sink: RawSink) -> int:
        """Subscribe ``sink``; what the server sends for it never touches a queue."""
        self._sid += 1
        sid = self._sid
        self._subs[sid] = _FastSubscription(self, sid, subject)
        self._sinks[sid] = sink
        if self.is_connected:
            # Written here, not through nats-py's buffer: its flush overtakes what is in that buffer.
            self.write(f"SUB {subject}  {sid}\r\n".encode())
        return sid

    def detach(self, sid: int) -> None:
        """Forget the sink at once and tell the server."""
        if self._sinks.pop(sid, None) is not None:
            self._subs.pop(sid, None)
            if self.is_connected:
                self.write(f"UNSUB {sid}\r\n".encode())

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        sink = self._sinks.get(sid)
        if sink is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            sink(subject, reply, headers or b"", data)
        except Exception as error:
            # A raising sink is a defect of its owner, but it must not stop the read loop of all others.
            _report(error, subject)


class PlainClient(RawClient):
    """The same promises through nats-py's public subscriptions."""

    def __init__(self) -> None:
        super().__init__()
        self._ordinary: dict[int, Subscription] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def attach(self, subject: str, sink: RawSink) -> int:
        """Subscribe ``sink`` behind an ordinary callback."""

        async def deliver(message: Msg) -> None:
            if sid in self._ordinary:
                sink(message.subject.encode(), message.reply.encode(), _block(message.headers), message.data)

        subscription = await self.subscribe(subject, cb=deliver)
        sid = int(subscription._id)
        self._ordinary[sid] = subscription
        await self.flush()
        return sid

    def detach(self, sid: int) -> None:
        """Mute the sink at once and unsubscribe in the background."""
        subscription = self._ordinary.pop(sid, None)
        if subscription is not None and not self.is_closed:
            task = asyncio.get_running_loop().create_task(subscription.unsubscribe())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)


def _block(headers: dict[str, str] | None) -> bytes:
    """Build the header block that nats-py has taken apart; a status goes back into the first line."""
    if not headers:
        return b""
    left = dict(headers)
    words = ("NATS/1.0", left.pop("Status", ""), left.pop("Description", ""))
    first = " ".join(word for word in words if word)
    lines = [first, *(f"{name}: {value}" for name, value in left.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _report(error: Exception, subject: bytes) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"a sink raised on {subject.decode(errors='replace')}", "exception": error}
    )
