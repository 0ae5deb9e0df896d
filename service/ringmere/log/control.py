"""Cancel flags in a key-value bucket: one write is the flag and the broadcast (contract 10.3).

A worker that has not started yet finds the flag, one that runs is told. The bucket's stream republishes what it has
stored, which reaches every instance at once; since such a notice can be lost on its way, each instance also asks the
leader every few seconds, with one read, for flags that it has not heard of.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ringmere.core.control import CancelFlag
from ringmere.core.errors import InvalidSessionId, LogUnavailable
from ringmere.core.limits import MIB
from ringmere.core.session import check_session_id
from ringmere.log import api
from ringmere.log.connect import Connection, Subscription
from ringmere.log.flags import Requested
from ringmere.log.provision import create_fitting, ensure_stream
from ringmere.log.records import Bucket, Record, RecordConflict, identifier_of, key_of
from ringmere.log.shape import StreamSettings, Wanted

BUCKET = "RINGMERE_CONTROL"
BUCKET_BYTES = 32 * MIB
LEAST_BYTES = MIB
"""The bucket holds some hundred bytes a flag, so a small one does."""
TRIES = 5
"""Writes that find a flag which is gone when it is read: it expires just then."""
LOOK_EVERY = 2.0
"""Seconds between two looks for flags whose notice was lost."""

Noticed = Callable[[str, str], None]
"""Takes the session and the task of a flag that was set. Must not block or raise."""


def _nobody(_session: str, _task: str) -> None:
    """Whom a look at the bucket alone tells."""


class _Stored(msgspec.Struct):
    """A record; the names are the public ones."""

    requestedAt: int  # noqa: N815
    reason: str | None = None


_decode = msgspec.json.Decoder(_Stored).decode
_encode = msgspec.json.Encoder().encode


class Control:
    """The flags of all tasks, and the news of them. ``noticed`` is called on the event loop."""

    def __init__(self, connection: Connection, settings: StreamSettings, noticed: Noticed = _nobody) -> None:
        self._connection = connection
        self._settings = settings
        self._noticed = noticed
        self.bucket = Bucket(connection, BUCKET)
        self._watch: Subscription | None = None
        self._seen = 0
        self._wake = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    def wanted(self) -> Wanted:
        """Return what the bucket's stream should look like."""
        config = self.bucket.configuration(self._settings.replicas, BUCKET_BYTES, self._settings.cancel_ttl)
        # A full bucket gives up its oldest flags, which would expire next, and refuses no cancel.
        return Wanted(config | {"discard": "old"}, frozenset({"max_bytes"}))

    async def prepare(self) -> None:
        """Create the bucket, or check it; it takes less than it asks for when the store has no more."""
        wanted = self.wanted()
        if await api.stream_info(self._connection, self.bucket.stream) is None:
            await create_fitting(self._connection, wanted.config, LEAST_BYTES)
        await ensure_stream(self._connection, wanted, reconcile=self._settings.reconcile)

    async def start(self) -> None:
        """Tell of flags from now on. Raises ``LogUnavailable`` when the bucket does not answer."""
        self._watch = await self.bucket.watch(self._notice)
        info = await api.stream_info(self._connection, self.bucket.stream)
        if info is None:
            raise LogUnavailable(f"the bucket {BUCKET} does not exist")
        self._seen = int(info["state"]["last_seq"])
        self._connection.on_state(self._state)
        self._looking = asyncio.create_task(self._look_now_and_then())

    async def close(self) -> None:
        """Tell no more."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    async def request(self, session: str, task: str, reason: str | None) -> Requested:
        """Set a task's flag, unless it is set."""
        key = _key(session, task)
        flag = CancelFlag(time.time_ns() // 1_000_000, reason)
        for _ in range(TRIES):
            with contextlib.suppress(RecordConflict):
                await self.bucket.put(key, _encode(_Stored(*flag)), 0)
                return Requested(flag, True)
            found = await self.bucket.get(key)
            if found is not None:
                return Requested(_flag_in(found), False)
        raise RecordConflict(f"the flag of task {task} is neither set nor can it be")

    async def read(self, session: str, task: str) -> CancelFlag | None:
        """Leader read of a task's flag."""
        found = await self.bucket.get(_key(session, task))
        return None if found is None else _flag_in(found)

    def _notice(self, key: str) -> None:
        try:
            session, task = (check_session_id(identifier_of(part)) for part in key.split("."))
        except (ValueError, InvalidSessionId):
            # Nobody but a gateway writes here, so this is no flag of ours.
            return
        self._noticed(session, task)

    def _state(self, connected: bool) -> None:
        if connected:
            self._wake.set()

    async def _look_now_and_then(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY * random.uniform(0.9, 1.1)):
                    await self._wake.wait()
            self._wake.clear()
            if self._connection.connected:
                with contextlib.suppress(LogUnavailable):
                    await self._look()

    async def _look(self) -> None:
        """Tell of all flags that were set since the last look; the listener may hear of one twice."""
        skip = len(f"$KV.{BUCKET}.")
        while True:
            found = await api.message_after(self._connection, self.bucket.stream, self._seen, f"$KV.{BUCKET}.>")
            if found is None:
                return
            self._seen = found.seq
            self._notice(found.subject[skip:])


def _key(session: str, task: str) -> str:
    return f"{key_of(check_session_id(session))}.{key_of(check_session_id(task))}"


def _flag_in(record: Record) -> CancelFlag:
    """Return the flag of a record. One that was written past the gateways still is a flag: its key says all."""
    stored: Any
    try:
        stored = _decode(record.value)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return CancelFlag(0)
    return CancelFlag(stored.requestedAt, stored.reason)
