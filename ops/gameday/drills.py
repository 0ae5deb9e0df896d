"""The faults: which alerts each must make fire, and where the runbooks show the cause."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from ops.gameday import faults
from ops.gameday.faults import LOADED
from ops.gameday.runbook import Evidence
from ops.gameday.site import Needs, Site

DEGRADED, DISCONNECTED, DOWN = "RingmereLogDegraded", "RingmereLogDisconnected", "RingmereDown"
FAILING, FLAPPING, EPOCH = "RingmerePublishFailing", "RingmereLogFlapping", "RingmereEpochChanged"
EVICTIONS, RESYNCS, LAG = "RingmereEvictionsHigh", "RingmereResyncsHigh", "RingmereDeliveryLagHigh"
BACKLOG, SKIPPED, DYING = "RingmereBacklogHigh", "RingmereSkippedMessages", "RingmereWorkersDying"
DOCTOR = "ringmere doctor"


@dataclass(frozen=True)
class Drill:
    """One fault. ``fires`` are the alerts while it lasts, ``follows`` those that its end brings; all others must not.

    ``put_in`` is entered to break and left to mend. ``resyncs``: readers may be told of losses.
    """

    name: str
    title: str
    injected: str
    ended: str
    fires: frozenset[str]
    put_in: Callable[[Site], AbstractAsyncContextManager[None]]
    shows: tuple[Evidence, ...]
    needs: Needs = field(default_factory=Needs)
    follows: frozenset[str] = frozenset()
    resyncs: bool = False

    @property
    def expected(self) -> frozenset[str]:
        """All alerts that fire in the course of it."""
        return self.fires | self.follows


def _doctor(book: str, shows: str) -> Evidence:
    return Evidence(book, DOCTOR, shows)


DRILLS = (
    Drill(
        "one-node", "One of three NATS nodes is away", "`kill -9` of the node of three that does not lead the stream",
        "the node started again", frozenset(), faults.one_node_away,
        (_doctor(DISCONNECTED, r"^(warn|bad)\s+replicas .*RINGMERE_0"),), Needs(nodes=3),
    ),
    Drill(
        "no-quorum", "Two of three NATS nodes are away: no quorum", "`kill -9` of two of three nodes",
        "both nodes started again; nothing else", frozenset({DEGRADED, FAILING}), faults.no_quorum,
        (
            Evidence(DEGRADED, "max by (instance, shard) (ringmere_log_degraded)", r" 1$"),
            _doctor(DEGRADED, r"^bad\s+(replicas|stream|jetstream|connection)"),
            Evidence(DEGRADED, "log_degraded", "shard"),
            Evidence(FAILING, "sum by (outcome)", r"log_unavailable|publish_unconfirmed"),
        ), Needs(nodes=3),
    ),
    Drill(
        "nats-away", "All of NATS is away", "`kill -9` of the only server",
        "the server started again; nothing else", frozenset({DISCONNECTED, FAILING}), faults.nats_away,
        (
            Evidence(DISCONNECTED, "min by (instance)", r" 0$"),
            Evidence(DISCONNECTED, "curl -s http://127.0.0.1:8080/healthz", '"logConnected":false'),
            Evidence(DISCONNECTED, "curl -s -o", "^503"),
            _doctor(DISCONNECTED, r"^bad\s+connection .*does not answer"),
            Evidence(DISCONNECTED, "log_lost", "log_lost"),
        ),
    ),
    Drill(
        "disk-full", "The disk of a single NATS server is full", "a file system of 48 MiB, filled up with a file",
        "the file removed, the server killed and started again", frozenset({DEGRADED, FAILING}), faults.disk_full,
        (
            Evidence(DEGRADED, "curl -s http://127.0.0.1:8080/healthz", r'"logDegraded":\[0\]'),
            _doctor(DEGRADED, r"^bad\s+(storing|jetstream|stream)"),
            Evidence(DEGRADED, "curl -s http://127.0.0.1:8222", "no space left on device|JetStream not enabled"),
            Evidence(FAILING, "curl -sS -i", r"^HTTP/1.1 503"),
        ), Needs(flags=("--max-bytes", "1GiB"), disk="48m"),
    ),
    Drill(
        "nats-stalls", "NATS stands still again and again", "a single server stopped (`SIGSTOP`) four times, each "
        "time until a gateway finds that nothing is stored", "nothing: it ceased", frozenset({FLAPPING, FAILING}),
        faults.nats_stalls,
        (
            Evidence(FLAPPING, "sum by (instance) (increase(ringmere_breaker", r" [3-9]"),
            Evidence(FLAPPING, "sum by (outcome)", r"publish_unconfirmed"),
            Evidence(FLAPPING, "log_restored", "seconds"),
        ), Needs(flags=("--log-level", "info")),
    ),
    Drill(
        "stream-deleted", "The stream is deleted under load", "`STREAM.DELETE` of the only shard",
        "one more instance started, which made the stream anew", frozenset({DEGRADED, FAILING}), faults.stream_deleted,
        (
            _doctor(DEGRADED, r"^bad\s+stream .*RINGMERE_0.*does not exist"),
            Evidence(EPOCH, "max by (job)", r" [1-9]"),
            Evidence(EPOCH, "ringmere epoch show", r"void"),
            Evidence(EPOCH, "sum by (job)", r" [1-9]"),
            Evidence(RESYNCS, "sum by (reason)", "epoch_reset"),
        ), follows=frozenset({EPOCH, RESYNCS}), resyncs=True,
    ),
    Drill(
        "gateway-killed", "A gateway is killed", "`kill -9` of one of two gateways",
        "the gateway started again", frozenset({DOWN}), faults.gateway_killed,
        (
            Evidence(DOWN, "up{", r" 0$"),
            Evidence(DOWN, "curl -sS -m 5 http://127.0.0.1:8080/livez", r"(?i)failed to connect|could ?n.t connect"),
        ), Needs(nodes=3),
    ),
    Drill(
        "gateway-frozen", "A gateway stands still", "one of two gateways stopped (`SIGSTOP`) for 13 s and more",
        "the gateway continued (`SIGCONT`)", frozenset({DOWN}), faults.gateway_frozen,
        (
            Evidence(DOWN, "up{", r" 0$"),
            Evidence(DOWN, "curl -sS -m 5 http://127.0.0.1:8080/livez", "(?i)timed out"),
        ), Needs(nodes=3),
    ),
    Drill(
        "slow-link", "The way to NATS is slow", "what NATS sends to the gateways arrives 1.5 s late (a TCP relay)",
        "the delay taken away", frozenset({LAG}), faults.slow_link,
        (
            Evidence(LAG, "histogram_quantile(0.99, sum by (instance, le) (rate(ringmere_delivery", r" [1-9]"),
            Evidence(LAG, "histogram_quantile(0.99, sum by (instance, le) (rate(ringmere_loop", r" 0\."),
            _doctor(LAG, r"^warn\s+storing .*acknowledged after [1-9]"),
        ), Needs(slow_link=True),
    ),
    Drill(
        "slow-readers", "Readers take nothing and are flooded", "40 readers of one session who read nothing and come "
        "anew after 10 s; the session gets 20 events of 40 kB a second", "flood and readers ended",
        frozenset({EVICTIONS}), faults.readers_take_nothing,
        (
            Evidence(EVICTIONS, "sum by (instance, reason)", "queue_bytes_overflow"),
            Evidence(EVICTIONS, "ringmere readers", "crowd"),
            Evidence(EVICTIONS, "ringmere sessions show", r"\blive\b.* [1-9]\d*/256"),
            Evidence(EVICTIONS, "reader_evicted", "crowd"),
        ),
    ),
    Drill(
        "proxy-stalls", "A proxy in front stands still", "240 readers of four sessions take nothing, as if behind one "
        "full proxy, while their sessions go on", "the readers read on", frozenset({BACKLOG}),
        faults.proxy_stands_still,
        (
            Evidence(BACKLOG, "max by (instance, of)", r"of=.?all.* [3-9]\d{8}"),
            Evidence(BACKLOG, "ringmere readers", "crowd-"),
            Evidence(BACKLOG, "curl -s http://127.0.0.1:8080/readers", "crowd-"),
        ), Needs(flags=("--write-timeout", "5m")),
    ),
    Drill(
        "ring-too-short", "Clients were away longer than the ring reaches", "rings of 100 events (10 s at this load); "
        "a client comes back 30 times with the id of the first event", "nothing: all have been back",
        frozenset({RESYNCS}), faults.away_too_long,
        (
            Evidence(RESYNCS, "sum by (reason)", "ring_evicted"),
            Evidence(RESYNCS, "ringmere sessions show", r"firstEventId\s+([2-9]|\d\d)"),
            Evidence(RESYNCS, "resync", "ring_evicted"),
        ), Needs(flags=("--ring-size", "100")), resyncs=True,
    ),
    Drill(
        "foreign-publisher", "Somebody publishes past the gateways what is no event", "one message of text on a "
        "session's subject, by NATS", "nothing: it came once", frozenset({SKIPPED}), faults.foreign_publisher,
        (
            Evidence(SKIPPED, "max by (reason)", "not_json"),
            Evidence(SKIPPED, "message_skipped", LOADED),
        ),
    ),
    Drill(
        "worker-killed", "A worker is killed", "`kill -9` of one of two workers of a gateway",
        "nothing: its parent starts it again", frozenset({DYING}), faults.worker_killed,
        (
            Evidence(DYING, "sum by (instance) (increase(ringmere_worker_restarts", r" [1-9]"),
            Evidence(DYING, "worker_ended", "-9"),
            Evidence(DYING, "curl", '"worker"'),
        ), Needs(flags=("--workers", "2")),
    ),
)  # fmt: skip
"""All faults, in the order in which they are put in."""
