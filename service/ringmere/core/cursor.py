"""Cursors: the number a client resumes with, its epoch, and the resume verdict (contract 1.1, 1.2, 4).

An event id is ``epoch * 2**40 + sequence``. The epoch table says which ids the log ever gave out; the
verdict says whether everything after a cursor can still be delivered.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from ringmere.core.errors import StartRefused

SEQUENCE_BITS = 40
MAX_SEQUENCE = (1 << SEQUENCE_BITS) - 1
MAX_EPOCH = 8191
MAX_ID = (1 << 53) - 1
"""The largest integer that JavaScript holds exactly; ids never pass it."""

_DIGITS = re.compile(r"[0-9]+")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def event_id(epoch: int, sequence: int) -> int:
    """Return the public id of the message that has ``sequence`` in ``epoch``."""
    return (epoch << SEQUENCE_BITS) | sequence


def split_id(public_id: int) -> tuple[int, int]:
    """Return ``(epoch, sequence)`` of a public id."""
    return public_id >> SEQUENCE_BITS, public_id & MAX_SEQUENCE


def parse_cursor(text: str) -> int | None:
    """Return the cursor that ``text`` spells, or None when it is no cursor (contract 3.2).

    ASCII digits only: ``int()`` would also take signs, blanks, underscores and other scripts' digits.
    """
    if _DIGITS.fullmatch(text) is None:
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > 16:
        return None
    value = int(digits)
    return value if value <= MAX_ID else None


def parse_epoch_token(text: str | None) -> str | None:
    """Return the birth part of an epoch token a client sent back, or None when absent or not a token (1.3)."""
    if text is None or _TOKEN.fullmatch(text) is None:
        return None
    return text.rsplit("-", 1)[0]


@dataclass(frozen=True, slots=True)
class EpochRow:
    """From ``first`` on, sequences belong to ``epoch``; ``void`` rows name ids whose log is gone."""

    epoch: int
    first: int
    void: bool = False


@dataclass(frozen=True, slots=True)
class EpochTable:
    """All epochs of one stream, oldest first, never empty (contract 1.2).

    ``birth`` is the stream record's random identity, equal on all mirrors.
    """

    birth: str
    rows: tuple[EpochRow, ...] = (EpochRow(0, 1),)

    @property
    def newest(self) -> EpochRow:
        """The row that new events are written under."""
        return self.rows[-1]

    @property
    def token(self) -> str:
        """The value of ``X-Event-Epoch``."""
        return f"{self.birth}-{self.newest.epoch}"

    def epoch_of(self, sequence: int) -> int:
        """Return the epoch that ``sequence`` was written in: the newest living row that starts at or before it."""
        for row in reversed(self.rows):
            if not row.void and row.first <= sequence:
                return row.epoch
        return self.newest.epoch

    def id_of(self, sequence: int) -> int:
        """Return the public id of a stored sequence."""
        return event_id(self.epoch_of(sequence), sequence)

    def known(self, cursor: int) -> bool:
        """Say whether this log gave out ``cursor``, or still may.

        Its row must live, and no later row may have taken its range over (also one after the next: a second
        loss can reach further back than the first). Cursor 0 names no event, only the beginning, so it is
        known in every log.
        """
        if cursor == 0:
            return True
        epoch, sequence = split_id(cursor)
        for index, row in enumerate(self.rows):
            if row.epoch == epoch:
                return not row.void and all(sequence < later.first for later in self.rows[index + 1 :])
        return False

    def promoted(self, tail: int, epoch: int | None = None) -> EpochTable:
        """Return the table after a promotion or restore.

        What lies beyond ``tail`` may come again with other content, so it goes to a new epoch: the next one, or
        ``epoch``, which must be above all. Raises ``ValueError`` when it is not.
        """
        number = self._next_epoch()
        if epoch is not None and not number <= epoch <= MAX_EPOCH:
            raise ValueError(f"a new epoch is {number} to {MAX_EPOCH}, not {epoch}")
        return EpochTable(self.birth, (*self.rows, EpochRow(epoch or number, tail + 1)))

    def recreated(self, first: int) -> EpochTable:
        """Return the table after the stream was made anew, its first sequence being ``first``.

        All older ids are void: nothing of what they named is in the new stream.
        """
        voided = tuple(EpochRow(row.epoch, row.first, True) for row in self.rows)
        return EpochTable(self.birth, (*voided, EpochRow(self._next_epoch(), first)))

    def _next_epoch(self) -> int:
        if self.newest.epoch >= MAX_EPOCH:
            raise StartRefused(f"all {MAX_EPOCH + 1} epochs of the log are used up; it needs a new name")
        return self.newest.epoch + 1


class Outcome(enum.Enum):
    """What a resume comes to; the value is the label used in metrics."""

    CONTIGUOUS = "contiguous"
    RING_EVICTED = "ring_evicted"
    EPOCH_RESET = "epoch_reset"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a cursor.

    ``after`` is the sequence behind which delivery starts (the cursor's own, or 0 for the whole ring).
    ``detail`` and ``earliest`` (a sequence) belong to the verdict frame and are unset when contiguous.
    """

    outcome: Outcome
    after: int
    detail: str | None = None
    earliest: int | None = None

    @property
    def is_gap(self) -> bool:
        """Whether a ``state_resync_required`` frame must stand before the replay."""
        return self.outcome is not Outcome.CONTIGUOUS


