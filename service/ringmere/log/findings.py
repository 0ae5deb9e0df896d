"""What a check has found: a level, a stable code, words, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

OK, WARN, BAD = "ok", "warn", "bad"

CODES = {
    "connection": "NATS is reachable and takes the credentials",
    "server_version": "the NATS server is new enough",
    "jetstream": "JetStream is on and the account may use it",
    "account_limits": "the account's storage, memory, streams and consumers",
    "permissions": "the NATS user may do what an instance does",
    "stream": "a stream exists and has a leader",
    "stream_shape": "it has the shape that the settings ask for",
    "stream_room": "how full it is",
    "replicas": "its copies: how many, whether they are there and up to date",
    "sources": "streams that follow others: how late, and how long silent",
    "consumers": "consumers in use, and that another one can be made",
    "event_size": "the largest event against what NATS takes",
    "clock": "this machine's clock against the log's",
    "epoch_record": "the epoch table is there and fits the stream",
    "storing": "the stream stores: a message of no session was acknowledged",
    "reading": "the leader and the stream's direct reads give it back",
    "republish": "it came back on the live subject",
    "durability": "what an acknowledged event survives",
    "gateway_live": "an instance answers",
    "gateway_ready": "it is ready for work, and the log stores",
    "gateway_version": "all instances are of this version",
    "gateway_epoch": "all instances, and the log, name the same epochs",
}
"""Every check by its code. A code keeps its meaning; what became of the check is the level."""


class Finding(NamedTuple):
    """One line of a check-up. ``about`` is the stream, server or instance; ``todo`` is empty when all is well.

    ``final``: an instance refuses to start like this, and waiting does not help.
    """

    level: str
    code: str
    about: str
    text: str
    todo: str = ""
    final: bool = False

    def as_object(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return {**self._asdict()}


def ok(code: str, about: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(OK, code, about, text)


def warn(code: str, about: str, text: str, todo: str) -> Finding:
    """Return a finding that somebody should look at: it works, or works still."""
    return Finding(WARN, code, about, text, todo)


def bad(code: str, about: str, text: str, todo: str, *, final: bool = False) -> Finding:
    """Return a finding that something does not work, or does not protect as it should."""
    return Finding(BAD, code, about, text, todo, final)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 when nothing is bad, 2 when an instance would refuse to start, else 1."""
    found = [finding for finding in findings if finding.level == BAD]
    return 2 if any(finding.final for finding in found) else 1 if found else 0
