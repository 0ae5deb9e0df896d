"""Consumers that live on the server only for as long as somebody here pulls from them."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from ringmere.core.errors import LogUnavailable
from ringmere.log import api
from ringmere.log.connect import Connection

INACTIVE_NS = 10_000_000_000
"""The server removes a consumer that nobody pulls from for this long: when this process dies."""


class Made(NamedTuple):
    """A new consumer: the stream sequence behind which it begins, and how many messages wait behind that."""

    position: int
    pending: int


async def create(
    connection: Connection, stream: str, name: str, subject: str, start: int | None, timeout: float
) -> Made:
    """Make a consumer of ``subject`` that begins at sequence ``start``, or with None at what is stored next.

    It acknowledges nothing, lives in memory and has no replica. Raises ``LogUnavailable``.
    """
    config: dict[str, object] = {
        "name": name,
        "deliver_policy": "new",
        "ack_policy": "none",
        "replay_policy": "instant",
        "filter_subject": subject,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": INACTIVE_NS,
    }
    if start is not None:
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": max(start, 1)}
    body = {"stream_name": stream, "config": config, "action": "create"}
    answer = await api.call(connection, f"CONSUMER.CREATE.{stream}.{name}.{subject}", body, timeout)
    return Made(int(answer["delivered"]["stream_seq"]), int(answer["num_pending"]))


def remove(connection: Connection, stream: str, name: str) -> None:
    """Remove a consumer; one that cannot be told dies of its inactivity."""
    with contextlib.suppress(LogUnavailable):
        connection.send(f"{connection.api}.CONSUMER.DELETE.{stream}.{name}", b"")
