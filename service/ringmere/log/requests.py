"""Requests under way: one wildcard inbox, a token each, deadlines kept by one coarse timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from ringmere.core.errors import LogUnavailable
from ringmere.log.fastpath import RawSink

SWEEP = 0.05
"""Seconds between two looks at the deadlines: a request ends at most this much late."""

_NO_RESPONDERS = b"NATS/1.0 503"


class NoResponders(LogUnavailable):
    """Nothing listens on the subject: NATS has answered for it. The request was not processed."""


class NotPermitted(NoResponders):
    """The NATS user may not publish on the subject. The request was not processed."""


class NoReply(LogUnavailable):
    """The request was sent and no answer came; its fate is unknown."""


class NotConnected(LogUnavailable):
    """Refused before anything left the process."""


class Reply(NamedTuple):
    """An answer: its header block as it came (``b""`` without one) and its payload."""

    headers: bytes
    payload: bytes


class _Waiting(NamedTuple):
    future: asyncio.Future[Reply]
    deadline: float
    subject: str


class Inbox:
    """A token of the wildcard inbox whose answers all go to one sink, until it is closed."""

    __slots__ = ("_sinks", "_token", "subject")

    def __init__(self, sinks: dict[bytes, RawSink], token: bytes, subject: str) -> None:
        self._sinks = sinks
        self._token = token
        self.subject = subject

    def close(self) -> None:
        """Forget the sink; later answers are dropped."""
        self._sinks.pop(self._token, None)


class Requests:
    """The table of everything that waits for an answer; its size is bounded by the callers' own limits."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.wildcard = f"{prefix}*"
        self._skip = len(prefix.encode())
        self._waiting: dict[bytes, _Waiting] = {}
        self._sinks: dict[bytes, RawSink] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, subject: str, timeout: float) -> tuple[str, asyncio.Future[Reply]]:
        """Return a reply subject and the future of its answer. The future never outlives its deadline by much."""
        self._count += 1
        token = b"%d" % self._count
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[token] = _Waiting(future, self._loop.time() + timeout, subject)
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP, self._sweep)
        return f"{self.prefix}{self._count}", future

    def forget(self, reply: str) -> None:
        """Drop a request that was not sent, or that nobody waits for any more."""
        self._waiting.pop(reply.encode()[self._skip :], None)

    def inbox(self, sink: RawSink) -> Inbox:
        """Give out a token for any number of answers."""
        self._count += 1
        token = b"%d" % self._count
        self._sinks[token] = sink
        return Inbox(self._sinks, token, f"{self.prefix}{self._count}")

    def take(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Take one message of the wildcard inbox: the sink of that subscription."""
        token = subject[self._skip :]
        waiting = self._waiting.pop(token, None)
        if waiting is None:
            sink = self._sinks.get(token)
            if sink is not None:
                sink(subject, reply, headers, payload)
            return
        if waiting.future.done():
            return
        if not payload and headers.startswith(_NO_RESPONDERS):
            waiting.future.set_exception(NoResponders(f"nothing answers on {waiting.subject}"))
        else:
            waiting.future.set_result(Reply(headers, payload))

    def fail(self, why: Callable[[str], LogUnavailable], subject: str | None = None) -> None:
        """End all requests (or those to ``subject``, compared without case) with the error that ``why`` makes."""
        for token, waiting in list(self._waiting.items()):
            if subject is None or waiting.subject.lower() == subject:
                del self._waiting[token]
                if not waiting.future.done():
                    waiting.future.set_exception(why(waiting.subject))

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        over = [token for token, one in self._waiting.items() if one.deadline <= now or one.future.done()]
        for token in over:
            waiting = self._waiting.pop(token)
            if not waiting.future.done():
                waiting.future.set_exception(NoReply(f"no answer on {waiting.subject} in time"))
        if self._waiting:
            self._timer = self._loop.call_later(SWEEP, self._sweep)
