"""JetStream's JSON API: one request, one decoded answer or one error.

What sets streams up or looks at them asks here and gets all that JetStream says. Reads that streams of events wait
for go through :mod:`ringmere.log.leader`, which decodes only the fields it needs.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ringmere.core.errors import LogUnavailable
from ringmere.log.connect import Connection

API_TIMEOUT = 5.0

STREAM_NOT_FOUND = 10059
NO_MESSAGE = 10037
NAME_IN_USE = 10058
WRONG_LAST_SEQUENCE = 10071
NO_STORAGE = 10047
NO_PEERS = 10005
NOT_ENABLED = 10076
NOT_ENABLED_FOR_ACCOUNT = 10039


class ApiError(LogUnavailable):
    """JetStream has answered with an error: HTTP-like ``status``, its own ``err_code``, and its words."""

    def __init__(self, what: str, error: dict[str, Any]) -> None:
        self.status = int(error.get("code", 500))
        self.err_code = int(error.get("err_code", 0))
        self.words = str(error.get("description", "unknown error"))
        super().__init__(f"{what}: {self.words} ({self.err_code})")


class StoredMessage(NamedTuple):
    """One message as the stream's leader has it; ``time`` as NATS writes it, ``headers`` the whole block."""

    subject: str
    seq: int
    time: str
    payload: bytes
    headers: bytes


async def request(connection: Connection, subject: str, payload: bytes, timeout: float) -> bytes:
    """Ask ``subject`` (without the API prefix) and return the answer as it is."""
    return (await connection.request(f"{connection.api}.{subject}", payload, None, timeout)).payload


async def call(connection: Connection, subject: str, body: object = None, timeout: float = API_TIMEOUT) -> Any:
    """Ask ``subject`` (without the API prefix) and return the decoded answer. Raises :class:`ApiError`."""
    payload = b"" if body is None else json.dumps(body).encode()
    answer = json.loads(await request(connection, subject, payload, timeout))
    if "error" in answer:
        raise ApiError(subject, answer["error"])
    return answer


async def stream_info(connection: Connection, stream: str) -> Any | None:
    """Return what the stream's leader says of it, None when there is no such stream."""
    try:
        return await call(connection, f"STREAM.INFO.{stream}")
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            return None
        raise


async def last_message(connection: Connection, stream: str, subject: str) -> StoredMessage | None:
    """Leader read of the last message of a subject."""
    return await _message(connection, stream, {"last_by_subj": subject})


async def message_at(connection: Connection, stream: str, seq: int) -> StoredMessage | None:
    """Leader read of the message with that sequence."""
    return await _message(connection, stream, {"seq": seq})


async def message_after(connection: Connection, stream: str, seq: int, subject: str) -> StoredMessage | None:
    """Leader read of the first message of a subject (wildcards allowed) that was stored behind ``seq``."""
    return await _message(connection, stream, {"seq": seq + 1, "next_by_subj": subject})


async def message_since(connection: Connection, stream: str, time: str, subject: str) -> StoredMessage | None:
    """Leader read of the first message of a subject (wildcards allowed) that was stored at ``time`` or later."""
    return await _message(connection, stream, {"start_time": time, "next_by_subj": subject})


async def _message(connection: Connection, stream: str, query: dict[str, Any]) -> StoredMessage | None:
    try:
        message = (await call(connection, f"STREAM.MSG.GET.{stream}", query))["message"]
    except ApiError as error:
        if error.err_code == NO_MESSAGE:
            return None
        raise
    payload, headers = (base64.b64decode(message.get(part, "")) for part in ("data", "hdrs"))
    return StoredMessage(message["subject"], int(message["seq"]), message["time"], payload, headers)


def nanoseconds(time: str) -> int:
    """Return nanoseconds since 1970 of a time as NATS writes it (RFC 3339, UTC, up to nine decimals)."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0") if fraction else 0)


def rfc3339(time_ns: int) -> str:
    """Return a time as NATS reads it: the inverse of :func:`nanoseconds`."""
    seconds, fraction = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def server_header(block: bytes, name: bytes) -> bytes:
    """Return a header that the server has added: searched from the end, since publishers can put look-alikes before."""
    start = block.rfind(b"\r\n" + name + b": ")
    if start < 0:
        return b""
    start += len(name) + 4
    return block[start : block.index(b"\r\n", start)]
