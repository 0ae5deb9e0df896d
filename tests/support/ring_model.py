"""What a plain ring says every reader must have been sent, and the check of one reader against it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringmere.core.cursor import split_id
from ringmere.log.memory_store import MemoryStore
from support.hub import Client, Got


@dataclass
class Written:
    """One message as it was published. ``event``: it is one; ``cut``/``void``: how a fault of the log lost it.

    ``gone``: it was beyond reach before such a fault, which may bring a fence back into reach.
    """

    id: int
    event: bool
    terminal: bool
    cut: bool = False
    void: bool = False
    gone: bool = False


@dataclass
class Ring:
    """All messages of one session that ever were, in order."""

    store: MemoryStore
    session: str
    messages: list[Written] = field(default_factory=list)
    doubtful: bool = False
    """Something happened after which an instance cannot always prove that nothing was lost: a purge, an expiry."""

    def wrote(self, seq: int, *, event: bool, terminal: bool = False) -> None:
        self.messages.append(Written(self.store.tables[0].id_of(seq), event, terminal))

    def lost(self, message: Written, stored: set[int]) -> bool:
        return message.gone or message.id not in stored

    def _remember_gone(self) -> None:
        stored = self.stored()
        for message in self.messages:
            message.gone = message.gone or message.id not in stored

    def recreated(self) -> None:
        self._remember_gone()
        for message in self.messages:
            message.void = True

    def rewound(self, tail: int) -> None:
        self._remember_gone()
        for message in self.messages:
            if not message.void and split_id(message.id)[1] > tail:
                message.cut = True

    def stored(self) -> set[int]:
        """Ids that a reader can still get: the fence is not among them."""
        kept = self.store.stream(0).subjects.get(self.session, [])
        return {self.store.tables[0].id_of(message.seq) for message in kept[-self.store.ring_size :]}

    def find(self, id: int) -> Written | None:
        return next((message for message in self.messages if message.id == id), None)

    @property
    def last_event(self) -> Written | None:
        living = [message for message in self.messages if message.event and not (message.cut or message.void)]
        return living[-1] if living else None


class Broken(AssertionError):
    """A reader was not sent what it should have been."""


class Reading:
    """One reader, checked frame by frame.

    ``begins`` is the id it was to read on from: its cursor, or the point it was told.
    """

    def __init__(self, client: Client, ring: Ring, begins: int, cursor: int | None, started: bool) -> None:
        self.client = client
        self.ring = ring
        self.begins = begins
        self.cursor = cursor
        self.from_start = started
        self.table = ring.store.tables[0]

    def check(self, *, settled: bool) -> None:
        frames = self.client.frames
        stored = self.ring.stored()
        self.position = self.begins
        verdict: Got | None = None
        for index, frame in enumerate(frames):
            if frame.id is not None:
                self._event(frame.id, verdict, stored, first=not index or self.position == self.begins)
                verdict = None
                self.position = frame.id
            elif frame.type == "state_resync_required":
                if verdict is not None and verdict.data["reason"] == "epoch_reset":
                    continue
                verdict = frame
        self._complete(frames, settled)
        if settled and not self.client.over:
            self._nothing_due(stored, verdict)

    def _event(self, id: int, verdict: Got | None, stored: set[int], *, first: bool) -> None:
        message = self.ring.find(id)
        if message is None or not message.event:
            raise Broken(f"{id} was never an event of this session")
        if verdict is None:
            self._follows(message, stored, first=first)
            return
        if verdict.data["earliestAvailableId"] > id and not message.cut:
            raise Broken(f"{verdict} before {id}")
        if verdict.data["reason"] == "ring_evicted":
            self._justified(verdict, id, stored)
        # The verdict excuses what is gone, not what could still be had.
        begin = self.position if verdict.data["reason"] == "ring_evicted" else 0
        for other in self.ring.messages:
            if other.event and begin < other.id < id and not self.ring.lost(other, stored):
                raise Broken(f"{verdict} skipped {other.id}, which is stored")

    def _follows(self, message: Written, stored: set[int], *, first: bool) -> None:
        """No verdict stands here: the event must be the very next one."""
        if (
            first
            and self.cursor is None
            and (message.terminal or message.id == self.begins)
            and message.id <= self.begins
        ):
            return
        if message.id <= self.position:
            raise Broken(f"{message.id} after {self.position}")
        skipped = [m for m in self.ring.messages if m.event and self.position < m.id < message.id]
        if self.from_start and first:
            return
        for other in skipped:
            # Nothing was promised yet to whom begins at 0 (contract 4.3): what is gone by then is no gap.
            # A store that is cut loses the fence that showed what its ring had evicted before: no proof is left.
            silent = other.cut or other.gone or (self.position == 0 and self.ring.lost(other, stored))
            if not silent:
                raise Broken(f"{other.id} is missing between {self.position} and {message.id}")
        here = self.ring.find(self.position)
        if here is not None and not message.cut and (here.cut or (here.void and not message.void)):
            raise Broken(f"{message.id} follows {self.position}, whose log is gone, without a verdict")

    def _justified(self, verdict: Got, id: int, stored: set[int]) -> None:
        last = verdict.data["lastDeliveredId"]
        gone = any(last < m.id < id and self.ring.lost(m, stored) for m in self.ring.messages)
        foreign = self.ring.find(last) is None and last != 0
        if not (gone or foreign or self.ring.doubtful):
            raise Broken(f"{verdict}: nothing was lost before {id}")

    def _complete(self, frames: list[Got], settled: bool) -> None:
        told = [index for index, frame in enumerate(frames) if frame.type == "replay_complete"]
        if self.cursor is None:
            if told:
                raise Broken("replay_complete without a cursor")
            return
        if len(told) > 1:
            raise Broken("replay_complete twice")
        if not told:
            if settled and not self.client.over:
                raise Broken("replay_complete is missing")
            return
        before = [frame.id for frame in frames[: told[0]] if frame.id is not None]
        data = frames[told[0]].data
        if data["replayedCount"] != len(before) or data.get("lastReplayedEventId") != (before or [None])[-1]:
            raise Broken(f"{data} after {before}")

    def _nothing_due(self, stored: set[int], verdict: Got | None) -> None:
        """A reader that is open and has had time has everything that is stored behind its position."""
        after = 0 if verdict is not None and verdict.data["reason"] == "epoch_reset" else self.position
        here = self.ring.find(self.position)
        if here is not None and (here.cut or here.void) and verdict is None and self.ring.last_event is not None:
            raise Broken(f"{self.position} is unknown, and nothing was said")
        due = [m.id for m in self.ring.messages if m.event and m.id > after and not self.ring.lost(m, stored)]
        if due:
            raise Broken(f"at {self.position}, {due} were not delivered")
