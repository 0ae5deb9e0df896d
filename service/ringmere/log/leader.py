"""Reads that the leader of a stream answers, so that they are never stale."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ringmere.core.errors import LogUnavailable
from ringmere.log.api import NO_MESSAGE, request
from ringmere.log.connect import Connection
from ringmere.log.port import Stored
from ringmere.log.shape import RING_FROM
from ringmere.log.stamps import time_ns

LIST_TIMEOUT = 10.0
"""Seconds for a page of subjects: of a million subjects, the server takes nearly one on a machine at rest."""


class Fault(msgspec.Struct):
    """The error object of JetStream's answers."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _Message(msgspec.Struct):
    subject: str
    seq: int
    time: str
    data: bytes = b""
    hdrs: bytes = b""


class _MessageAnswer(msgspec.Struct):
    message: _Message | None = None
    error: Fault | None = None


class StreamState(msgspec.Struct):
    """A stream's own bounds; ``subjects`` counts messages of the subjects that were asked for."""

    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None
    ring_from: int = 0
    """What the stream's metadata says of :data:`~ringmere.log.shape.RING_FROM`."""


class _Config(msgspec.Struct):
    metadata: dict[str, str] | None = None


class _InfoAnswer(msgspec.Struct):
    state: StreamState | None = None
    config: _Config | None = None
    error: Fault | None = None


class _Subjects(msgspec.Struct):
    subjects: msgspec.Raw = msgspec.Raw(b"{}")


class _SubjectsAnswer(msgspec.Struct):
    state: _Subjects | None = None
    error: Fault | None = None
    total: int = 0
    limit: int = 0


class _PurgeAnswer(msgspec.Struct):
    success: bool = False
    error: Fault | None = None


class SubjectPage(NamedTuple):
    """Some of a stream's subjects as JetStream writes them: a JSON object of subjects and counts, by subject.

    It is left undecoded, since it can be megabytes. ``total`` is how many there are, ``limit`` how many a page has.
    """

    subjects: msgspec.Raw
    total: int
    limit: int


class Found(NamedTuple):
    """One stored message with the subject it is stored under."""

    subject: str
    stored: Stored


_decode_message = msgspec.json.Decoder(_MessageAnswer).decode
_decode_info = msgspec.json.Decoder(_InfoAnswer).decode
_decode_subjects = msgspec.json.Decoder(_SubjectsAnswer).decode
_decode_purge = msgspec.json.Decoder(_PurgeAnswer).decode
_encode = msgspec.json.Encoder().encode


class Leader:
    """Asks leaders; ``timeout`` seconds for each answer."""

    def __init__(self, connection: Connection, timeout: float = 2.0) -> None:
        self._connection = connection
        self._timeout = timeout

    async def call(self, operation: str, body: Any = None) -> bytes:
        """Send one JetStream API request and return its answer. Raises ``LogUnavailable``."""
        payload = b"" if body is None else _encode(body)
        return await request(self._connection, operation, payload, self._timeout)

    async def at(self, stream: str, seq: int) -> Found | None:
        """Return the message that is stored at ``seq``, of whatever subject."""
        return await self._message(stream, {"seq": seq})

    async def next(self, stream: str, subject: str, seq: int) -> Found | None:
        """Return the first message of ``subject`` at or behind ``seq``."""
        return await self._message(stream, {"seq": max(seq, 1), "next_by_subj": subject})

    async def last(self, stream: str, subject: str) -> Found | None:
        """Return the newest message of ``subject``."""
        return await self._message(stream, {"last_by_subj": subject})

    async def purge(self, stream: str, subject: str, up_to: int) -> None:
        """Remove the messages of ``subject`` with a sequence ≤ ``up_to``."""
        body = {"filter": subject, "seq": up_to + 1}
        answer = decode(_decode_purge, await self.call(f"STREAM.PURGE.{stream}", body))
        if not answer.success:
            raise refused(answer.error)

    async def state(self, stream: str, subject: str | None = None) -> StreamState:
        """Return the stream's bounds, with the count of ``subject``'s messages when it is given."""
        body = {"subjects_filter": subject} if subject else None
        answer = decode(_decode_info, await self.call(f"STREAM.INFO.{stream}", body))
        if answer.state is None:
            raise refused(answer.error)
        metadata = answer.config.metadata if answer.config is not None else None
        answer.state.ring_from = int((metadata or {}).get(RING_FROM, 0))
        state: StreamState = answer.state
        return state

    async def subjects(self, stream: str, subject_filter: str, offset: int) -> SubjectPage:
        """Return the subjects that match from the ``offset``-th on, in their order, as many as a page has."""
        body = {"subjects_filter": subject_filter, "offset": offset}
        payload = await request(self._connection, f"STREAM.INFO.{stream}", _encode(body), LIST_TIMEOUT)
        answer = decode(_decode_subjects, payload)
        if answer.state is None:
            raise refused(answer.error)
        return SubjectPage(answer.state.subjects, answer.total, answer.limit)

    async def _message(self, stream: str, body: Any) -> Found | None:
        answer = decode(_decode_message, await self.call(f"STREAM.MSG.GET.{stream}", body))
        message = answer.message
        if message is None:
            if answer.error is not None and answer.error.err_code == NO_MESSAGE:
                return None
            raise refused(answer.error)
        return Found(message.subject, Stored(message.seq, time_ns(message.time.encode()), message.data))


def decode(decoder: Any, payload: bytes) -> Any:
    """Decode an answer; what is not JetStream's JSON means that something else answers there."""
    try:
        return decoder(payload)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise LogUnavailable(f"the answer is not JetStream's: {error}") from error


def refused(fault: Fault | None) -> LogUnavailable:
    """Return the error for an answer that JetStream refused."""
    if fault is None:
        return LogUnavailable("the answer is not JetStream's")
    return LogUnavailable(f"JetStream says {fault.description} ({fault.err_code})")
