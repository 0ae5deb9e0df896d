"""Publishing: public ids outside, sequences inside; the log does the rest (contract 2)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from ringmere.core.cursor import split_id
from ringmere.core.errors import LogUnavailable, RingmereError, WrongLastEventId
from ringmere.core.event import Draft
from ringmere.core.trace import TraceContext
from ringmere.hub.breaker import Breakers
from ringmere.hub.observer import Observer
from ringmere.log.port import Appended, Log, Row

_UNTRACED = nullcontext()


class Published(NamedTuple):
    """An acknowledged publish: the event's public id, and whether it was stored before under its key."""

    id: int
    duplicate: bool


class Publisher:
    """Appends to the log and watches how it went."""

    def __init__(self, log: Log, observer: Observer, breakers: Breakers) -> None:
        self._log = log
        self._observer = observer
        self._breakers = breakers
        self._tracer = observer.tracer

    async def one(self, session: str, draft: Draft, expected_id: int | None, trace: TraceContext | None) -> Published:
        """Store one event; raises what :meth:`ringmere.log.port.Log.append` raises."""
        with self._span(session, 1, trace) as carried:
            began = time.monotonic()
            try:
                self._breakers.check(session)
                expected = await self._expected_sequence(session, expected_id)
                row = Row(draft.payload, draft.key, carried)
                result = await self._breakers.watch(session, self._log.append(session, row, expected))
            except RingmereError as error:
                self._observer.published(error.code, 1, time.monotonic() - began)
                raise
            return self._published(session, [result], began)[0]

    async def each(
        self, session: str, drafts: Sequence[Draft], trace: TraceContext | None
    ) -> list[Published | RingmereError]:
        """Store rows in order; one result a row."""
        with self._span(session, len(drafts), trace) as carried:
            began = time.monotonic()
            rows = [Row(draft.payload, draft.key, carried) for draft in drafts]
            results = await self._append_many(session, rows)
            stored = iter(self._published(session, [r for r in results if isinstance(r, Appended)], began))
            failed = Counter(result.code for result in results if isinstance(result, RingmereError))
            for code, events in failed.items():
                self._observer.published(code, events, time.monotonic() - began)
            return [next(stored) if isinstance(result, Appended) else result for result in results]

    async def all_or_none(
        self, session: str, drafts: Sequence[Draft], expected_id: int | None, trace: TraceContext | None
    ) -> list[Published]:
        """Store all rows or none; raises what :meth:`ringmere.log.port.Log.append_atomic` raises."""
        with self._span(session, len(drafts), trace) as carried:
            began = time.monotonic()
            try:
                self._breakers.check(session)
                expected = await self._expected_sequence(session, expected_id)
                rows = [Row(draft.payload, draft.key, carried) for draft in drafts]
                results = await self._breakers.watch(session, self._log.append_atomic(session, rows, expected))
            except RingmereError as error:
                self._observer.published(error.code, len(drafts), time.monotonic() - began)
                raise
            return self._published(session, results, began)

    async def degraded(self, session: str, drafts: Sequence[Draft], trace: TraceContext | None) -> bool:
        """Send events to live readers if they could not be stored now; return whether it came to that (contract 8.2).

        Raises what :meth:`ringmere.log.port.Log.publish_degraded` raises.
        """
        if not self._breakers.refuses(session):
            return False
        with self._span(session, len(drafts), trace):
            began, outcome = time.monotonic(), "degraded"
            try:
                await self._log.publish_degraded(session, [draft.payload for draft in drafts])
            except RingmereError as error:
                outcome = error.code
                raise
            finally:
                self._observer.published(outcome, len(drafts), time.monotonic() - began)
        return True

    def _span(
        self, session: str, events: int, trace: TraceContext | None
    ) -> AbstractContextManager[TraceContext | None]:
        """Return the block that a publish runs in; it is given what the publish's messages carry."""
        return _UNTRACED if self._tracer is None else self._tracer.publishing(session, events, trace)

    async def _append_many(self, session: str, rows: Sequence[Row]) -> Sequence[Appended | RingmereError]:
        try:
            self._breakers.check(session)
        except LogUnavailable as error:
            return [error for _ in rows]
        return await self._breakers.watch(session, self._log.append_many(session, rows))

    def _published(self, session: str, results: Sequence[Appended], began: float) -> list[Published]:
        outcomes = Counter("duplicate" if result.duplicate else "stored" for result in results)
        for outcome, events in outcomes.items():
            self._observer.published(outcome, events, time.monotonic() - began)
        id_of = self._log.epochs(session).id_of
        return [Published(id_of(result.seq), result.duplicate) for result in results]

    async def _expected_sequence(self, session: str, expected_id: int | None) -> int | None:
        """Turn the expected id into a sequence; an id of another epoch cannot be the last one (contract 2.4)."""
        if not expected_id:
            return expected_id
        table = self._log.epochs(session)
        _, sequence = split_id(expected_id)
        if table.known(expected_id) and table.id_of(sequence) == expected_id:
            return sequence
        last = await self._log.last(session)
        raise WrongLastEventId(table.id_of(last.seq) if last else 0)
