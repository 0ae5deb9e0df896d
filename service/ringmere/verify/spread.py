"""How durations are spread: counts in buckets that grow by 5 %, so any number of them takes no room."""

from __future__ import annotations

import math
from collections import Counter

SMALLEST = 1e-6
"""Seconds below which durations are all the same."""
_GROWTH = math.log(1.05)


class Spread:
    """Durations in seconds. A quantile is exact within 5 %, ``longest`` is exact."""

    __slots__ = ("_buckets", "count", "longest")

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count one duration; one below zero is zero."""
        self.count += 1
        self.longest = max(self.longest, seconds)
        self._buckets[_bucket(seconds)] += 1

    def merge(self, other: Spread) -> None:
        """Count everything that ``other`` has counted as well."""
        self.count += other.count
        self.longest = max(self.longest, other.longest)
        self._buckets.update(other._buckets)

    def quantile(self, part: float) -> float:
        """Return the duration that ``part`` (0..1) of all do not exceed, 0 when there are none."""
        left = math.ceil(part * self.count)
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(SMALLEST * math.exp(bucket * _GROWTH), self.longest)
        return 0.0


def _bucket(seconds: float) -> int:
    return 0 if seconds <= SMALLEST else math.ceil(math.log(seconds / SMALLEST) / _GROWTH)
