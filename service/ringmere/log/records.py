"""Small key-value records in JetStream that every instance watches.

A bucket has the shape of a NATS key-value bucket, so ``nats kv`` can read it. Besides, its stream
republishes what it has stored: a notice that makes the other instances read the record from the leader.
A notice is only a hint, so nobody can forge a record with one; reads and writes go to the leader.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ringmere.core.errors import LogUnavailable
from ringmere.log import api
from ringmere.log.connect import Connection, NoReply, Subscription
from ringmere.log.shape import DUPLICATE_WINDOW

LIST_BATCH = 500
LIST_TIMEOUT = 5.0
PUT_TIMEOUT = 5.0

_END, _NOTHING = b"204", b"404"


class RecordConflict(LogUnavailable):
    """The record has changed since it was read; read it again and decide anew."""


class Record(NamedTuple):
    """A stored value and the revision that a conditional write names; ``time`` is NATS's, of a leader read only."""

    value: bytes
    revision: int
    time: str = ""


class Bucket:
    """One bucket of records: ``name`` in capitals, keys made of ``[A-Za-z0-9_=.-]``."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.stream = f"KV_{name}"
        self.notices = f"ringmere.notice.{name}."
        self._skip = len(f"$KV.{name}.")

    def configuration(self, replicas: int, max_bytes: int, max_age: float = 0.0) -> dict[str, Any]:
        """Return the shape of the bucket's stream; ``max_age`` in seconds, 0 keeps records for ever."""
        return {
            "name": self.stream,
            "subjects": [f"$KV.{self.name}.>"],
            "storage": "file",
            "discard": "new",
            "num_replicas": replicas,
            "max_msgs_per_subject": 1,
            "max_age": int(max_age * 1e9),
            # The server would choose the same, and then refuse a shorter age.
            "duplicate_window": int(min(DUPLICATE_WINDOW, max_age or DUPLICATE_WINDOW) * 1e9),
            "max_bytes": max_bytes,
            "allow_direct": True,
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "republish": {"src": f"$KV.{self.name}.>", "dest": f"{self.notices}>"},
        }

    async def get(self, key: str) -> Record | None:
        """Leader read of one record."""
        found = await api.last_message(self.connection, self.stream, f"$KV.{self.name}.{key}")
        return None if found is None else Record(found.payload, found.seq, found.time)

    async def put(self, key: str, value: bytes, expected: int) -> int:
        """Write a record if its revision is still ``expected`` (0: there is none); return the new revision.

        Raises :class:`RecordConflict` when it is not.
        """
        headers = {"Nats-Expected-Last-Subject-Sequence": str(expected)}
        subject = f"$KV.{self.name}.{key}"
        answer = json.loads((await self.connection.request(subject, value, headers, PUT_TIMEOUT)).payload)
        if "error" not in answer:
            return int(answer["seq"])
        error = api.ApiError(f"record {key}", answer["error"])
        if error.err_code == api.WRONG_LAST_SEQUENCE:
            raise RecordConflict(str(error))
        raise error

    async def drop(self, key: str, newest: int = 0) -> None:
        """Remove a record, if there is one, without leaving a mark; with ``newest`` none of a later revision."""
        query: dict[str, Any] = {"filter": f"$KV.{self.name}.{key}"}
        if newest:
            query["seq"] = newest + 1
        await api.call(self.connection, f"STREAM.PURGE.{self.stream}", query)

    async def since(self, revision: int) -> dict[str, Record]:
        """Return the records of that or a later revision. A replica may answer, so the newest may be missing."""
        found: dict[str, Record] = {}
        start = revision
        while True:
            page = await self._page(start)
            found.update((key, record) for key, record in page)
            if len(page) < LIST_BATCH:
                return found
            start = page[-1][1].revision + 1

    async def watch(self, hint: Callable[[str], None]) -> Subscription:
        """Call ``hint(key)`` whenever a record may have changed. Notices can be missed: read all now and then."""
        prefix = self.notices

        def notice(subject: bytes, _reply: bytes, _headers: bytes, _payload: bytes) -> None:
            hint(subject.decode()[len(prefix) :])

        return await self.connection.subscribe(f"{prefix}>", notice)

    async def _page(self, start: int) -> list[tuple[str, Record]]:
        rows: list[tuple[str, Record]] = []
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def take(_subject: bytes, _reply: bytes, headers: bytes, payload: bytes) -> None:
            if headers.startswith(b"NATS/1.0 "):
                if not done.done():
                    done.set_result(headers[9:12])
                return
            key = api.server_header(headers, b"Nats-Subject").decode()[self._skip :]
            rows.append((key, Record(payload, int(api.server_header(headers, b"Nats-Sequence")))))

        inbox = self.connection.inbox(take)
        query = {"seq": start, "next_by_subj": f"$KV.{self.name}.>", "batch": LIST_BATCH}
        try:
            subject = f"{self.connection.api}.DIRECT.GET.{self.stream}"
            self.connection.send(subject, json.dumps(query).encode(), inbox.subject)
            async with asyncio.timeout(LIST_TIMEOUT):
                status = await done
        except TimeoutError as error:
            raise NoReply(f"the records of {self.name} were not listed in time") from error
        finally:
            inbox.close()
        if status not in (_END, _NOTHING):
            raise LogUnavailable(f"the records of {self.name} cannot be listed: status {status.decode()}")
        return rows


def key_of(identifier: str) -> str:
    """Return the key for a session or task id: base64url, since ids may hold what keys may not (contract 1.7)."""
    return base64.urlsafe_b64encode(identifier.encode()).decode().rstrip("=")


def identifier_of(key: str) -> str:
    """Return the id that :func:`key_of` made a key of."""
    return base64.urlsafe_b64decode(key + "=" * (-len(key) % 4)).decode()
