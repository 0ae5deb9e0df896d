"""What a fleet is made of, and how often what breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CLUSTER = 3
"""Servers of a cluster."""
STALL = 13.0
"""Seconds that a stalled gateway stands still: longer than NATS waits before it cuts a slow client off."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What to start. ``flags`` go to each gateway as they are."""

    gateways: int = 2
    nodes: int = 1
    replicas: int = 1
    heartbeat: float = 3.0
    max_subscribers: int = 64
    flags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Faults:
    """How often, in seconds, each thing breaks; 0 is never."""

    kill_gateway: float = 0.0
    kill_nats: float = 0.0
    stall_gateway: float = 0.0

    def any(self) -> bool:
        """Say whether anything breaks at all."""
        return bool(self.kill_gateway or self.kill_nats or self.stall_gateway)
