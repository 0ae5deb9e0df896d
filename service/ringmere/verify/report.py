"""What a round found, as lines for people and as one object for programs, and whether it was good. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ringmere.verify.judge import Findings
from ringmere.verify.plan import Plan
from ringmere.verify.spread import Spread

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))
EVICTED = "client_evicted"


class Fault(NamedTuple):
    """Something that was broken on purpose, ``at`` seconds after the first event, for ``seconds``."""

    at: float
    what: str
    seconds: float


@dataclass(frozen=True)
class Report:
    """One round: what was asked, what was found. ``late`` is the longest stall of verify itself, in seconds."""

    plan: Plan
    findings: Findings
    seconds: float
    late: float
    faults: Sequence[Fault] = ()
    trouble: Sequence[str] = ()
    """What went wrong around the round, a gateway that ended by itself for example."""

    def with_trouble(self, trouble: Sequence[str]) -> Report:
        """Return the same report with more trouble."""
        return replace(self, trouble=[*self.trouble, *trouble])

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems()

    def problems(self) -> list[str]:
        """Return what is wrong, a phrase each; empty when all is well."""
        found = self.findings
        counted = [
            (found.lost, "lost"),
            (found.duplicated, "duplicated"),
            (found.out_of_order, "out of order"),
            (found.unknown, "delivered though never stored"),
            (found.altered, "altered"),
            (found.misnumbered, "under another id than was acknowledged"),
            (found.backwards, "stored under an id that is not above an earlier one"),
            (found.refused, "refused for good"),
        ]
        problems = [f"{count} {what}" for count, what in counted if count]
        resyncs = sum(found.resyncs.values())
        if resyncs and not self.plan.allow_resync:
            reasons = ", ".join(sorted(found.resyncs))
            problems.append(f"{resyncs} resyncs ({reasons}; {found.told} missing events were told)")
        if found.silence > self.plan.max_silence:
            problems.append(f"a silence of {found.silence:.1f} s (allowed are {self.plan.max_silence:g} s)")
        if not found.acknowledged:
            problems.append("no event was acknowledged, so nothing is proven")
        if found.broken:
            problems.append(f"{len(found.broken)} readers had to give up ({found.broken[0]})")
        return problems + list(self.trouble)

    def lines(self) -> list[tuple[str, str]]:
        """Return the report for people: a label and a text each."""
        found, plan = self.findings, self.plan
        resyncs = sum(found.resyncs.values())
        lines = [
            ("round", _round(plan, self.seconds)),
            ("faults", _faults(self.faults)),
            (
                "published",
                f"{found.sent} sent · {found.acknowledged} acknowledged · {found.unconfirmed} unconfirmed · "
                f"{found.unstored} told not stored · {found.retries} retries, {found.duplicates_avoided} found stored",
            ),
            ("delivered", f"{found.delivered} of {found.due} due"),
            (
                "wrong",
                f"{found.lost} lost · {found.duplicated} duplicated · {found.out_of_order} out of order · "
                f"{found.misnumbered + found.altered + found.unknown + found.backwards} otherwise",
            ),
            (
                "told",
                f"{resyncs} resyncs ({found.told} events) · {found.frames[EVICTED]} evictions · "
                f"{found.frames['slow_client_warning']} warnings · {_errors(found.errors)}",
            ),
            ("readers", f"{found.drops} drops of their own · {found.reconnects} other reconnects"),
            ("silence", f"longest {found.silence:.2f} s of {plan.max_silence:g} s allowed"),
            ("delivery", in_words(found.delivery)),
            ("publish", in_words(found.publish)),
            ("verify", f"late by {self.late:.2f} s at most, which counts in all times above"),
        ]
        return lines + [("example", text) for text in found.exhibits]

    def as_object(self) -> dict[str, Any]:
        """Return the report as one JSON object; times in seconds."""
        found, plan = self.findings, self.plan
        return {
            "ok": self.good,
            "problems": self.problems(),
            "seed": plan.seed,
            "sessions": plan.sessions,
            "readers": plan.readers,
            "rate": plan.rate,
            "seconds": round(self.seconds, 3),
            "sent": found.sent,
            "acknowledged": found.acknowledged,
            "unconfirmed": found.unconfirmed,
            "notStored": found.unstored,
            "refused": found.refused,
            "retries": found.retries,
            "foundStored": found.duplicates_avoided,
            "due": found.due,
            "delivered": found.delivered,
            "lost": found.lost,
            "toldLost": found.told,
            "duplicated": found.duplicated,
            "repeatedAfterReset": found.again,
            "outOfOrder": found.out_of_order,
            "neverStored": found.unknown,
            "altered": found.altered,
            "misnumbered": found.misnumbered,
            "backwards": found.backwards,
            "resyncs": dict(found.resyncs),
            "evictions": found.frames[EVICTED],
            "frames": dict(found.frames),
            "streamErrors": dict(found.errors),
            "drops": found.drops,
            "reconnects": found.reconnects,
            "longestSilence": round(found.silence, 3),
            "maxSilence": plan.max_silence,
            "longestDelivery": round(found.delivery.longest, 3),
            "publishLatency": quantiles(found.publish),
            "deliveryLatency": quantiles(found.delivery),
            "verifyLate": round(self.late, 3),
            "faults": [
                {"at": round(fault.at, 2), "what": fault.what, "seconds": round(fault.seconds, 2)}
                for fault in self.faults
            ],
            "examples": found.exhibits,
        }


def _round(plan: Plan, seconds: float) -> str:
    drops = f"each drops about every {plan.drop_every:g} s" if plan.drop_every else "no drops"
    return (
        f"{plan.sessions} sessions · {plan.readers} readers, {drops} · {plan.rate:g} events/s of {plan.size} bytes · "
        f"{seconds:.1f} s · seed {plan.seed}"
    )


def _faults(faults: Sequence[Fault]) -> str:
    counts: dict[str, int] = {}
    for fault in faults:
        counts[fault.what] = counts.get(fault.what, 0) + 1
    return " · ".join(f"{count} × {what}" for what, count in counts.items()) or "none"


def _errors(errors: Mapping[str, int]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(errors.items()))
    return f"{sum(errors.values())} stream errors" + (f" ({kinds})" if kinds else "")


def quantiles(spread: Spread) -> dict[str, float]:
    """Return durations for programs, in seconds."""
    return {name: round(spread.quantile(part), 6) for name, part in QUANTILES} | {"max": round(spread.longest, 6)}


def in_words(spread: Spread) -> str:
    """Return durations for people."""
    parts = [f"{name} {_milliseconds(spread.quantile(part))}" for name, part in QUANTILES]
    return " · ".join([*parts, f"max {_milliseconds(spread.longest)}"])


def _milliseconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