@dataclass(frozen=True, slots=True)
class SubjectBounds:
    """What the leader says about one session's subject, at one moment.

    ``tail`` is the stream's last sequence and ``stream_first`` its lowest stored one; ``first``/``last``
    are the subject's own (0 when nothing is stored) and ``stored`` counts the subject's messages.
    ``purged_to`` is the highest sequence a recorded purge of the session removed, 0 without one.
    """

    tail: int
    stream_first: int
    first: int
    last: int
    stored: int
    purged_to: int = 0
    ring_from: int = 0
    """The stream's tail when its rings were last enlarged, 0 without that: what a smaller ring evicted left no
    fence for the larger one, so up to here a missing fence proves nothing."""

    def fenced(self, ring_size: int) -> bool:
        """Whether the oldest stored message is the fence, which is never delivered (contract 1.5)."""
        return self.stored > ring_size

    def earliest(self, ring_size: int) -> int:
        """Return a lower bound of the first deliverable sequence: it never names the fence (contract 1.5)."""
        if self.stored == 0:
            return self.tail + 1
        return self.first + 1 if self.fenced(ring_size) else self.first


def decide(
    sequence: int,
    bounds: SubjectBounds,
    *,
    ring_size: int,
    present: bool,
    head: int | None = None,
    heads_kept: bool = False,
) -> Verdict:
    """Decide about a cursor of a known epoch, by leader reads only (contract 4.2 to 4.5).

    ``present`` says whether the leader still stores ``sequence`` on this subject; ``head`` is the last
    sequence that the head stream knows of the session, ``heads_kept`` whether there is a head stream: only then
    does its silence say anything (a purge behind the service's back leaves a head).

    The caller has already answered an unknown epoch (contract 4.1) and has read the leader twice when
    ``sequence`` is beyond the tail. Read from top to bottom; the first row that fits decides:

    ======================================  ===========================================
    cursor                                  verdict
    ======================================  ===========================================
    0, a fence is stored                    ring_evicted
    0                                       contiguous
    beyond the tail                         epoch_reset
    stored on this subject                  contiguous (presence is the proof)
    subject empty, at or past the head      contiguous
    subject empty, heads kept but none,     contiguous: the session has never had an event behind the cursor
    provably nothing lost
    subject empty                           ring_evicted, nothing to replay
    above the subject's first               epoch_reset ``foreign_cursor``
    below it, provably nothing lost         contiguous
    below it                                ring_evicted
    ======================================  ===========================================
    """
    first_due = bounds.earliest(ring_size)
    evicted = Verdict(Outcome.RING_EVICTED, 0, None, first_due)
    reset = Verdict(Outcome.EPOCH_RESET, 0, None, first_due)
    contiguous = Verdict(Outcome.CONTIGUOUS, sequence)
    if sequence == 0:
        return evicted if bounds.fenced(ring_size) else contiguous
    if sequence > bounds.tail:
        return reset
    if present:
        return contiguous
    reaches_back = bounds.stream_first <= sequence + 1 and max(bounds.purged_to, bounds.ring_from) <= sequence
    nothing_lost = reaches_back and not bounds.fenced(ring_size)
    if bounds.stored == 0:
        if head is not None:
            return contiguous if sequence >= head else evicted
        return contiguous if heads_kept and nothing_lost else evicted
    if sequence > bounds.first:
        return Verdict(Outcome.EPOCH_RESET, 0, "foreign_cursor", first_due)
    return contiguous if nothing_lost else evicted
