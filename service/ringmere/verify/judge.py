"""Compares what publishers know with what readers have seen. Pure: the same evidence, the same findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ringmere.verify.ledger import Ledger
from ringmere.verify.spread import Spread
from ringmere.verify.witness import EXHIBITS, Witness

SHOWN = 20
"""Examples of what is wrong that are kept for people."""


@dataclass
class Findings:
    """Everything that was counted, over all sessions and readers."""

    readers: int = 0
    sent: int = 0
    acknowledged: int = 0
    unconfirmed: int = 0
    unstored: int = 0
    refused: int = 0
    duplicates_avoided: int = 0
    """Retries that the log recognised."""
    retries: int = 0
    due: int = 0
    """Deliveries of acknowledged events that readers should have got."""
    delivered: int = 0
    lost: int = 0
    told: int = 0
    """Missing, but a verdict had said so."""
    duplicated: int = 0
    again: int = 0
    out_of_order: int = 0
    unknown: int = 0
    """Delivered, but never sent, or answered with "not stored"."""
    altered: int = 0
    misnumbered: int = 0
    """Delivered under another id than was acknowledged, or than another reader got."""
    backwards: int = 0
    connections: int = 0
    drops: int = 0
    resyncs: Counter[str] = field(default_factory=Counter)
    frames: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    """Streams that could not start or go on, by kind."""
    broken: list[str] = field(default_factory=list)
    silence: float = 0.0
    publish: Spread = field(default_factory=Spread)
    delivery: Spread = field(default_factory=Spread)
    exhibits: list[str] = field(default_factory=list)

    @property
    def reconnects(self) -> int:
        """Connections beyond each reader's first that were not the reader's own wish."""
        return max(0, self.connections - self.drops - self.readers)


def judge(ledgers: Iterable[Ledger], witnesses: Sequence[Witness]) -> Findings:
    """Return what the evidence says; each witness belongs to one of the ledgers."""
    findings = Findings(readers=len(witnesses))
    for ledger in ledgers:
        _count_ledger(findings, ledger)
        present = [witness for witness in witnesses if witness.ledger is ledger]
        agreed: dict[int, int] = {}
        for witness in present:
            _count_witness(findings, witness)
            _compare(findings, witness, agreed)
    return findings


def _count_ledger(findings: Findings, ledger: Ledger) -> None:
    findings.sent += ledger.sent
    findings.acknowledged += ledger.acknowledged
    findings.unconfirmed += len(ledger.unconfirmed)
    findings.unstored += len(ledger.unstored)
    findings.refused += len(ledger.refused)
    findings.duplicates_avoided += ledger.duplicates
    findings.retries += ledger.retries
    findings.backwards += ledger.backwards
    findings.publish.merge(ledger.latency)
    for number, cause in list(ledger.refused.items())[:EXHIBITS]:
        _exhibit(findings, f"{ledger.session}: event {number} was refused: {cause}")


def _count_witness(findings: Findings, witness: Witness) -> None:
    findings.due += witness.ledger.acknowledged
    findings.delivered += witness.delivered
    findings.duplicated += witness.duplicated
    findings.again += witness.again
    findings.out_of_order += witness.out_of_order
    findings.unknown += witness.unknown
    findings.altered += witness.altered
    findings.connections += witness.connections
    findings.drops += witness.drops
    findings.resyncs.update(witness.resyncs)
    findings.frames.update(witness.frames)
    findings.errors.update(witness.errors)
    findings.silence = max(findings.silence, witness.silence)
    findings.delivery.merge(witness.delay)
    if witness.broken:
        findings.broken.append(f"{witness.name}: {witness.broken}")
    for text in witness.exhibits:
        _exhibit(findings, text)


def _compare(findings: Findings, witness: Witness, agreed: dict[int, int]) -> None:
    """Go through all numbers of a session for one reader; ``agreed`` is shared by the session's readers."""
    ledger = witness.ledger
    if witness.ids == ledger.ids:
        return
    shown = 0
    for number in range(1, ledger.sent + 1):
        acknowledged = ledger.ids[number - 1]
        got = witness.ids[number - 1] if number <= len(witness.ids) else 0
        complaint = _of_one(findings, witness, number, acknowledged, got, agreed)
        if complaint and shown < EXHIBITS:
            shown += 1
            _exhibit(findings, f"{witness.name} {complaint}")


def _of_one(
    findings: Findings, witness: Witness, number: int, acknowledged: int, got: int, agreed: dict[int, int]
) -> str:
    """Count one event of one reader and return what is wrong with it, "" when nothing is."""
    if acknowledged == got:
        return ""
    if acknowledged and not got:
        if witness.was_told(number):
            findings.told += 1
            return ""
        findings.lost += 1
        return f"never got event {number} (id {acknowledged})"
    if not acknowledged and number not in witness.ledger.unconfirmed:
        findings.unknown += 1
        return f"got event {number} (id {got}), which was answered with not stored"
    expected = acknowledged or agreed.setdefault(number, got)
    if expected == got:
        return ""
    findings.misnumbered += 1
    return f"got event {number} under id {got} instead of {expected}"


def _exhibit(findings: Findings, text: str) -> None:
    if len(findings.exhibits) < SHOWN:
        findings.exhibits.append(text)
