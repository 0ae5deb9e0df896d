"""One turn of a session to its readers: the same bytes to each that takes them (the hot path)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ringmere.core.backlog import Frame
from ringmere.core.frames import chunked

if TYPE_CHECKING:
    from ringmere.hub.subscriber import Subscriber

SSE = "sse"
"""The label of the transport that nearly all readers have."""


class FanOut:
    """The live readers of one channel."""

    __slots__ = ("_others", "readers")

    def __init__(self) -> None:
        self.readers: tuple[Subscriber, ...] = ()
        """Replaced, never changed, so that a fan-out under way is not disturbed."""
        self._others = 0

    def enter(self, reader: Subscriber) -> None:
        """Add a reader whose transport is attached."""
        self.readers = (*self.readers, reader)
        self._others += reader.transport != SSE

    def leave(self, reader: Subscriber) -> None:
        """Remove a reader, at once, also in the middle of a fan-out."""
        self.readers = tuple(other for other in self.readers if other is not reader)
        self._others -= reader.transport != SSE

    def write(self, turn: Sequence[Frame], raw: bytes, before: int) -> Iterator[tuple[str, int]]:
        """Write a turn to all of them; return for each transport how many took it at once.

        ``raw`` are the turn's frames joined, one object for all: a transport with a framing of its own may keep what
        it made of it. ``before`` is the sequence up to which they had everything.
        """
        framed = chunked(raw)
        if not self._others:
            yield SSE, _write(self.readers, turn, raw, framed, before)
            return
        readers = self.readers
        for transport in dict.fromkeys(reader.transport for reader in readers):
            if transport is not None:
                group = tuple(reader for reader in readers if reader.transport == transport)
                yield transport, _write(group, turn, raw, framed, before)


def _write(readers: Sequence[Subscriber], turn: Sequence[Frame], raw: bytes, framed: bytes, before: int) -> int:
    direct = 0
    for reader in readers:
        if reader.flowing:
            reader.write(framed if reader.framed else raw)
            direct += 1
        else:
            direct += reader.offer(turn, raw, before)
    return direct
