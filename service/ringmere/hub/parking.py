"""Live messages that wait: until the hole before them is filled, or until the next turn begins."""

from __future__ import annotations

from typing import NamedTuple


class Parked(NamedTuple):
    """One live message, as a log's live sink takes it."""

    seq: int
    previous: int
    time_ns: int
    payload: bytes


class Parking:
    """A bounded place for them. What does not fit is not kept: :attr:`overflowed` says that the log must be read."""

    __slots__ = ("_bytes", "_max_bytes", "_messages", "overflowed")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.clear()

    def __len__(self) -> int:
        return len(self._messages)

    def clear(self) -> None:
        """Forget everything."""
        self._messages: list[Parked] = []
        self._bytes = 0
        self.overflowed = False

    def add(self, message: Parked) -> None:
        """Keep a message, within the bound."""
        self._bytes += len(message.payload)
        if self._bytes > self._max_bytes:
            self.overflowed = True
        else:
            self._messages.append(message)

    def take(self) -> tuple[list[Parked], bool]:
        """Return all messages in the order they came, and whether some did not fit; the place is empty then."""
        messages, overflowed = self._messages, self.overflowed
        self.clear()
        return messages, overflowed

    def forget_answered(self, count: int, last: int, time_ns: int) -> None:
        """Drop of the first ``count`` messages what a look at the log has answered.

        They have been read, or the log has lost them again. Without this a hole that a purge has made for good
        would be looked for over and over. What seems to be of another log than ``last`` and its time stays.
        """
        answered = self._messages[:count]
        self._messages[:count] = [m for m in answered if m.seq <= last and m.time_ns > time_ns]
