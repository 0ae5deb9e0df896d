"""What the server writes at the end of a header block, read as bytes.

A publisher's own headers stay in front of the server's, so a forged ``Nats-Sequence`` can stand in a
block too. Only the lines at the very end are the server's; nothing is ever looked up from the front.
"""

from __future__ import annotations

from calendar import timegm
from typing import NamedTuple

SEQUENCE = b"Nats-Sequence: "
TIME_STAMP = b"Nats-Time-Stamp: "
LAST_SEQUENCE = b"Nats-Last-Sequence: "
NUM_PENDING = b"Nats-Num-Pending: "

_NS = 1_000_000_000
_second: tuple[bytes, int] = (b"", 0)


class Stamp(NamedTuple):
    """Sequence, log timestamp in ns, the previous sequence the server names, and how many are pending behind it."""

    seq: int
    time_ns: int
    previous: int
    pending: int


def live_stamp(block: bytes) -> tuple[int, int, int] | None:
    """Return (sequence, previous on the subject, time in ns) of a republished message, None for what is none.

    On the hot path: one split from the right of what the server always writes in this order.
    """
    parts = block.rsplit(b"\r\n", 5)
    if (
        len(parts) != 6
        or parts[5]
        or parts[4]
        or parts[1][:15] != SEQUENCE
        or parts[2][:17] != TIME_STAMP
        or parts[3][:20] != LAST_SEQUENCE
    ):
        return None
    try:
        return int(parts[1][15:]), int(parts[3][20:]), time_ns(parts[2][17:])
    except ValueError:
        return None


def direct_stamp(block: bytes) -> Stamp | None:
    """Return the stamp of a direct get's answer, single or out of a batch; None for a status."""
    lines = block.rsplit(b"\r\n", 6)
    if len(lines) < 5 or lines[-1] or lines[-2]:
        return None
    lines = lines[:-2]
    previous = pending = 0
    if lines[-1].startswith(LAST_SEQUENCE) and lines[-2].startswith(NUM_PENDING):
        previous, pending = int(lines[-1][20:]), int(lines[-2][18:])
        lines = lines[:-2]
    if len(lines) < 2 or not lines[-1].startswith(TIME_STAMP) or not lines[-2].startswith(SEQUENCE):
        return None
    return Stamp(int(lines[-2][15:]), time_ns(lines[-1][17:]), previous, pending)


def status(block: bytes) -> int:
    """Return the status code in the first line of a block, 0 when it is a message's."""
    code = block[9:12]
    return int(code) if block[:9] == b"NATS/1.0 " and code.isdigit() else 0


def trailing_count(block: bytes, name: bytes) -> int | None:
    """Return the number that the last line called ``name`` holds, None without one. For statuses only."""
    at = block.rfind(b"\r\n" + name)
    if at < 0:
        return None
    value = block[at + 2 + len(name) :].split(b"\r\n", 1)[0]
    return int(value) if value.isdigit() else None


def time_ns(text: bytes) -> int:
    """Return an RFC 3339 time in UTC as nanoseconds since 1970. Raises ``ValueError`` for anything else.

    Consecutive messages mostly share their second, so the last one is remembered.
    """
    global _second
    second, seconds = _second
    if text[:19] != second:
        second = text[:19]
        seconds = _epoch_seconds(second)
        _second = (second, seconds)
    fraction = text[20:-1]
    if text[-1:] != b"Z" or (fraction and text[19:20] != b"."):
        raise ValueError(f"{text!r} is no UTC time")
    if len(fraction) != 9:
        fraction = fraction.ljust(9, b"0")[:9]
    return seconds * _NS + int(fraction)


def _epoch_seconds(text: bytes) -> int:
    year, month, day = text[:4], text[5:7], text[8:10]
    hour, minute, second = text[11:13], text[14:16], text[17:19]
    return timegm((int(year), int(month), int(day), int(hour), int(minute), int(second)))
