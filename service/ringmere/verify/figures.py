"""What a load run measured, as lines for people and as one object for programs, and whether anything failed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringmere.client.items import RESYNC
from ringmere.verify.load import Heard, LoadPlan, Sent
from ringmere.verify.report import EVICTED, in_words, quantiles
from ringmere.verify.spread import Spread


@dataclass(frozen=True)
class Figures:
    """One run: what was asked, what was sent and heard; ``begin`` is monotonic, ``late`` our own longest stall."""

    plan: LoadPlan
    sent: Sent
    heard: Sequence[Heard]
    begin: float
    late: float

    @property
    def good(self) -> bool:
        """Whether nothing failed."""
        return not self.problems()

    @property
    def events(self) -> int:
        """Events that were acknowledged."""
        return self.sent.acknowledged.total()

    @property
    def deliveries(self) -> int:
        """Events that all readers got together."""
        return sum(each.events for each in self.heard)

    @property
    def missing(self) -> int:
        """Deliveries of acknowledged events that did not happen."""
        return sum(max(0, self.sent.acknowledged[each.session] - each.events) for each in self.heard)

    def problems(self) -> list[str]:
        """Return what failed, a phrase each."""
        resyncs = sum(each.frames[RESYNC] for each in self.heard)
        disordered = sum(each.disordered for each in self.heard)
        counted = [
            (self.missing, "deliveries missing"),
            (disordered, "twice or out of order"),
            (resyncs, "resyncs"),
        ]
        problems = [f"{count} {what}" for count, what in counted if count]
        problems += [f"{count} events not acknowledged: {code}" for code, count in sorted(self.sent.errors.items())]
        problems += [f"{count} stream errors: {kind}" for kind, count in sorted(self._errors().items())]
        broken = [each.broken for each in self.heard if each.broken]
        if broken:
            problems.append(f"{len(broken)} readers had to give up ({broken[0]})")
        if not self.events:
            problems.append("no event was acknowledged")
        return problems

    def as_object(self) -> dict[str, Any]:
        """Return the figures as one JSON object; times in seconds, sizes in bytes."""
        size = sum(each.bytes for each in self.heard)
        return {
            "ok": self.good,
            "problems": self.problems(),
            "sessions": self.plan.sessions,
            "readers": self.plan.readers,
            "rate": self.plan.rate,
            "size": self.plan.size,
            "batch": self.plan.batch,
            "events": self.events,
            "eventsPerSecond": round(self._rate(self.events, self.sent.until), 1),
            "deliveries": self.deliveries,
            "deliveriesPerSecond": round(self._rate(self.deliveries, self._heard_until()), 1),
            "missing": self.missing,
            "bytes": size,
            "bytesPerSecond": round(self._rate(size, self._heard_until())),
            "publishLatency": quantiles(self.sent.latency),
            "deliveryLatency": quantiles(self._latency()),
            "behind": round(self.sent.behind, 3),
            "errors": dict(self.sent.errors),
            "streamErrors": dict(self._errors()),
            "resyncs": sum(each.frames[RESYNC] for each in self.heard),
            "evictions": sum(each.frames[EVICTED] for each in self.heard),
            "reconnects": self._reconnects(),
            "benchLate": round(self.late, 3),
        }

    def lines(self) -> list[tuple[str, str]]:
        """Return the figures for people: a label and a text each."""
        plan, told = self.plan, self.as_object()
        rate = f"{plan.rate:g} events/s" if plan.rate else "flat out"
        return [
            ("load", f"{plan.sessions} sessions · {plan.readers} readers · {rate} of {plan.size} bytes"),
            (
                "published",
                f"{self.events} events · {told['eventsPerSecond']:,.0f}/s · {sum(self.sent.errors.values())} errors",
            ),
            (
                "delivered",
                f"{self.deliveries} · {told['deliveriesPerSecond']:,.0f}/s · {told['bytesPerSecond']:,} bytes/s",
            ),
            ("publish", in_words(self.sent.latency)),
            ("delivery", in_words(self._latency())),
            ("readers", f"{told['evictions']} evictions · {told['resyncs']} resyncs · {self._reconnects()} reconnects"),
            ("schedule", f"{self.sent.behind:.2f} s behind at most" if plan.rate else "none"),
            ("bench", f"late by {self.late:.2f} s at most, which counts in all times above"),
        ]

    def _latency(self) -> Spread:
        whole = Spread()
        for each in self.heard:
            whole.merge(each.latency)
        return whole

    def _errors(self) -> Counter[str]:
        return sum((each.errors for each in self.heard), Counter())

    def _reconnects(self) -> int:
        return sum(max(0, each.connections - 1) for each in self.heard)

    def _heard_until(self) -> float:
        return max((each.until for each in self.heard), default=0.0)

    def _rate(self, count: int, until: float) -> float:
        return count / (until - self.begin) if until > self.begin else 0.0
