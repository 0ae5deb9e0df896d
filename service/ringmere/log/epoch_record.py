"""The stored form of an epoch table, and the rules for adding rows to it (contract 1.2, 1.3)."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ringmere.core.cursor import MAX_EPOCH, EpochRow, EpochTable
from ringmere.core.errors import LogRefused

KEPT_VOID_ROWS = 16
"""A void row says no more than a missing one; the newest few are kept for people to read."""
KEPT_NOTES = 16
METADATA_KEY = "ringmere.epochs"


class Note(NamedTuple):
    """Why somebody added a row: ``epoch``, when in milliseconds since 1970, and their words."""

    epoch: int
    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """An epoch table with what it was made for: the stream's creation time and the number of shards."""

    table: EpochTable
    created: str
    shards: int
    notes: tuple[Note, ...] = ()
    """Of rows that were added by hand, the newest few."""

    def encode(self) -> bytes:
        """Return the JSON form."""
        rows = [[row.epoch, row.first, row.void] for row in self.table.rows]
        body = {"birth": self.table.birth, "created": self.created, "shards": self.shards, "rows": rows}
        if self.notes:
            body["notes"] = self.notes
        return json.dumps(body, separators=(",", ":")).encode()

    def recreated(self, created: str, first: int) -> EpochRecord:
        """Return the record after the stream was made anew; all older ids are void."""
        self._room()
        return self._with(self.table.recreated(first), created)

    def promoted(self, tail: int) -> EpochRecord:
        """Return the record after the stream has lost what was behind ``tail``."""
        self._room()
        return self._with(self.table.promoted(tail), self.created)

    def bumped(self, tail: int, reason: str, at_ms: int, epoch: int | None = None) -> EpochRecord:
        """Return the record after somebody has said that what is behind ``tail`` may have been used before.

        Raises ``ValueError`` for an ``epoch`` that is not above all others.
        """
        self._room()
        record = self._with(self.table.promoted(tail, epoch), self.created)
        note = Note(record.table.newest.epoch, at_ms, reason)
        return replace(record, notes=(*self.notes, note)[-KEPT_NOTES:])

    def restored(self, created: str, tail: int) -> EpochRecord:
        """Return the record after the stream was put back to what it had up to ``tail``."""
        self._room()
        return self._with(self.table.promoted(tail), created)

    def at_least(self, epoch: int, first: int) -> EpochRecord:
        """Return the record with ``epoch`` as its newest, all older ids void, if it is not there yet."""
        if self.table.newest.epoch >= epoch:
            return self
        rows = (*self.table.recreated(first).rows[:-1], EpochRow(epoch, first))
        return self._with(EpochTable(self.table.birth, rows), self.created)

    def _with(self, table: EpochTable, created: str) -> EpochRecord:
        void = [row for row in table.rows if row.void][-KEPT_VOID_ROWS:]
        rows = tuple(row for row in table.rows if not row.void or row in void)
        return replace(self, table=EpochTable(table.birth, rows), created=created)

    def _room(self) -> None:
        if self.table.newest.epoch >= MAX_EPOCH:
            raise LogRefused(f"the stream has used up its {MAX_EPOCH + 1} epochs; give it a new record")


def new_record(created: str, shards: int, first_epoch: int) -> EpochRecord:
    """Return the record of a stream that has none, with a new birth."""
    return EpochRecord(EpochTable(secrets.token_hex(8), (EpochRow(first_epoch, 1),)), created, shards)


def decode(value: bytes | str) -> EpochRecord:
    """Return the record of its JSON form. Raises ``LogRefused`` when it is damaged."""
    try:
        body: dict[str, Any] = json.loads(value)
        rows = tuple(EpochRow(int(epoch), int(first), bool(void)) for epoch, first, void in body["rows"])
        if not rows:
            raise ValueError("no rows")
        notes = tuple(Note(int(epoch), int(at), str(reason)) for epoch, at, reason in body.get("notes", []))
        return EpochRecord(EpochTable(str(body["birth"]), rows), str(body["created"]), int(body["shards"]), notes)
    except (ValueError, KeyError, TypeError) as error:
        raise LogRefused(f"an epoch record cannot be read: {error!r}") from error
