"""The connection to NATS: one for an instance, alive until it is closed.

Two rules. A request either left the process or it did not, and the error says which: nothing is kept
back to be sent after a reconnect. And every wait has a deadline, also the first connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Callable, Mapping

from ringmere.core.errors import EventTooLarge, LogRefused, LogUnavailable
from ringmere.core.limits import MIB
from ringmere.log.dial import dial
from ringmere.log.fastpath import RawClient, RawSink, new_client
from ringmere.log.options import ConnectOptions
from ringmere.log.requests import Inbox, NoReply, NoResponders, NotConnected, NotPermitted, Reply, Requests

__all__ = [
    "ConnectOptions",
    "Connection",
    "Inbox",
    "NoReply",
    "NoResponders",
    "NotConnected",
    "NotPermitted",
    "RawSink",
    "Reply",
    "Subscription",
]

MAX_UNSENT = 64 * MIB
"""Bytes that wait for a server that does not read; beyond it sends are refused."""
FLUSH_TIMEOUT = 5.0
CLOSE_TIMEOUT = 2.0

_VIOLATION = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"")


class Subscription:
    """A raw subscription, restored after each reconnect until it is closed."""

    __slots__ = ("_client", "_sid", "subject")

    def __init__(self, client: RawClient, sid: int, subject: str) -> None:
        self._client = client
        self._sid = sid
        self.subject = subject

    def close(self) -> None:
        """End it; the sink is not called any more after this returns."""
        self._client.detach(self._sid)


class Connection:
    """A connection that comes back by itself. Made by :meth:`open`; all methods belong to its event loop."""

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        self._client = new_client()
        self._client.on_loss = self._lost
        self._loop = asyncio.get_running_loop()
        self._requests = Requests(f"{options.inbox_prefix}.{secrets.token_hex(11)}.")
        self._flushes: set[asyncio.Future[bool]] = set()
        self._callbacks: list[Callable[[bool], None]] = []
        self._refused_subscriptions: set[str] = set()
        self._out: list[bytes] = []
        self._unsent = 0
        self.connected = False
        self.api = "$JS.API" if options.domain is None else f"$JS.{options.domain}.API"
        """Prefix of the JetStream API's subjects."""

    @classmethod
    async def open(cls, options: ConnectOptions) -> Connection:
        """Connect within ``options.connect_timeout`` and return when requests can be made.

        Raises ``LogUnavailable`` when no server answers in time, ``LogRefused`` when one answers but a new
        try could not help: wrong credentials, a certificate that does not verify, no right to the inbox.
        """
        connection = cls(options)
        started = connection._loop.time()
        await dial(connection._client, options, connection._trouble, connection._back)
        left = options.connect_timeout - (connection._loop.time() - started)
        try:
            await connection._begin(max(left, 0.5))
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _begin(self, timeout: float) -> None:
        self.connected = self._client.is_connected
        inbox = self._requests.wildcard
        try:
            async with asyncio.timeout(timeout):
                await self._client.attach(inbox, self._requests.take)
                await self.flush()
        except TimeoutError as error:
            raise LogUnavailable(f"NATS at {self._options.addresses()} does not answer a ping") from error
        if inbox.lower() in self._refused_subscriptions:
            raise LogRefused(f"the NATS user may not subscribe to {self._options.inbox_prefix}.>, where answers go")

    @property
    def max_payload(self) -> int:
        """Bytes of headers and payload together that the current server takes."""
        return self._client.max_payload

    @property
    def server_version(self) -> str:
        """The version that the current server tells, for example ``2.15.1``."""
        return str(self._client.info.get("version", "unknown"))

    def on_state(self, callback: Callable[[bool], None]) -> None:
        """Call ``callback(False)`` when the connection is lost, ``callback(True)`` with subscriptions back."""
        self._callbacks.append(callback)

    def start_request(
        self, subject: str, payload: bytes = b"", headers: Mapping[str, str] | None = None, timeout: float = 2.0
    ) -> asyncio.Future[Reply]:
        """Send a request now and return the future of its answer; raises and fails as :meth:`request` does.

        The caller must await the future: it may carry an error.
        """
        reply, future = self._requests.expect(subject, timeout)
        try:
            self.send(subject, payload, reply, headers)
        except BaseException:
            self._requests.forget(reply)
            raise
        return future

    async def request(
        self, subject: str, payload: bytes = b"", headers: Mapping[str, str] | None = None, timeout: float = 2.0
    ) -> Reply:
        """Send a request and return its answer.

        Raises ``NotConnected`` (not sent), ``NoResponders`` (not processed), ``NoReply`` (sent, fate unknown),
        ``EventTooLarge`` (not sent).
        """
        return await self.start_request(subject, payload, headers, timeout)

    def send(self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Publish without waiting. Raises ``NotConnected`` or ``EventTooLarge``; then nothing was sent.

        What is sent in one turn of the loop leaves in one write. Raises ``ValueError`` for a subject or
        header that would break the protocol line.
        """
        if not self.connected:
            raise NotConnected("the connection to NATS is down")
        if self._unsent > MAX_UNSENT and self._client.unsent() > MAX_UNSENT:
            raise NotConnected("NATS does not read what is sent to it")
        block = b"" if headers is None else header_block(headers)
        size = len(block) + len(payload)
        if size > self._client.max_payload:
            raise EventTooLarge(size, self.max_payload)
        if not subject or not (subject + reply).isprintable() or " " in subject or " " in reply:
            raise ValueError(f"{subject!r} cannot be a subject")
        if block:
            line = f"HPUB {subject} {reply} {len(block)} {size}\r\n".encode()
        else:
            line = f"PUB {subject} {reply} {size}\r\n".encode()
        if not self._out:
            self._loop.call_soon(self._write_out)
        self._out += (line, block, payload, b"\r\n")

    def _write_out(self) -> None:
        if self._out and self.connected:
            data = b"".join(self._out)
            self._out.clear()
            self._client.write(data)
            self._unsent = self._client.unsent()

    def inbox(self, sink: RawSink) -> Inbox:
        """Return a reply subject whose answers, any number, all go to ``sink``; close it when done."""
        return self._requests.inbox(sink)

    async def subscribe(self, subject: str, sink: RawSink) -> Subscription:
        """Subscribe ``sink``; when this returns the server has the subscription.

        Raises ``NotConnected`` or ``NoReply`` (then nothing is subscribed) and ``LogRefused`` without permission.
        """
        if not self.connected:
            raise NotConnected("the connection to NATS is down")
        self._refused_subscriptions.discard(subject.lower())
        subscription = Subscription(self._client, await self._client.attach(subject, sink), subject)
        try:
            await self.flush()
            if subject.lower() in self._refused_subscriptions:
                self._refused_subscriptions.discard(subject.lower())
                raise LogRefused(f"the NATS user may not subscribe to {subject}")
        except BaseException:
            subscription.close()
            raise
        return subscription

    async def flush(self) -> None:
        """Return when the server has processed everything sent before. Raises ``NotConnected`` or ``NoReply``."""
        if not self.connected:
            raise NotConnected("the connection to NATS is down")
        self._write_out()
        answered: asyncio.Future[bool] = self._loop.create_future()
        self._flushes.add(answered)
        self._client.ping(answered)
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT):
                await answered
        except TimeoutError as error:
            raise NoReply("NATS does not answer a ping") from error
        finally:
            self._flushes.discard(answered)

    async def close(self) -> None:
        """Close for good. Whatever is under way ends with an error."""
        self._write_out()
        self._client.on_loss = lambda: None
        self.connected = False
        self._end_waits("the connection to NATS was closed")
        # A transport that cannot say goodbye in time is dropped with the process's reference to it.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._client.close()

    def _lost(self) -> None:
        self._out.clear()
        self._unsent = 0
        self._set_connected(False)
        self._end_waits("the connection to NATS was lost")

    def _end_waits(self, why: str) -> None:
        self._requests.fail(lambda subject: NoReply(f"{why} before {subject} was answered"))
        for answered in list(self._flushes):
            if not answered.done():
                answered.set_exception(NoReply(why))

    def _set_connected(self, connected: bool) -> None:
        if connected is not self.connected:
            self.connected = connected
            for callback in self._callbacks:
                callback(connected)

    async def _back(self) -> None:
        self._set_connected(True)

    async def _trouble(self, error: Exception) -> None:
        found = _VIOLATION.search(str(error))
        if found is None:
            return
        kind, subject = found.groups()
        if kind == "subscription":
            self._refused_subscriptions.add(subject)
        else:
            self._requests.fail(lambda name: NotPermitted(f"the NATS user may not publish to {name}"), subject)


def header_block(headers: Mapping[str, str]) -> bytes:
    """Return a header block. Raises ``ValueError`` when a name or value would break its line."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    text = "\r\n".join(("NATS/1.0", *lines, "", ""))
    if text.count("\r") != len(lines) + 2 or text.count("\n") != len(lines) + 2:
        raise ValueError("a header holds a line break")
    return text.encode()
