"""Publishing: public ids outside, sequences inside; the log does the rest (contract 2)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ringmere.core.cursor import split_id
from ringmere.core.errors import RingmereError, WrongLastEventId
from ringmere.core.event import Draft
from ringmere.hub.observer import Observer
from ringmere.log.port import Appended, Log, Row


class Published(NamedTuple):
    """An acknowledged publish: the event's public id, and whether it was stored before under its key."""

    id: int
    duplicate: bool


class Publisher:
    """Appends to the log and watches how it went."""

    def __init__(self, log: Log, observer: Observer) -> None:
        self._log = log
        self._observer = observer

    async def one(self, session: str, draft: Draft, expected_id: int | None) -> Published:
        """Store one event; raises what :meth:`ringmere.log.port.Log.append` raises."""
        began = time.monotonic()
        try:
            expected = await self._expected_sequence(session, expected_id)
            result = await self._log.append(session, Row(draft.payload, draft.key), expected)
        except RingmereError as error:
            self._observer.published(error.code, 1, time.monotonic() - began)
            raise
        return self._published(session, [result], began)[0]

    async def each(self, session: str, drafts: Sequence[Draft]) -> list[Published | RingmereError]:
        """Store rows in order; one result a row."""
        began = time.monotonic()
        results = await self._log.append_many(session, [Row(draft.payload, draft.key) for draft in drafts])
        stored = iter(self._published(session, [r for r in results if isinstance(r, Appended)], began))
        failed = Counter(result.code for result in results if isinstance(result, RingmereError))
        for code, events in failed.items():
            self._observer.published(code, events, time.monotonic() - began)
        return [next(stored) if isinstance(result, Appended) else result for result in results]

    async def all_or_none(self, session: str, drafts: Sequence[Draft], expected_id: int | None) -> list[Published]:
        """Store all rows or none; raises what :meth:`ringmere.log.port.Log.append_atomic` raises."""
        began = time.monotonic()
        try:
            expected = await self._expected_sequence(session, expected_id)
            rows = [Row(draft.payload, draft.key) for draft in drafts]
            results = await self._log.append_atomic(session, rows, expected)
        except RingmereError as error:
            self._observer.published(error.code, len(drafts), time.monotonic() - began)
            raise
        return self._published(session, results, began)

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
